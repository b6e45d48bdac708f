//! The guest's thread as the signal handler sees it, and the handler itself.

use super::super::arch::x86_64::Registers;
use super::super::dump::Dump;
use super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::os::linux::own_thread::{SIGNAL, SignalBlocked, mask, own_stack_low, voluntary_waits};
use super::super::os::linux::thread_timer::TimerClock;
use super::super::os::linux::thread_watch::own_tid;
use super::super::session::Shared;
use super::activations::OuterActivations;
use super::dump::DumpRequest;
use super::governor::{Governor, Spent};
use super::language::{LanguageWalk, Reading};
use super::naming::Naming;
use super::pace::{Expired, MAX_PERIODS, Pace};
use super::record::{Header, Kind};
use super::ring::Ring;
use super::vm_context::StoreContext;
use super::walk::{FrameWord, Stack};
use crate::recording::{Clock, State};
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
    /// The drain is reading this thread or the call hook is pushing into the ring.
    locked: AtomicBool,
    /// Counts host calls: equal numbers are one call.
    host_calls: AtomicU64,
    /// An imported function has been called by the innermost wasm and has not returned.
    in_host_call: AtomicBool,
    pub(super) pace: Pace,
    /// Touched in the handler alone.
    governor: UnsafeCell<Option<Governor>>,
    /// Wall time up to which samples stand for it, and how often the thread had waited of its own accord by then. Used with
    /// [`Clock::Wall`].
    accounted_ns: AtomicU64,
    accounted_waits: AtomicU64,
    /// The handler is at work.
    in_handler: AtomicBool,
    /// No signal is answered any more.
    stopped: AtomicBool,
    pub(super) counts: SignalCounts,
    /// CPU time in the handler, in walks when host calls return, altogether.
    pub(super) handler_ns: AtomicU64,
    /// CPU time of the thread that records.
    pub(super) drain_ns: AtomicU64,
    /// Signals that the calibration has handled.
    pub(super) handled: AtomicU64,
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

/// What became of the timers' signals.
#[derive(Default)]
pub(super) struct SignalCounts {
    /// All of them.
    pub(super) fired: AtomicU64,
    /// The thread had been without a processor.
    pub(super) preempted: AtomicU64,
    /// The thread had been waiting.
    pub(super) waited: AtomicU64,
    /// The ring had no room.
    pub(super) ring_full: AtomicU64,
    /// Sum of the periods that the governor had set when they fired, in nanoseconds.
    pub(super) periods_ns: AtomicU64,
}

/// Adds to a counter that one thread alone writes.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

// SAFETY: beside `language`, `governor` and what `pace` keeps for the handler, everything is atomic or synchronized by
// itself; the latter two are touched on the guest's thread only. `language` is touched on the guest's thread
// (handler and hook exclude each other by blocking the signal), by a dump from another one while that is in a host call
// (where neither touches it), and, when sampling has ended and no dump is being made, by whoever takes it.
unsafe impl Sync for GuestThread {}

/// How often the governor looks, in signals.
const GOVERN_EVERY: u64 = 32;

/// A look at a thread that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    /// Its CPU time.
    pub(super) cpu_ns: u64,
    /// The time that a sample of it stands for; 0 if it is none.
    pub(super) weight_ns: u64,
}

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
            pace: Pace::new()?,
            governor: UnsafeCell::new(None),
            accounted_ns: AtomicU64::new(0),
            accounted_waits: AtomicU64::new(0),
            in_handler: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            counts: SignalCounts::default(),
            handler_ns: AtomicU64::new(0),
            drain_ns: AtomicU64::new(0),
            handled: AtomicU64::new(0),
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

    /// Ends the calibration: from here on signals are samples. `interrupt_ns` is what one costs. To be called on the guest's
    /// thread.
    pub(super) fn start(&self, interrupt_ns: u64) {
        self.pace.stop();
        let governor = Governor::new(&self.shared.options, interrupt_ns);
        let period_ns = governor.period_ns();
        {
            let _no_signal = SignalBlocked::new();
            // SAFETY: the handler is the only other user, and the signal is blocked.
            unsafe { *self.governor.get() = Some(governor) };
        }
        self.started_ns.store(monotonic_ns(), Ordering::Relaxed);
        self.started_cpu_ns.store(own_cpu_ns(), Ordering::Relaxed);
        self.accounted_ns.store(monotonic_ns(), Ordering::Relaxed);
        self.accounted_waits.store(voluntary_waits(), Ordering::Relaxed);
        self.calibrating.store(false, Ordering::SeqCst);
        self.pace.start(period_ns);
    }

    /// Ends recording on this thread, which must be the one that entered.
    pub(super) fn leave(&self) {
        CURRENT.set(std::ptr::null());
        self.pace.stop();
        self.dump.guest_goes_on();
        // The drain may be reading this thread's stack and store, which end after this.
        let _locked = self.lock();
        self.ended_ns.store(monotonic_ns(), Ordering::Relaxed);
        self.ended_cpu_ns.store(own_cpu_ns(), Ordering::Relaxed);
        self.detached.store(true, Ordering::Release);
    }

    /// No signal is answered any more, from any thread. The handler may still be at work: [`GuestThread::is_in_handler`].
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.pace.stop();
    }

    /// Whether the handler is at work, on a thread that has been stopped.
    pub(super) fn is_in_handler(&self) -> bool {
        self.in_handler.load(Ordering::SeqCst)
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

    /// Has the handler run soon, for a dump or a halt that waits for it. Interrupts what the thread waits for: to be called
    /// where it runs.
    pub(super) fn interrupt(&self) {
        // SAFETY: plain system call. If the thread has ended there is none of that number in this process, or a new one,
        // whose handler does nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.tid, SIGNAL) };
    }

    /// Whether there is nothing more to sample: the thread has left, or stays where it is.
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

    /// Answers a signal that interrupted this thread with these registers. Async-signal-safe.
    ///
    /// # Safety
    /// To be called in the handler alone, with its second argument.
    unsafe fn answer(&self, info: *const libc::siginfo_t, registers: Registers) {
        self.in_handler.store(true, Ordering::SeqCst);
        if !self.stopped.load(Ordering::SeqCst) {
            // SAFETY: the caller's promise.
            match unsafe { TimerClock::of_signal(info) } {
                Some(_) if self.calibrating.load(Ordering::Relaxed) => add(&self.handled, 1),
                // SAFETY: the handler runs on the guest's thread.
                Some(timer) => unsafe { self.expired(timer, registers) },
                // Anyone may send this signal. It counts if a dump or a halt waits for it.
                None => {}
            }
            if self.shared.code.contains(registers.pc) {
                // SAFETY: the handler runs on the guest's thread, in compiled code: nobody else has the walker.
                unsafe { self.dump_interrupted(registers) };
            }
        }
        self.in_handler.store(false, Ordering::SeqCst);
        if self.shared.code.contains(registers.pc) {
            // In compiled code the thread holds no lock of the host's.
            self.stay_if_halted();
        }
    }

    /// Takes a sample, if the timer that has expired calls for one.
    ///
    /// # Safety
    /// To be called in the handler alone.
    unsafe fn expired(&self, timer: TimerClock, registers: Registers) {
        let cpu_ns = own_cpu_ns();
        let in_guest = self.shared.code.contains(registers.pc);
        add(&self.counts.fired, 1);
        let used_ns = match self.pace.expired(timer, cpu_ns, in_guest) {
            Expired::Preempted => return add(&self.counts.preempted, 1),
            Expired::Waited => return add(&self.counts.waited, 1),
            Expired::Sample { used_ns } => used_ns,
        };
        let period_ns = self.pace.period_ns();
        add(&self.counts.periods_ns, period_ns);
        // SAFETY: passed on to the caller.
        let pushed = unsafe { self.sample(registers, cpu_ns, self.weight(used_ns, in_guest)) };
        if !pushed {
            add(&self.counts.ring_full, 1);
        }
        // SAFETY: the walker is this handler's, as for the sample.
        unsafe { self.charge(cpu_ns) };
        let now_ns = own_cpu_ns();
        // SAFETY: the handler runs on the guest's thread, and nothing else touches it after the start.
        let governor = unsafe { &mut *self.governor.get() };
        let period_ns = governor.as_mut().map_or(period_ns, |governor| {
            if self.counts.fired.load(Ordering::Relaxed).is_multiple_of(GOVERN_EVERY) {
                governor.adjust(self.spent(now_ns));
            }
            governor.period_ns()
        });
        self.pace.sampled(now_ns, period_ns);
    }

    /// What has been spent on sampling so far.
    fn spent(&self, cpu_ns: u64) -> Spent {
        Spent {
            signals: self.counts.fired.load(Ordering::Relaxed),
            sampling_ns: self.handler_ns.load(Ordering::Relaxed) + self.drain_ns.load(Ordering::Relaxed),
            guest_ns: cpu_ns.saturating_sub(self.started_cpu_ns.load(Ordering::Relaxed)),
        }
    }

    /// What the user should know of the rate. To be called when no signal is answered any more.
    ///
    /// # Safety
    /// The handler must not be at work, nor begin to be.
    pub(super) unsafe fn rate_note(&self) -> Option<String> {
        // SAFETY: the caller's promise.
        unsafe { &*self.governor.get() }.as_ref()?.note()
    }

    /// The time that a sample stands for, of a thread that has used so much CPU time since the last. With [`Clock::Wall`]
    /// what it has waited for a processor is added, if it has not waited for anything else meanwhile: then it stood where
    /// it was without one. Its other waits are seen from outside.
    fn weight(&self, used_ns: u64, in_guest: bool) -> u64 {
        let most_ns = if in_guest { MAX_PERIODS * self.pace.period_ns() } else { u64::MAX };
        let used_ns = used_ns.min(most_ns);
        if self.shared.options.clock == Clock::Cpu {
            return used_ns;
        }
        let (now_ns, waits) = (monotonic_ns(), voluntary_waits());
        let since_ns = now_ns.saturating_sub(self.accounted_ns.load(Ordering::Relaxed));
        let has_waited = waits != self.accounted_waits.load(Ordering::Relaxed);
        self.accounted_ns.store(now_ns, Ordering::Relaxed);
        self.accounted_waits.store(waits, Ordering::Relaxed);
        if has_waited { used_ns } else { since_ns.max(used_ns) }
    }

    /// Takes a sample of this thread, interrupted with these registers, that stands for `weight_ns`. `false`: the ring is
    /// full.
    ///
    /// # Safety
    /// To be called in the handler alone.
    unsafe fn sample(&self, registers: Registers, cpu_ns: u64, weight_ns: u64) -> bool {
        let began = monotonic_ns();
        let in_guest = self.shared.code.contains(registers.pc);
        let header = Header {
            time_ns: began,
            cpu_ns,
            weight_ns,
            period_ns: self.pace.period_ns(),
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
        // SAFETY: the handler is the ring's one producer while the call hook, which blocks the signal for its own, is not
        // in it; and the registers are those of this thread, which stands still.
        unsafe {
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
                        header.pause_ns = own_cpu_ns().saturating_sub(cpu_ns);
                    },
                )
            })
        }
    }

    /// Counts the CPU time since `began_ns` as a cost of sampling, which the governor bounds.
    ///
    /// # Safety
    /// Nobody else may have the walker.
    unsafe fn charge(&self, began_ns: u64) {
        // SAFETY: the caller's promise.
        let is_accident = unsafe { &*self.language.get() }.as_ref().is_some_and(LanguageWalk::panicked_last);
        // Such a walk may take seconds, and there are but a few: it says nothing of what the next sample costs.
        if !is_accident {
            add(&self.handler_ns, own_cpu_ns().saturating_sub(began_ns));
        }
    }

    /// Reads where the thread waits, from the drain's thread, into `words`, and gives the record's length. `None`: it does
    /// not wait there any more, or has left.
    ///
    /// # Safety
    /// The thread must have been seen blocked. If it wakes meanwhile the frames are meaningless: `still_blocked` is asked
    /// after the walk.
    pub(super) unsafe fn capture_blocked(
        &self,
        sighting: Sighting,
        words: &mut [u64],
        still_blocked: impl FnOnce() -> bool,
    ) -> Option<usize> {
        let header = Header {
            time_ns: monotonic_ns(),
            cpu_ns: sighting.cpu_ns,
            weight_ns: sighting.weight_ns,
            period_ns: self.pace.period_ns(),
            host_call: self.host_call(),
            pause_ns: 0,
            state: State::Blocked,
            kind: if sighting.weight_ns > 0 { self.kind_of_host_sample() } else { Kind::Sighting },
        };
        // Who has it is awake, or is stuck in a plugin: nothing to wait for.
        let _locked = self.try_lock()?;
        if self.detached.load(Ordering::Acquire) {
            return None;
        }
        let stack = self.stack();
        // SAFETY: the thread has not left, and cannot while this is locked: its store lives and its stack is mapped.
        let length = header.write(words, |frames| unsafe { stack.walk_blocked(frames) }, |_, _| 0, |_| ());
        still_blocked().then_some(length)
    }

    /// Keeps the drain, the call hook and the end of the thread apart. Each holds it for a few microseconds.
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

    /// Whether the drain reads this thread or the call hook is at work. A call hook that stays so is stuck in a plugin.
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
        self.pace.goes_on();
        if self.awaits_language.load(Ordering::Relaxed) {
            let began = own_cpu_ns();
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
            weight_ns: 0,
            period_ns: 0,
            host_call: self.host_call(),
            pause_ns: 0,
            state: State::Host,
            kind: Kind::Language,
        };
        let stack = self.stack();
        let _locked = self.lock();
        // SAFETY: the handler cannot run, so nobody else is pushing, and the drain is locked out; the thread
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
    /// No sample may be taken any more: the handler answers none, and is not at work; or the thread has left.
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

extern "C" fn handler(_signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let current = CURRENT.get();
    if current.is_null() {
        return;
    }
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: a thread leaves before its `GuestThread` goes, and the context is that of a SA_SIGINFO handler.
    unsafe { (*current).answer(info, Registers::interrupted(context)) };
    // SAFETY: as above; interrupted code must not see a changed errno.
    unsafe { *libc::__errno_location() = errno };
}
