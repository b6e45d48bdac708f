//! A store whose guest is sampled, as the signal handler sees it: where wasm runs in it, what it calls, and the walker of its
//! language.

use super::super::dump::Dump;
use super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::os::linux::own_thread::{SignalBlocked, own_stack_low};
use super::super::session::Shared;
use super::activations::OuterActivations;
use super::dump::DumpRequest;
use super::language::{LanguageWalk, Reading};
use super::naming::Naming;
use super::record::{Header, Kind};
use super::ring::Ring;
use super::slot::ThreadSlot;
use super::vm_context::StoreContext;
use super::walk::{FrameWord, Stack};
use crate::recording::State;
use std::cell::UnsafeCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A store that runs a guest.
pub(super) struct StoreState {
    pub(super) shared: Arc<Shared>,
    context: StoreContext,
    /// Lowest address of the stack that its wasm runs on.
    stack_low: usize,
    outer: OuterActivations,
    /// The walker of the guest's language. Touched on the guest's thread, by a dump that keeps that from going on, and
    /// by whoever takes it when that is stopped for good.
    language: UnsafeCell<Option<LanguageWalk>>,
    has_language: AtomicBool,
    pub(super) naming: Naming,
    pub(super) dump: DumpRequest,
    /// The last walk of the language ended in a panic.
    walk_panicked: AtomicBool,
    /// Samples of the host call that is going on await the language's stack.
    awaits_language: AtomicBool,
    /// The drain is reading this store or the call hook is reading its language.
    locked: AtomicBool,
    /// Counts host calls: equal numbers are one call.
    host_calls: AtomicU64,
    /// An imported function has been called by the innermost wasm and has not returned.
    in_host_call: AtomicBool,
}

// SAFETY: beside `language` everything is atomic or synchronized by itself. `language` is touched on the guest's thread
// (handler and hook exclude each other by blocking the signal), by a dump from another one while that is in a host call
// (where neither touches it), and, when sampling has ended and no dump is being made, by whoever takes it.
unsafe impl Sync for StoreState {}

/// Keeps a store locked.
pub(super) struct Locked<'a>(&'a AtomicBool);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl StoreState {
    /// A store whose guest is to run on the calling thread.
    ///
    /// # Errors
    /// If the thread's stack cannot be found.
    pub(super) fn new(shared: Arc<Shared>, context: StoreContext) -> io::Result<Self> {
        Ok(Self {
            shared,
            context,
            stack_low: own_stack_low()?,
            outer: OuterActivations::new(),
            language: UnsafeCell::new(None),
            has_language: AtomicBool::new(false),
            naming: Naming::default(),
            dump: DumpRequest::default(),
            walk_panicked: AtomicBool::new(false),
            awaits_language: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            host_calls: AtomicU64::new(0),
            in_host_call: AtomicBool::new(false),
        })
    }

    /// To be called when the host enters wasm: what the store says is about to be replaced.
    pub(super) fn calling_wasm(&self) {
        self.dump.guest_goes_on();
        // SAFETY: the hook runs within the store.
        self.outer.push(unsafe { self.context.activation() });
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
    pub(super) fn calling_host(&self, slot: &ThreadSlot) {
        // One thread writes it, so no read-modify-write is needed.
        self.host_calls.store(self.host_calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.in_host_call.store(true, Ordering::Relaxed);
        self.dump_at_host_call(slot);
        let at_import = self.dump_at_import(slot);
        self.dump.guest_waits();
        // Whoever is told may wait for someone who asks for a dump: that can be made from here on.
        if let (Some((call, dump)), Some(watch)) = (at_import, &self.shared.options.import_watch) {
            watch.tell(call, dump);
        }
    }

    /// To be called when a host call returns to wasm.
    pub(super) fn returning_from_host(&self, slot: &ThreadSlot) {
        self.dump.guest_goes_on();
        if self.awaits_language.load(Ordering::Relaxed) {
            let began_ns = own_cpu_ns();
            let _no_signal = SignalBlocked::new();
            let _locked = self.lock();
            // SAFETY: the signal is blocked on this thread, which is in the host call that is returning, and the store is
            // locked.
            unsafe { self.collect_awaited_language(&slot.ring, Reading::Standing) };
            slot.charge(began_ns, self.has_walk_panicked());
            slot.leave_out(began_ns);
        }
        self.in_host_call.store(false, Ordering::Relaxed);
        slot.pace.goes_on();
    }

    /// Reads the language's stack for the samples taken during the host call that is going on, if any were.
    ///
    /// # Safety
    /// As for [`Self::collect_language`], in a host call, with the store locked, and the handler cannot run.
    pub(super) unsafe fn collect_awaited_language(&self, ring: &Ring, reading: Reading) {
        if !self.awaits_language.swap(false, Ordering::Relaxed) {
            // Whoever ends sampling was here first.
            return;
        }
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
        // SAFETY: the handler cannot run, so nobody else is pushing; the thread is in the host call whose stack is walked.
        let pushed = unsafe {
            ring.push(|words| {
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

    /// What a walk of this store's wasm reads.
    pub(super) fn stack(&self) -> Stack<'_> {
        Stack {
            code: &self.shared.code,
            store: self.context,
            low: self.stack_low,
            in_host_call: self.in_host_call.load(Ordering::Relaxed),
            outer: &self.outer,
        }
    }

    /// Number of the imported function's call that is going on; 0 if none is.
    pub(super) fn host_call(&self) -> u64 {
        if self.in_host_call.load(Ordering::Relaxed) { self.host_calls.load(Ordering::Relaxed) } else { 0 }
    }

    /// Keeps the drain, the call hook and the end of the thread apart. Each holds it for a few microseconds.
    pub(super) fn lock(&self) -> Locked<'_> {
        loop {
            match self.try_lock() {
                Some(locked) => return locked,
                None => std::thread::yield_now(),
            }
        }
    }

    /// The lock, if nobody has it.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        (!self.locked.swap(true, Ordering::Acquire)).then(|| Locked(&self.locked))
    }

    /// Whether the drain reads this thread or the call hook is at work. A call hook that stays so is stuck in a plugin.
    pub(super) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }

    /// Whether a sample in host code is whole, or waits for the language's stack.
    pub(super) fn kind_of_host_sample(&self) -> Kind {
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
    pub(super) unsafe fn is_between_wasm_and_host_call(&self, frames: &[u64]) -> bool {
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
    pub(super) unsafe fn collect_language(&self, frames: &[u64], reading: Reading, words: &mut [u64]) -> usize {
        // SAFETY: the caller's promise: nobody else has it.
        match unsafe { &mut *self.language.get() } {
            Some(language) => {
                // SAFETY: passed on to the caller.
                let length = unsafe { language.collect(&self.shared.code, frames, reading, words) };
                self.walk_panicked.store(language.panicked_last(), Ordering::Relaxed);
                length
            }
            None => 0,
        }
    }

    /// Whether a walk of the language has ended in a panic since this was last asked.
    pub(super) fn has_walk_panicked(&self) -> bool {
        self.walk_panicked.load(Ordering::Relaxed) && self.walk_panicked.swap(false, Ordering::Relaxed)
    }

    /// Whether the innermost wasm runs, or something that it calls without telling the call hook.
    pub(super) fn is_in_wasm(&self) -> bool {
        self.outer.any() && !self.in_host_call.load(Ordering::Relaxed)
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

    /// Has the language's walker name a few of the frames that it found.
    ///
    /// # Safety
    /// As for [`Self::collect_language`].
    pub(super) unsafe fn name_frames(&self) {
        // SAFETY: the caller's promise.
        if let Some(language) = unsafe { &mut *self.language.get() } {
            language.name(&self.naming);
        }
    }
}
