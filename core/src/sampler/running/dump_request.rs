//! Dumps on request: every stack that the guest has, read where the guest next stands still.
//!
//! That is in the handler of a signal, sent for it. A guest that is in host code whenever one comes is read at a host call
//! when a signal has been waited for in vain. If the guest waits in a host call, whoever asked reads it
//! meanwhile, and the call does not return to wasm before that is done.

use super::super::import_watch::WatchedCall;
use super::super::os::Activity;
use super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::os::own_thread::SignalBlocked;
use super::super::os::thread_watch::ThreadWatch;
use super::super::reading::{Entry, Reading, Reads};
use super::slot::ThreadSlot;
use super::store_state::{StoreLock, StoreState};
use super::threads::Threads;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wlprof_recording::Origin;
use wlprof_walk::{Dump, FrameWord, Frames, MAX_FRAMES, Registers, WalkTruncation};

/// How long a dump may take to come. Only operations that Wasmtime carries out in host code without telling the call
/// hook, as filling gigabytes of memory, take longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a signal that finds the guest in wasm is waited for before a host call will do.
const SIGNAL_PATIENCE_NS: u64 = 20_000_000;
/// Whoever asks looks this often, and a guest that is being read waits so long before it looks again.
const INTERVAL: Duration = Duration::from_millis(1);

const NONE: u8 = 0;
const REQUESTED: u8 = 1;
const TAKEN: u8 = 2;
const DONE: u8 = 3;

/// A dump being asked for and made.
#[derive(Default)]
pub(in crate::sampler) struct DumpRequest {
    state: AtomicU8,
    requested_ns: AtomicU64,
    dump: Mutex<Dump>,
    /// The guest is in a host call, and the call hook will look here before it goes on.
    in_host_call: AtomicBool,
}

/// The right to make the dump that was asked for. If it is dropped without one, an empty one it is.
struct DumpRight<'a>(&'a DumpRequest);

impl DumpRight<'_> {
    fn done(self, dump: Dump) {
        *self.0.dump.lock().unwrap_or_else(PoisonError::into_inner) = dump;
    }
}

impl Drop for DumpRight<'_> {
    fn drop(&mut self) {
        self.0.state.store(DONE, Ordering::SeqCst);
    }
}

impl DumpRequest {
    pub(in crate::sampler) fn is_requested(&self) -> bool {
        self.state.load(Ordering::SeqCst) == REQUESTED
    }

    fn advance(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The right to make a dump, if one has been asked for that nobody makes yet.
    fn take(&self) -> Option<DumpRight<'_>> {
        // Without a request a load is all that this costs.
        (self.is_requested() && self.advance(REQUESTED, TAKEN)).then(|| DumpRight(self))
    }

    /// The guest is in a host call from here on.
    pub(in crate::sampler) fn guest_waits(&self) {
        // Whoever sees this sees what was done before. Unlike in `guest_goes_on` no look at anything has to come after it.
        self.in_host_call.store(true, Ordering::Release);
    }

    /// The guest is about to go on: waits for whoever reads it. Either that one sees that the guest goes on, or this
    /// sees that it is being read.
    pub(in crate::sampler) fn guest_goes_on(&self) {
        self.in_host_call.store(false, Ordering::SeqCst);
        while self.state.load(Ordering::SeqCst) == TAKEN {
            std::thread::sleep(INTERVAL);
        }
    }
}

impl StoreState {
    /// Makes a dump if one is asked for, and says so. To be called in the handler, where wasm stands still.
    ///
    /// # Safety
    /// Call this in the handler, on the thread that runs the store, where compiled code was interrupted with these `registers`.
    pub(in crate::sampler) unsafe fn dump_interrupted(&self, registers: Registers) -> bool {
        let Some(taken) = self.dump.take() else { return false };
        // SAFETY: this is the handler, and it has interrupted compiled code with these registers (see # Safety). Only who has `taken` makes
        // a dump, so nobody else reads the language.
        taken.done(unsafe {
            self.read_stacks("running", false, |frames| self.stack(Reads::InPlace).walk(registers, frames))
        });
        true
    }

    /// Makes a dump if one is asked for and no signal did it. To be called by the call hook, on the guest's thread, in a host
    /// call.
    pub(in crate::sampler) fn dump_at_host_call(&self, thread: &ThreadSlot) {
        let waited = || monotonic_ns().saturating_sub(self.dump.requested_ns.load(Ordering::SeqCst));
        if !self.dump.is_requested() || waited() < SIGNAL_PATIENCE_NS {
            return;
        }
        if let Some(taken) = self.dump.take() {
            let _no_signal = SignalBlocked::new();
            let _locked = self.lock();
            let began_ns = own_cpu_ns();
            // SAFETY: the handler is blocked, the thread is in the host call whose stack is walked, and nobody else
            // reads the language.
            taken.done(unsafe {
                self.read_stacks("running", false, |frames| self.stack(Reads::InPlace).walk_blocked(frames))
            });
            thread.leave_out(began_ns);
        }
    }

    /// Reads the stacks if the guest calls an import that is watched. To be called by the call hook, on the guest's thread, in
    /// a host call, before [`DumpRequest::guest_waits`]: from there on others may read the guest.
    pub(in crate::sampler) fn dump_at_import(&self, thread: &ThreadSlot) -> Option<(WatchedCall, Dump)> {
        let watch = self.shared.options.import_watch.as_ref()?;
        let _no_signal = SignalBlocked::new();
        let began_ns = own_cpu_ns();
        let mut leaf = [0];
        // SAFETY: the handler is blocked, and the thread is in the host call whose stack is walked.
        let _ = unsafe { self.stack(Reads::InPlace).walk_blocked(&mut Frames::new(&mut leaf)) };
        let _locked = self.lock();
        let call = watch.count(self.shared.called_at(FrameWord(leaf[0]).native_pc())?)?;
        // SAFETY: the handler is blocked, the thread is in the host call whose stack is walked, and nobody else reads the
        // language.
        let dump =
            unsafe { self.read_stacks("running", false, |frames| self.stack(Reads::InPlace).walk_blocked(frames)) };
        thread.leave_out(began_ns);
        Some((call, dump))
    }

    /// Asks for a dump and waits for it, on any other thread than the guest's. One at a time.
    ///
    /// # Errors
    /// Why there is none.
    pub(in crate::sampler) fn dump(&self, threads: &Threads) -> Result<Dump, String> {
        let since = Instant::now();
        self.dump.requested_ns.store(monotonic_ns(), Ordering::SeqCst);
        // Somebody else may read the guest: another dump, or a window that ends.
        while !self.dump.advance(NONE, REQUESTED) {
            if since.elapsed() > PATIENCE {
                return Err("another dump is being made".to_owned());
            }
            std::thread::sleep(INTERVAL);
        }
        let mut watched: Option<(Arc<ThreadSlot>, Option<ThreadWatch>)> = None;
        loop {
            let runs = |slot: &ThreadSlot| std::ptr::eq(slot.current(), self);
            if !watched.as_ref().is_some_and(|(slot, _)| runs(slot)) {
                let slot = threads.slots().into_iter().find(|slot| runs(slot));
                watched = slot.map(|slot| (slot.clone(), ThreadWatch::new(slot.tid).ok()));
            }
            match &watched {
                Some((slot, Some(watch))) => match watch.look().0 {
                    Activity::Blocked => self.dump_beside(),
                    Activity::Running | Activity::Queued => slot.interrupt(),
                    Activity::Stuck | Activity::Dead => {}
                },
                // Nobody sees whether it waits: it is read where it calls the host.
                Some((slot, None)) => slot.interrupt(),
                // It is suspended, if it is anywhere.
                None => self.dump_beside(),
            }
            if self.dump.state.load(Ordering::SeqCst) == DONE {
                let dump = std::mem::take(&mut *self.dump.dump.lock().unwrap_or_else(PoisonError::into_inner));
                self.dump.state.store(NONE, Ordering::SeqCst);
                return Ok(dump);
            }
            let is_over = !self.is_alive() || watched.as_ref().is_some_and(|(slot, _)| slot.is_halted());
            if watched.is_none() && !self.is_open() && self.dump.advance(REQUESTED, NONE) {
                // It runs nowhere, and has no stacks.
                return if is_over { Err("the guest has ended".to_owned()) } else { Ok(Dump::default()) };
            }
            if (is_over || since.elapsed() > PATIENCE) && self.dump.advance(REQUESTED, NONE) {
                let reason = if is_over { "the guest has ended" } else { "the guest has not stopped for five seconds" };
                return Err(reason.to_owned());
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Reads the guest from another thread, if it is in a host call.
    fn dump_beside(&self) {
        if !self.dump.in_host_call.load(Ordering::SeqCst) {
            return;
        }
        let Some(taken) = self.dump.take() else { return };
        if self.dump.in_host_call.load(Ordering::SeqCst) {
            let _locked = self.lock();
            let stack = self.stack(Reads::ThroughKernel);
            // SAFETY: the guest was in a host call after this was taken, and does not go on in wasm before it is done:
            // its store lives, and whoever walks the language in that host call waits for the lock. What host code may do to its memory
            // meanwhile, the kernel's reads survive.
            let dump = unsafe { self.read_stacks("in a host call", true, |frames| stack.walk_blocked(frames)) };
            taken.done(dump);
        } else {
            // The guest goes on; it can be asked again.
            std::mem::forget(taken);
            self.dump.state.store(REQUESTED, Ordering::SeqCst);
        }
    }

    /// Reads, from another thread, the language's stack of the host call that is going on, if samples await it, into `words`, and
    /// gives the number of words. The samples to come of it await it still.
    pub(in crate::sampler) fn read_awaited_beside(&self, words: &mut [u64]) -> Option<usize> {
        // SAFETY: the guest is in a host call and does not go on in wasm before this is done, and no handler walks its language
        // there.
        self.beside_host_call(|entry| unsafe { self.write_awaited_language(entry, Reading::Beside, words) })
    }

    /// Gives the samples of host calls that are not to return before the run is over the language's stack, into the ring of
    /// `slot`.
    ///
    /// # Safety
    /// No more signals are sent, and the last has been handled, on that thread and those that run the store.
    pub(in crate::sampler) unsafe fn collect_awaited_beside(&self, slot: &ThreadSlot) {
        // SAFETY: the guest is in a host call and does not go on in wasm before this is done; there is no handler.
        self.beside_host_call(|entry| unsafe { self.collect_awaited_language(entry, slot, Reading::Beside) });
    }

    /// Does `read` while the guest is in a host call whose samples await the language's stack, and keeps it from going on in wasm
    /// meanwhile. `None` if it is in none, or somebody else reads it.
    fn beside_host_call<R>(&self, read: impl FnOnce(&Entry<'_>) -> R) -> Option<R> {
        if self.awaiting().next().is_none() || !self.dump.advance(NONE, TAKEN) {
            return None;
        }
        let taken = DumpRight(&self.dump);
        // Whoever has the lock is the call hook, about to do it.
        let is_there = |_: &StoreLock<'_>| self.dump.in_host_call.load(Ordering::SeqCst) && self.is_alive();
        let read = self.try_lock().filter(is_there).and_then(|_locked| {
            // SAFETY: the store is locked and alive (checked): `close`, which comes before it goes, waits for the lock.
            let entry = unsafe { self.waiting_entry() }.filter(Entry::awaits_language)?;
            Some(read(&entry))
        });
        drop(taken);
        self.dump.state.store(NONE, Ordering::SeqCst);
        read
    }

    /// # Safety
    /// * The store must be alive, and its wasm must not run before this returns.
    /// * On another thread than the store's, `through_kernel` must be set.
    /// * Nobody else may use the walker meanwhile, as for [`StoreState::collect_language`].
    unsafe fn read_stacks(
        &self,
        state: &str,
        through_kernel: bool,
        walk: impl FnOnce(&mut Frames<'_>) -> Result<(), WalkTruncation>,
    ) -> Dump {
        let mut words = vec![0; MAX_FRAMES];
        let mut frames = Frames::new(&mut words);
        // Frames are shown as far as there are any.
        let _ = walk(&mut frames);
        let _ = frames.finish();
        let (length, leaves) = (frames.len(), frames.leaves());
        let words = &words[..length];
        // SAFETY: the store is alive, its wasm does not run, and nobody else uses the walker (see # Safety).
        let of_language = unsafe { self.language_threads(&words[..leaves], state, through_kernel) };
        let has_language = of_language.is_some();
        if let Some(dump) = of_language.filter(|dump| !dump.threads.is_empty()) {
            return dump;
        }
        let note = "the stack of the guest's language could not be read; this is the wasm stack";
        let frames = words.iter().filter_map(|&word| match FrameWord(word) {
            FrameWord::ELIDED => Some(Origin::Elided),
            word => self.shared.code.origin(word.native_pc()),
        });
        Dump { note: has_language.then(|| note.to_owned()), ..Dump::of_wasm("guest", state, frames) }
    }
}
