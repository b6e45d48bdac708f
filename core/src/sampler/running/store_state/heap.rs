//! What the guest of a store allocates: where the stacks of that are read, and what its language's runtime has counted.

use super::super::super::heap::{AllocatorMark, CountedHeap, StoreHeap, stack_header};
use super::super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::super::os::own_thread::SignalBlocked;
use super::super::super::reading::{Reading, Reads};
use super::StoreState;
use crate::heap::Rate;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wasmtime::AsContextMut;

impl StoreState {
    /// Its heap, which is profiled from here on.
    pub(in crate::sampler) fn heap(&self, rate: Rate) -> &Arc<StoreHeap> {
        self.heap.get_or_init(|| self.shared.heaps.of(self.number, rate))
    }

    /// Its wasm is having linear memory grow by so many bytes: to be called before that is done, within the instruction. Called
    /// elsewhere it counts bytes without a stack.
    pub(in crate::sampler) fn memory_grows(&self, bytes: u64) {
        if let Some(heap) = self.heap.get() {
            heap.grew(bytes, |words| self.write_stack(words));
        }
    }

    /// Has the mark of its allocator be looked at whenever its wasm has returned.
    pub(in crate::sampler) fn set_allocator_mark(&self, mark: AllocatorMark) {
        // One instance of a store is listened to.
        let _ = self.allocator_mark.set(mark);
    }

    /// Its wasm has returned to the host, or was left by a trap: unless other wasm of it waits, no call of its allocator goes on.
    pub(in crate::sampler) fn ends_allocator(&self, store: impl AsContextMut) {
        if let Some(mark) = self.allocator_mark.get().filter(|_| !self.is_open()) {
            mark.no_wasm_runs(store);
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
        let (began_ns, began_cpu_ns) = (monotonic_ns(), own_cpu_ns());
        let _no_signal = SignalBlocked::new();
        {
            let _locked = self.lock();
            // Whoever ends sampling waits for the lock, and then ends the walker.
            let is_stopped = self.threads.upgrade().is_none_or(|threads| threads.is_stopped());
            // SAFETY: the signal is blocked on this thread, the store's, and the store is locked.
            let language = unsafe { &mut *self.language.get() }.as_mut();
            if let Some(language) = language.filter(|_| !is_stopped && self.is_alive()) {
                // SAFETY: this thread, which is outside wasm, is the one that runs the store; the store is alive (checked) and locked.
                match unsafe { language.heap_profile() } {
                    Ok((rate, buckets)) => counted.heap.counted(rate, &buckets, |bucket, words| {
                        let write = |_: &[u64], words: &mut [u64]| language.write_bucket(bucket, words);
                        stack_header().write(words, |_| Ok(()), write, |_| ())
                    }),
                    Err(reason) => counted.heap.was_not_counted(reason),
                }
            }
        }
        counted.was_read(began_ns);
        if let Some(slot) = self.slot() {
            slot.leave_out(began_cpu_ns);
        }
    }

    /// Writes the stack of the host call, or of the builtin of Wasmtime's, that its wasm is in, with the language's, as a record that is equal
    /// for equal stacks. Gives the number of words. To be called in that call; where this thread runs another store, or none, the
    /// record has no frames.
    pub(in crate::sampler) fn write_stack(&self, words: &mut [u64]) -> usize {
        // A store that was suspended here may run elsewhere by now.
        let slot = self.slot().filter(|slot| std::ptr::eq(self.ran_on.load(Ordering::Acquire), *slot));
        let stack = self.stack(Reads::InPlace);
        let walks_language = self.has_language.load(Ordering::Relaxed);
        stack_header().write(
            words,
            |frames| match slot {
                // SAFETY: this thread ran the store's wasm last and has not left it, so that it is alive and its wasm stands still
                // while this runs.
                Some(_) => unsafe { stack.walk_blocked(frames) },
                None => Ok(()),
            },
            |frames, words| match slot.filter(|_| walks_language) {
                Some(slot) => {
                    let _no_signal = SignalBlocked::new();
                    let _locked = self.lock();
                    // Whoever ends sampling waits for the lock, and then ends the walker.
                    if slot.is_stopped() {
                        return 0;
                    }
                    // SAFETY: the signal is blocked on this thread, the store's, whose wasm stands still, and the store is locked.
                    unsafe { self.collect_language(frames, Reading::Standing, words) }
                }
                None => 0,
            },
            |_| (),
        )
    }
}
