//! The guest's thread as the signal handler sees it, and the handler itself.

use super::super::clock::{monotonic_ns, own_cpu_ns, own_tid};
use super::super::dump::Dump;
use super::super::session::Shared;
use super::activations::OuterActivations;
use super::dump::DumpRequest;
use super::language::{LanguageWalk, Reading};
use super::naming::Naming;
use super::own_thread::{SIGNAL, SignalBlocked, mask, own_stack_low};
use super::record::{Header, Kind};
use super::ring::Ring;
use super::vm_context::StoreContext;
use super::walk::{FrameWord, Stack};
use super::x86_64::Registers;
use crate::recording::State;
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A thread that runs a guest.
pub(super) struct GuestThread {
    pub(super) shared: Arc<Shared>,
    pub(super) tid: libc::pid_t,
    pub(super) ring: Ring,
    store: StoreContext,
    /// Lowest address of the thread's stack.
    stack_low: usize,
    outer: OuterActivations,
    /// The walker of the guest's language. Touched on the guest's thread, by a dump that keeps that from going on, and
    /// by whoever takes it when that is stopped for good.
    language: UnsafeCell<Option<LanguageWalk>>,
    has_language: AtomicBool,
    pub(super) naming: Naming,
    pub(super) dump: DumpRequest,
    /// Samples of the host call that is going on await the language's stack.
    awaits_language: AtomicBool,
    /// The ticker is reading this thread or the call hook is pushing into the ring.
    locked: AtomicBool,
    /// Counts host calls: equal numbers are one call.
    host_calls: AtomicU64,
    /// An imported function has been called by the innermost wasm and has not returned.
    in_host_call: AtomicBool,
    /// What the ticker knew when it sent the signal.
    pub(super) tick_cpu_ns: AtomicU64,
    pub(super) tick_period_ns: AtomicU64,
    /// The ticker has sent a signal that has not been handled: what else sends this signal is not answered.
    expected: AtomicBool,
    /// Signals handled.
    pub(super) handled: AtomicU64,
    /// Time spent in the handler, and in walks when host calls return, altogether.
    pub(super) handler_ns: AtomicU64,
    /// Records that the ring had no room for.
    pub(super) ring_full: AtomicU64,
    /// Signals are answered but nothing is recorded.
    calibrating: AtomicBool,
    /// The thread is to go no further.
    halted: AtomicBool,
    /// It goes no further.
    halted_in_place: AtomicBool,
    /// The thread has left the store.
    pub(super) detached: AtomicBool,
    /// When the guest could begin, calibration done.
    pub(super) started_ns: AtomicU64,
    pub(super) started_cpu_ns: AtomicU64,
    pub(super) ended_ns: AtomicU64,
    pub(super) ended_cpu_ns: AtomicU64,
}

// SAFETY: beside `language` everything is atomic or synchronized by itself; `language` is touched on the guest's thread
// (handler and hook exclude each other by blocking the signal), by a dump from another one while that is in a host call
// (where neither touches it), and, when sampling has ended and no dump is being made, by whoever takes it.
unsafe impl Sync for GuestThread {}

struct Unlock<'a>(&'a AtomicBool);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

thread_local! {
    /// What the handler records into on this thread. A plain constant-initialized cell: reading it in a signal handler
    /// runs no initializer.
    static CURRENT: Cell<*const GuestThread> = const { Cell::new(std::ptr::null()) };
}

impl GuestThread {
    /// Makes the calling thread a guest's thread. It is not sampled before [`GuestThread::enter`].
    pub(super) fn new(shared: Arc<Shared>, store: StoreContext) -> io::Result<Self> {
        Ok(Self {
            shared,
            tid: own_tid(),
            ring: Ring::new(),
            store,
            stack_low: own_stack_low()?,
            outer: OuterActivations::new(),
            language: UnsafeCell::new(None),
            has_language: AtomicBool::new(false),
            naming: Naming::default(),
            dump: DumpRequest::default(),
            awaits_language: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            host_calls: AtomicU64::new(0),
            in_host_call: AtomicBool::new(false),
            tick_cpu_ns: AtomicU64::new(0),
            tick_period_ns: AtomicU64::new(0),
            expected: AtomicBool::new(false),
            handled: AtomicU64::new(0),
            handler_ns: AtomicU64::new(0),
            ring_full: AtomicU64::new(0),
            calibrating: AtomicBool::new(true),
            halted: AtomicBool::new(false),
            halted_in_place: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            started_ns: AtomicU64::new(0),
            started_cpu_ns: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            ended_cpu_ns: AtomicU64::new(0),
        })
    }

    /// Lets the handler record into `self` on this thread, until [`GuestThread::leave`].
    pub(super) fn enter(&self) -> io::Result<()> {
        install_handler()?;
        CURRENT.set(self);
        mask(libc::SIG_UNBLOCK).map(|_| ())
    }

    /// Ends the calibration: from here on signals are samples. To be called on the guest's thread.
    pub(super) fn start(&self) {
        self.started_ns.store(monotonic_ns(), Ordering::Relaxed);
        self.started_cpu_ns.store(own_cpu_ns(), Ordering::Relaxed);
        self.calibrating.store(false, Ordering::SeqCst);
    }

    /// Ends recording on this thread, which must be the one that entered.
    pub(super) fn leave(&self) {
        CURRENT.set(std::ptr::null());
        self.dump.guest_goes_on();
        // The ticker may be reading this thread's stack and store, which end after this.
        let _locked = self.lock();
        self.ended_ns.store(monotonic_ns(), Ordering::Relaxed);
        self.ended_cpu_ns.store(own_cpu_ns(), Ordering::Relaxed);
        self.detached.store(true, Ordering::Release);
    }

    /// To be called when the host enters wasm: what the store says is about to be replaced.
    pub(super) fn calling_wasm(&self) {
        self.dump.guest_goes_on();
        // SAFETY: the hook runs within the store.
        self.outer.push(unsafe { self.store.activation() });
        self.in_host_call.store(false, Ordering::Relaxed);
    }

    /// To be called when wasm has returned to the host.
    pub(super) fn returning_from_wasm(&self) {
        self.outer.pop();
        // Whoever called wasm from within a host call is in that again; the outermost caller is in none.
        self.in_host_call.store(self.outer.any(), Ordering::Relaxed);
        if self.outer.any() {
            self.dump.guest_waits();
        }
    }

    /// To be called when wasm calls the host.
    pub(super) fn calling_host(&self) {
        // One thread writes it, so no read-modify-write is needed.
        self.host_calls.store(self.host_calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.in_host_call.store(true, Ordering::Relaxed);
        self.dump_at_host_call();
        let at_import = self.dump_at_import();
        self.dump.guest_waits();
        // Whoever is told may wait for someone who asks for a dump: that can be made from here on.
        if let (Some((call, dump)), Some(watch)) = (at_import, &self.shared.options.import_watch) {
            watch.tell(call, dump);
        }
    }

    /// What a walk of this thread reads.
    pub(super) fn stack(&self) -> Stack<'_> {
        Stack {
            code: &self.shared.code,
            store: self.store,
            low: self.stack_low,
            in_host_call: self.in_host_call.load(Ordering::Relaxed),
            outer: &self.outer,
        }
    }

    /// Number of the imported function's call that is going on; 0 if none is.
    fn host_call(&self) -> u64 {
        if self.in_host_call.load(Ordering::Relaxed) { self.host_calls.load(Ordering::Relaxed) } else { 0 }
    }

    /// To be called before a signal is sent.
    pub(super) fn expect_signal(&self) {
        self.expected.store(true, Ordering::Release);
    }

    /// Whether the thread needs no more ticks: it has left, or stays where it is.
    pub(super) fn is_over(&self) -> bool {
        self.detached.load(Ordering::Acquire) || self.halted_in_place.load(Ordering::Acquire)
    }

    /// Halts the guest: see [`Sampler::halt_guest`](super::super::Sampler::halt_guest).
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::SeqCst);
    }

    /// Stays here for good if the guest has been halted. To be called where the thread holds no lock.
    pub(super) fn stay_if_halted(&self) {
        while self.halted.load(Ordering::Relaxed) {
            self.halted_in_place.store(true, Ordering::Release);
            // SAFETY: waits for a signal; async-signal-safe.
            unsafe { libc::pause() };
        }
    }

    /// Takes a sample of this thread, interrupted with these registers. Async-signal-safe.
    ///
    /// # Safety
    /// To be called in the handler alone.
    unsafe fn sample(&self, registers: Registers) {
        // Anyone may send this signal. Only the ticker's is answered, so that there is one producer for the ring.
        if !self.expected.swap(false, Ordering::Acquire) {
            return;
        }
        let began = monotonic_ns();
        let in_guest = self.shared.code.contains(registers.pc);
        if !self.calibrating.load(Ordering::Relaxed) {
            let header = Header {
                time_ns: began,
                cpu_ns: self.tick_cpu_ns.load(Ordering::Relaxed),
                period_ns: self.tick_period_ns.load(Ordering::Relaxed),
                host_call: self.host_call(),
                pause_ns: 0,
                state: if in_guest { State::Guest } else { State::Host },
                kind: Kind::Sample,
            };
            // First, so that the pause that is recorded has it in it.
            // SAFETY: the handler runs on the guest's thread, in compiled code: nobody else has the walker.
            if in_guest && let Some(language) = unsafe { &mut *self.language.get() } {
                language.name(&self.naming);
            }
            let kind = Cell::new(Kind::Sample);
            let stack = self.stack();
            // SAFETY: the ticker sends no second signal and pushes nothing itself before `handled` is raised, so there
            // is one producer; and the registers are those of this thread, which stands still.
            let pushed = unsafe {
                self.ring.push(|words| {
                    header.write(
                        words,
                        |frames| stack.walk(registers, frames),
                        |frames, words| {
                            if in_guest {
                                return self.collect_language(frames, Reading::Standing, words);
                            }
                            if self.is_between_wasm_and_host_call(frames) {
                                return self.collect_language(frames, Reading::InterruptedHost, words);
                            }
                            kind.set(self.kind_of_host_sample());
                            0
                        },
                        |header| {
                            header.kind = kind.get();
                            header.pause_ns = monotonic_ns().saturating_sub(began);
                        },
                    )
                })
            };
            if !pushed {
                self.ring_full.fetch_add(1, Ordering::Relaxed);
            }
        }
        // SAFETY: the walker is this handler's, as for the sample.
        unsafe { self.charge(began) };
        if in_guest {
            // SAFETY: as for the sample. Before the signal counts as handled: after that, the walker may be taken away.
            unsafe { self.dump_interrupted(registers) };
        }
        self.handled.store(self.handled.load(Ordering::Relaxed) + 1, Ordering::Release);
        if in_guest {
            // In compiled code the thread holds no lock of the host's.
            self.stay_if_halted();
        }
    }

    /// Counts the time since `began` as a cost of sampling, which the governor bounds.
    ///
    /// # Safety
    /// Nobody else may have the walker.
    unsafe fn charge(&self, began: u64) {
        // SAFETY: the caller's promise.
        let is_accident = unsafe { &*self.language.get() }.as_ref().is_some_and(LanguageWalk::panicked_last);
        // Such a walk may take seconds, and there are but a few: it says nothing of what the next tick costs.
        let cost = if is_accident { 0 } else { monotonic_ns().saturating_sub(began) };
        self.handler_ns.store(self.handler_ns.load(Ordering::Relaxed) + cost, Ordering::Relaxed);
    }

    /// Records where the thread waits, from the ticker's thread. `false`: the ring is full.
    ///
    /// # Safety
    /// The thread must have been seen blocked, with no signal on its way. If it wakes meanwhile the frames are
    /// meaningless: `still_blocked` is asked after the walk, and the record dropped if it says no (`None`).
    pub(super) unsafe fn capture_blocked(
        &self,
        cpu_ns: u64,
        is_sample: bool,
        still_blocked: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let header = Header {
            time_ns: monotonic_ns(),
            cpu_ns,
            period_ns: self.tick_period_ns.load(Ordering::Relaxed),
            host_call: self.host_call(),
            pause_ns: 0,
            state: State::Blocked,
            kind: if is_sample { self.kind_of_host_sample() } else { Kind::Sighting },
        };
        let mut words = vec![0; super::record::MAX_WORDS];
        // Who has it is awake, or is stuck in a plugin: nothing to wait for.
        let _locked = self.try_lock()?;
        if self.detached.load(Ordering::Acquire) {
            return None;
        }
        let stack = self.stack();
        // SAFETY: the thread has not left, and cannot while this is locked: its store lives and its stack is mapped.
        let length = header.write(&mut words, |frames| unsafe { stack.walk_blocked(frames) }, |_, _| 0, |_| ());
        if !still_blocked() {
            return None;
        }
        // SAFETY: no signal is on its way, so the handler cannot be pushing, and the call hook is locked out.
        Some(unsafe {
            self.ring.push(|record| {
                record[..length].copy_from_slice(&words[..length]);
                length
            })
        })
    }

    /// Keeps the ticker, the call hook and the end of the thread apart. Each holds it for a few microseconds.
    fn lock(&self) -> Unlock<'_> {
        loop {
            match self.try_lock() {
                Some(locked) => return locked,
                None => std::thread::yield_now(),
            }
        }
    }

    fn try_lock(&self) -> Option<Unlock<'_>> {
        (!self.locked.swap(true, Ordering::Acquire)).then(|| Unlock(&self.locked))
    }

    /// Whether the ticker or the call hook is at work. A call hook that stays so is stuck in a plugin.
    pub(super) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }

    /// Whether a sample in host code is whole, or waits for the language's stack.
    fn kind_of_host_sample(&self) -> Kind {
        if !self.has_language.load(Ordering::Relaxed) {
            return Kind::Sample;
        }
        self.awaits_language.store(true, Ordering::Relaxed);
        Kind::AwaitsLanguage
    }

    /// Whether the thread, in host code with these frames of wasm below, is on the way from wasm to an imported function
    /// or back, or in a builtin such as `memory.copy`, which wasm calls without telling the call hook. The guest stands
    /// still there and can be read, but the interrupted code may be the allocator's.
    ///
    /// `memory.grow` is left out, in which the memory may be moving.
    ///
    /// # Safety
    /// To be called in the handler alone.
    unsafe fn is_between_wasm_and_host_call(&self, frames: &[u64]) -> bool {
        const MEMORY_GROW: u8 = 0x40;
        let Some(&leaf) = frames.first() else { return false };
        if self.in_host_call.load(Ordering::Relaxed) {
            // Then a dump may be being made from another thread.
            return false;
        }
        // SAFETY: the handler runs on the guest's thread.
        let language = unsafe { &*self.language.get() };
        language.as_ref().is_some_and(LanguageWalk::walks_without_allocating)
            && self.shared.opcode_at(FrameWord(leaf).native_pc()).is_some_and(|opcode| opcode != MEMORY_GROW)
    }

    /// Adds the language's stack to a record.
    ///
    /// # Safety
    /// As for [`LanguageWalk::collect`], and not while it is being called already.
    unsafe fn collect_language(&self, frames: &[u64], reading: Reading, words: &mut [u64]) -> usize {
        // SAFETY: the caller's promise: nobody else has it.
        match unsafe { &mut *self.language.get() } {
            // SAFETY: passed on to the caller.
            Some(language) => unsafe { language.collect(&self.shared.code, frames, reading, words) },
            None => 0,
        }
    }

    /// Whether samples of the host call that is going on await the language's stack.
    pub(super) fn awaits_language(&self) -> bool {
        self.awaits_language.load(Ordering::Relaxed)
    }

    /// Reads all stacks of the language; `None` if there is none to walk.
    ///
    /// # Safety
    /// As for [`Self::collect_language`], but on any thread while the guest's cannot go on.
    pub(super) unsafe fn language_threads(&self, frames: &[u64], state: &str, through_kernel: bool) -> Option<Dump> {
        // SAFETY: the caller's promise.
        let language = unsafe { &mut *self.language.get() };
        // SAFETY: passed on to the caller.
        language.as_mut().map(|language| unsafe { language.threads(&self.shared.code, frames, state, through_kernel) })
    }

    /// To be called when a host call returns to wasm.
    pub(super) fn returning_from_host(&self) {
        self.dump.guest_goes_on();
        if self.awaits_language.load(Ordering::Relaxed) {
            let began = monotonic_ns();
            let _no_signal = SignalBlocked::new();
            // SAFETY: the signal is blocked on this thread, which is in the host call that is returning.
            unsafe { self.collect_awaited_language(Reading::Standing) };
            // SAFETY: as above.
            unsafe { self.charge(began) };
        }
        self.in_host_call.store(false, Ordering::Relaxed);
    }

    /// Reads the language's stack for the samples taken during the host call that is going on, if any were.
    ///
    /// # Safety
    /// As for [`Self::collect_language`], in a host call, and the handler cannot run.
    pub(super) unsafe fn collect_awaited_language(&self, reading: Reading) {
        self.awaits_language.store(false, Ordering::Relaxed);
        let header = Header {
            time_ns: monotonic_ns(),
            cpu_ns: 0,
            period_ns: 0,
            host_call: self.host_call(),
            pause_ns: 0,
            state: State::Host,
            kind: Kind::Language,
        };
        let stack = self.stack();
        let _locked = self.lock();
        // SAFETY: the handler cannot run and the ticker is locked out, so nobody else is pushing or walking; the thread
        // is in the host call whose stack is walked.
        let pushed = unsafe {
            self.ring.push(|words| {
                header.write(
                    words,
                    |frames| stack.walk_blocked(frames),
                    |frames, words| self.collect_language(frames, reading, words),
                    |_| (),
                )
            })
        };
        // Without it the samples keep their wasm frames, and say so.
        let _ = pushed;
    }

    /// Sets the language's walker. To be called on the guest's thread, outside wasm.
    pub(super) fn set_language(&self, language: LanguageWalk) {
        let _no_signal = SignalBlocked::new();
        if language.names_while_running() {
            self.naming.is_answered();
        }
        // SAFETY: the handler is the only other user, and the signal is blocked.
        unsafe { *self.language.get() = Some(language) };
        self.has_language.store(true, Ordering::Relaxed);
    }

    /// Takes the walker back.
    ///
    /// # Safety
    /// No sample may be taken any more: the ticker has ended and its last signal has been handled, or the thread has
    /// left.
    pub(super) unsafe fn take_language(&self) -> Option<LanguageWalk> {
        // SAFETY: the caller's promise.
        unsafe { (*self.language.get()).take() }
    }
}

/// Installs the handler, once in the life of the process. It does nothing on threads that run no guest.
fn install_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    INSTALLED.get_or_init(|| try_install_handler().map_err(|error| error.to_string())).clone().map_err(io::Error::other)
}

fn try_install_handler() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid one with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks for the action that is installed.
    if unsafe { libc::sigaction(SIGNAL, std::ptr::null(), &mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
        return Err(io::Error::other("another profiler in this process handles SIGPROF"));
    }
    // SAFETY: as above.
    action = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // ONSTACK: the guest's own stack may be almost used up. Wasmtime gives its threads an alternate stack of 256 KiB, but
    // only when told so early (`Engine::tls_eager_initialize`): Rust's own is too small.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is complete, and the handler is async-signal-safe.
    if unsafe { libc::sigaction(SIGNAL, &action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn handler(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let current = CURRENT.get();
    if current.is_null() {
        return;
    }
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: a thread leaves before its `GuestThread` goes, and the context is that of a SA_SIGINFO handler.
    unsafe { (*current).sample(Registers::interrupted(context)) };
    // SAFETY: as above; interrupted code must not see a changed errno.
    unsafe { *libc::__errno_location() = errno };
}
