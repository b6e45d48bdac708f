//! What the guest of a store allocates: where the stacks of that are read, and what its language's runtime has counted.

use super::super::super::heap::{CountedHeap, StoreHeap};
use super::super::super::os::clock::monotonic_ns;
use super::super::super::os::own_thread::SignalBlocked;
use super::super::super::reading::{Header, Kind, Reading, Reads};
use super::StoreState;
use crate::heap::Rate;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl StoreState {
    /// Its heap, which is profiled from here on.
    pub(in crate::sampler) fn heap(&self, rate: Rate) -> &Arc<StoreHeap> {
        self.heap.get_or_init(|| self.shared.heaps.of(self.number, rate))
    }

    /// Its wasm is having linear memory grow by so many bytes: to be called before that is done, within the instruction.
    pub(in crate::sampler) fn memory_grows(&self, bytes: u64) {
        if let Some(heap) = self.heap.get() {
            heap.grew(bytes, |words| self.write_stack(words));
        }
    }

    /// Has what the language's runtime counts of what the guest allocates be read from here on.
    pub(in crate::sampler) fn set_counted_heap(&self, heap: CountedHeap) {
        // A store has one heap.
        let _ = self.counted_heap.set(heap);
    }

    /// Reads what the language's runtime has counted, if it counts. To be called on the store's thread, outside wasm: in a host call of the
    /// guest's before anybody else may read it, or when none of its wasm runs.
    #[cold]
    #[inline(never)]
    pub(in crate::sampler) fn read_counted_heap(&self) {
        let Some(counted) = self.counted_heap.get() else { return };
        let began_ns = monotonic_ns();
        let _no_signal = SignalBlocked::new();
        let _locked = self.lock();
        // Whoever ends sampling waits for the lock, and then takes the walker.
        if self.threads.upgrade().is_none_or(|threads| threads.is_stopped()) || !self.is_alive() {
            return;
        }
        // SAFETY: the signal is blocked on this thread, the store's, and the store is locked.
        let Some(language) = (unsafe { &mut *self.language.get() }) else { return };
        // SAFETY: none of the guest's wasm runs meanwhile.
        if let Ok(buckets) = unsafe { language.heap_profile() } {
            let header = Header { time_ns: 0, memory_bytes: 0, ..self.header(Kind::Language, 0, 0) };
            counted.heap.counted(&buckets, |bucket, words| {
                header.write(words, |_| Ok(()), |_, words| language.write_bucket(bucket, words), |_| ())
            });
        }
        counted.was_read(began_ns);
    }

    /// Writes the stack of the host call, or of the builtin of Wasmtime's, that its wasm is in, with the language's, as a record that is equal
    /// for equal stacks. Gives the number of words. To be called in that call, on its thread.
    pub(in crate::sampler) fn write_stack(&self, words: &mut [u64]) -> usize {
        let header = Header { time_ns: 0, memory_bytes: 0, ..self.header(Kind::Language, 0, 0) };
        let stack = self.stack(Reads::InPlace);
        let walks_language = self.has_language.load(Ordering::Relaxed);
        header.write(
            words,
            // SAFETY: the thread is in the host call whose stack is walked; the store is alive while its host calls run.
            |frames| if self.is_alive() { unsafe { stack.walk_blocked(frames) } } else { Ok(()) },
            |frames, words| {
                if !walks_language {
                    return 0;
                }
                let _no_signal = SignalBlocked::new();
                let _locked = self.lock();
                // Whoever ends sampling waits for the lock, and then takes the walker.
                match self.slot() {
                    // SAFETY: the signal is blocked on this thread, which is in a host call, and the store is locked.
                    Some(slot) if !slot.is_stopped() => unsafe {
                        self.collect_language(frames, Reading::Standing, words)
                    },
                    _ => 0,
                }
            },
            |_| (),
        )
    }
}
