//! From what heaps tell to the recording: the stacks that allocate are interned as they come, and what they have come to is written now
//! and then.

use super::super::heap::{HeapDelta, HeapTotals, SiteNumber, StoreHeap};
use super::super::os::clock::monotonic_ns;
use super::super::reading::Header;
use super::super::running::StoreNumber;
use super::super::shared::Shared;
use super::Drain;
use super::paths::Path;
use std::collections::HashMap;
use std::sync::Arc;
use wlprof_recording::{Heap, HeapSite, Numbers, Origin, Recorder, SiteTotals, StackId};
use wlprof_walk::FrameWord;

/// How long after sampling began heaps are written for the first time, in nanoseconds. From then on whenever as much has gone by as a tenth of
/// the run: that is what is lost if wlprof is killed, and a journal does not grow by much. Whoever asks for a window has them written, too.
const FIRST_NS: u64 = 500_000_000;

/// The stacks of heaps, by their sites' numbers.
#[derive(Default)]
pub(super) struct HeapStacks {
    stacks: HashMap<StoreNumber, Vec<StackId>>,
    /// When they were last written, in nanoseconds since sampling began.
    written_ns: u64,
}

impl HeapStacks {
    /// All of them.
    pub(super) fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.stacks.values().flatten().copied()
    }

    /// Takes the recording's new numbers, in which all are kept.
    pub(super) fn renumber(&mut self, numbers: &Numbers) {
        self.stacks.values_mut().flatten().for_each(|stack| *stack = numbers.new_of(*stack));
    }

    fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.written_ns) > (now_ns / 10).max(FIRST_NS)
    }
}

impl Drain {
    /// Records what heaps have told: new stacks at once, and what they have come to if `is_asked`, if that is due, or of stores that have
    /// `gone`.
    pub(super) fn record_heaps(
        &mut self,
        is_asked: bool,
        gone: &[(StoreNumber, u64)],
        shared: &Shared,
        recorder: &mut Recorder,
    ) {
        // Before the first thread has begun there is no time to count by.
        let started_ns @ 1.. = self.threads.started_ns() else {
            return gone.iter().for_each(|(store, _)| shared.heaps.forget(*store));
        };
        let now_ns = monotonic_ns().saturating_sub(started_ns);
        let is_due = is_asked || self.heaps.is_due(now_ns);
        if is_due {
            self.heaps.written_ns = now_ns;
        }
        if !is_due && gone.is_empty() && !shared.heaps.take_has_new() {
            return;
        }
        for heap in shared.heaps.all() {
            let has_gone = gone.iter().any(|(store, _)| *store == heap.store);
            let HeapDelta { new, totals } = heap.take(is_due || has_gone);
            self.intern_sites(heap.store, &new, shared, recorder);
            if let Some(totals) = totals {
                self.record_totals(&heap, totals, started_ns, recorder);
            }
            if let Some((store, gone_ns)) = gone.iter().find(|(store, _)| *store == heap.store) {
                let id = self.stores.id(*store, &self.threads, recorder);
                recorder.heap_has_gone(id, gone_ns.saturating_sub(started_ns));
                shared.heaps.forget(heap.store);
                self.heaps.stacks.remove(&heap.store);
            }
        }
    }

    fn intern_sites(&mut self, store: StoreNumber, new: &[Arc<[u64]>], shared: &Shared, recorder: &mut Recorder) {
        let is_allocators = |word: FrameWord| match shared.code.read().origin(word.native_pc()) {
            Some(Origin::Wasm { module, function, .. }) => {
                shared.module(module).is_some_and(|module| module.image.allocates(function))
            }
            _ => true,
        };
        let mut path = Path::default();
        for words in new {
            let found = self.stack(&mut path, &Header::read(words), is_allocators, shared, recorder);
            self.heaps.stacks.entry(store).or_default().push(found.stack);
        }
    }

    fn record_totals(&mut self, heap: &StoreHeap, told: HeapTotals, started_ns: u64, recorder: &mut Recorder) {
        let stacks = self.heaps.stacks.entry(heap.store).or_default();
        let since_start = |time_ns: u64| time_ns.saturating_sub(started_ns);
        let site = |(number, totals): (SiteNumber, SiteTotals)| {
            let since_start = |(oldest, newest): (u64, u64)| (since_start(oldest), since_start(newest));
            let held_since_ns = totals.held_since_ns.map(since_start);
            HeapSite { stack: stacks[number as usize], totals: SiteTotals { held_since_ns, ..totals } }
        };
        let sites = told.sites.into_iter().map(site).collect();
        let HeapTotals { peak_ns, rate, notes, .. } = told;
        let heap_told = Heap { number: heap.store, rate, peak_ns: since_start(peak_ns), sites, notes };
        let store = self.stores.id(heap.store, &self.threads, recorder);
        recorder.heap(store, heap_told.joined());
    }
}
