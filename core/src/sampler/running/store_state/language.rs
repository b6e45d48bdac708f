//! The language of a store's guest: its walker, when that is asked, and what samples await of it.

use super::super::super::os::clock::own_cpu_ns;
use super::super::super::os::own_thread::SignalBlocked;
use super::super::super::reading::{Entry, Kind, LanguageWalk, Reading, Reads};
use super::super::slot::ThreadSlot;
use super::StoreState;
use std::sync::atomic::Ordering;
use wlprof_walk::{Dump, FrameWord};

impl StoreState {
    /// The host call of `entry`, whose samples await the language's stack, is returning.
    #[cold]
    #[inline(never)]
    pub(super) fn returning_to_samples(&self, entry: &Entry<'_>, slot: &ThreadSlot) {
        let began_ns = own_cpu_ns();
        let _no_signal = SignalBlocked::new();
        let _locked = self.lock();
        // Whoever ends sampling waits for the lock, and then gives the rings to the drain.
        if !slot.is_stopped() {
            // SAFETY: the signal is blocked on this thread, which is in the host call that is returning, and the store is locked.
            unsafe { self.collect_awaited_language(entry, slot, Reading::Standing) };
        }
        slot.charge(began_ns, self.has_walk_panicked());
        slot.leave_out(began_ns);
    }

    /// Wasm is about to be called, none of which was open while samples were taken: the language's memory is as it was then.
    #[cold]
    #[inline(never)]
    pub(super) fn calling_tasks(&self, slot: &ThreadSlot) {
        self.awaits_tasks.store(false, Ordering::Relaxed);
        let began_ns = own_cpu_ns();
        let header = self.header(Kind::Language, 0, 0);
        let _no_signal = SignalBlocked::new();
        {
            let _locked = self.lock();
            if slot.is_stopped() {
                return;
            }
            // SAFETY: the signal is blocked on this thread, the store's, so nobody else is pushing; its wasm has not begun, and the
            // store is locked.
            let walk =
                |frames: &[u64], words: &mut [u64]| unsafe { self.collect_language(frames, Reading::Standing, words) };
            // SAFETY: the signal is blocked on this thread, the ring's own, so nobody else is pushing. Without room the samples stay as
            // they are, and say so.
            let _ = unsafe { slot.ring.push(|words| header.write(words, |_| Ok(()), walk, |_| ())) };
        }
        slot.charge(began_ns, self.has_walk_panicked());
        slot.leave_out(began_ns);
    }

    /// An entry has ended within a host call, by a trap or because it was given up: samples of it await no language's stack any
    /// more.
    pub(super) fn nothing_will_come(&self, entry: u64, slot: &ThreadSlot) {
        let header = self.header(Kind::Ended, entry, 0);
        let _no_signal = SignalBlocked::new();
        let _locked = self.lock();
        if slot.is_stopped() {
            return;
        }
        // If there is no room for it, they wait until the store goes.
        // SAFETY: the signal is blocked on this thread, the ring's own, so nobody else is pushing.
        let _ = unsafe { slot.ring.push(|words| header.write(words, |_| Ok(()), |_, _| 0, |_| ())) };
    }

    /// The open entries whose samples await the language's stack.
    pub(in crate::sampler) fn awaiting(&self) -> impl Iterator<Item = Entry<'_>> {
        self.activations.all().filter(Entry::awaits_language)
    }

    /// Reads the language's stack for the samples taken during the host call of `entry` that is going on, if any were.
    ///
    /// # Safety
    /// * As for [`Self::write_awaited_language`].
    /// * Nothing else may push into the ring of `slot` meanwhile: the handler must not be able to run on its thread.
    pub(in crate::sampler) unsafe fn collect_awaited_language(
        &self,
        entry: &Entry<'_>,
        slot: &ThreadSlot,
        reading: Reading,
    ) {
        if !entry.set_awaits_language(false) {
            // Whoever ends sampling was here first.
            return;
        }
        // SAFETY: nothing else pushes into the ring, and the guest is in the host call of `entry`, with the store locked (see # Safety).
        let pushed = unsafe { slot.ring.push(|words| self.write_awaited_language(entry, reading, words)) };
        // Without it the samples keep their wasm frames, and say so.
        let _ = pushed;
    }

    /// Writes the language's stack for the samples taken during the host call of `entry` that is going on, and gives the number of
    /// words.
    ///
    /// # Safety
    /// * As for [`Self::collect_language`].
    /// * The guest must be in the host call of `entry`, and the store locked.
    pub(in crate::sampler) unsafe fn write_awaited_language(
        &self,
        entry: &Entry<'_>,
        reading: Reading,
        words: &mut [u64],
    ) -> usize {
        let header = self.header(Kind::Language, entry.number(), entry.host_call());
        let stack = self.stack(if reading == Reading::Beside { Reads::ThroughKernel } else { Reads::InPlace });
        header.write(
            words,
            // SAFETY: the guest is in the host call whose stack is walked, and its store is alive (see # Safety). From beside, the kernel
            // reads the stack.
            |frames| unsafe { stack.walk_blocked(frames) },
            // SAFETY: the guest waits in this host call, as `reading` says, and the store is locked, so nobody else uses the walker
            // (see # Safety).
            |frames, words| unsafe { self.collect_language(frames, reading, words) },
            |_| (),
        )
    }

    /// Whether a sample in host code that `entry` has called, or nobody, is whole, or waits for the language's stack.
    pub(in crate::sampler) fn kind_of_host_sample(&self, entry: Option<&Entry<'_>>) -> Kind {
        if !self.has_language.load(Ordering::Relaxed) {
            return Kind::Sample;
        }
        match entry {
            Some(entry) if entry.host_call() != 0 => {
                entry.set_awaits_language(true);
            }
            // All that are open are suspended: what runs is the host alone.
            None if self.activations.any() => return Kind::Sample,
            None if self.reads_tasks.load(Ordering::Relaxed) => {
                self.awaits_tasks.store(true, Ordering::Relaxed);
                return Kind::AwaitsTasks;
            }
            // None is open: the guest has no stack.
            None => return Kind::Sample,
            Some(_) => {}
        }
        Kind::AwaitsLanguage
    }

    /// How the guest is read if the thread, in host code with these frames of wasm below, is on the way from wasm to an imported function
    /// or back, or in a builtin such as `memory.copy`, of which the call hook knows nothing. The guest stands still there and can be read,
    /// but the interrupted code may be the allocator's, and `memory.grow` may be moving the memory.
    ///
    /// # Safety
    /// Call this in the handler only, on the thread that runs the store.
    pub(in crate::sampler) unsafe fn between_wasm_and_host_call(&self, frames: &[u64]) -> Option<Reading> {
        const MEMORY_GROW: u8 = 0x40;
        let leaf = *frames.first()?;
        if !self.is_in_wasm() {
            // Then a dump may be being made from another thread.
            return None;
        }
        // SAFETY: the handler runs on the guest's thread.
        let language = unsafe { &*self.language.get() };
        language.as_ref().filter(|language| language.walks_without_allocating())?;
        Some(match self.shared.opcode_at(FrameWord(leaf).native_pc())? {
            MEMORY_GROW => Reading::InterruptedGrowth,
            _ => Reading::InterruptedHost,
        })
    }

    /// Adds the language's stack to a record.
    ///
    /// # Safety
    /// * The store must be alive, and its wasm must not run before this returns.
    /// * Unless `reading` is [`Reading::Beside`], call this on the thread that runs the store. Unless it is that or
    ///   [`Reading::InterruptedGrowth`], nothing may move or free the memory meanwhile.
    /// * Nobody else may use the walker meanwhile. Call this with the store locked, and on the store's own thread with the signal blocked;
    ///   or in the handler, where wasm or host code between wasm and the call hook was interrupted.
    pub(in crate::sampler) unsafe fn collect_language(
        &self,
        frames: &[u64],
        reading: Reading,
        words: &mut [u64],
    ) -> usize {
        // SAFETY: nobody else uses the walker meanwhile (see # Safety), so this is the only reference to it.
        match unsafe { &mut *self.language.get() } {
            Some(language) => {
                // SAFETY: the store is alive and its wasm does not run before this returns; `reading` says from where it is read
                // (see # Safety).
                let length = unsafe { language.collect(&self.shared.code.read(), frames, reading, words) };
                self.walk_panicked.store(language.panicked_last(), Ordering::Relaxed);
                length
            }
            None => 0,
        }
    }

    /// Whether a walk of the language has ended in a panic since this was last asked.
    pub(in crate::sampler) fn has_walk_panicked(&self) -> bool {
        self.walk_panicked.load(Ordering::Relaxed) && self.walk_panicked.swap(false, Ordering::Relaxed)
    }

    /// Reads all stacks of the language; `None` if there is none to walk.
    ///
    /// # Safety
    /// * The store must be alive, and its wasm must not run before this returns.
    /// * On another thread than the store's, `through_kernel` must be set.
    /// * Nobody else may use the walker meanwhile, as for [`Self::collect_language`].
    pub(in crate::sampler) unsafe fn language_threads(
        &self,
        frames: &[u64],
        state: &str,
        through_kernel: bool,
    ) -> Option<Dump> {
        // SAFETY: nobody else uses the walker meanwhile (see # Safety), so this is the only reference to it.
        let language = unsafe { &mut *self.language.get() };
        // SAFETY: the store is alive, its wasm does not run, and another thread reads through the kernel (see # Safety).
        language
            .as_mut()
            .map(|language| unsafe { language.threads(&self.shared.code.read(), frames, state, through_kernel) })
    }

    /// Whether there is one.
    pub(in crate::sampler) fn has_language(&self) -> bool {
        self.has_language.load(Ordering::Relaxed)
    }

    /// Sets the language's walker; one that was there before walks no more. To be called on the guest's thread, outside wasm.
    pub(in crate::sampler) fn set_language(&self, language: LanguageWalk) {
        // Dropped last.
        let _before;
        let _no_signal = SignalBlocked::new();
        let _locked = self.lock();
        self.reads_tasks.store(language.reads_suspended_tasks(), Ordering::Relaxed);
        // SAFETY: the signal is blocked, so that the handler does not use it, and others do so with the store locked.
        _before = unsafe { (*self.language.get()).replace(language) };
        self.has_language.store(true, Ordering::Relaxed);
    }

    /// Ends walks.
    ///
    /// # Safety
    /// * The store must be locked: the call hook and dumps use the walker with the lock held.
    /// * The handler must not use the store any more: no signal is answered and no handler is at work, or no thread runs the store.
    pub(in crate::sampler) unsafe fn take_language(&self) -> Option<LanguageWalk> {
        // SAFETY: the store is locked and no handler uses it any more (see # Safety), so nobody else has the walker.
        unsafe { (*self.language.get()).take() }
    }
}
