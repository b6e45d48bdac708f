//! What the threads of a session have counted, altogether.

use super::super::os::clock::monotonic_ns;
use super::super::os::thread_watch::ThreadWatch;
use super::super::timing::Timers;
use super::slot::ThreadSlot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What threads have counted, altogether.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sampler) struct SlotTotals {
    pub(in crate::sampler) fired: u64,
    pub(in crate::sampler) ring_full: u64,
    pub(in crate::sampler) periods_ns: u64,
    pub(in crate::sampler) handler_ns: u64,
    /// CPU time in stores.
    pub(in crate::sampler) cpu_ns: u64,
    /// When one of them was last in a store.
    pub(in crate::sampler) left_ns: u64,
}

impl SlotTotals {
    /// Adds what a thread has counted, which has used `cpu_ns` by now.
    pub(in crate::sampler) fn add(&mut self, slot: &ThreadSlot, cpu_ns: u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        if let Some(Timers { counts, .. }) = &slot.timers {
            self.fired += count(&counts.fired);
            self.periods_ns += count(&counts.periods_ns);
        }
        self.ring_full += count(&slot.ring_full);
        self.handler_ns += count(&slot.handler_ns);
        self.cpu_ns += slot.in_stores_ns(cpu_ns);
        self.left_ns = self.left_ns.max(count(&slot.left_ns));
    }
}

/// The threads at one moment, and the CPU time that each had used by then.
pub(in crate::sampler) struct Clocks {
    slots: Vec<(Arc<ThreadSlot>, u64)>,
    now_ns: u64,
}

impl Clocks {
    pub(super) fn of(slots: Vec<Arc<ThreadSlot>>) -> Self {
        let cpu_ns = |slot: &ThreadSlot| ThreadWatch::new(slot.tid).ok().and_then(|watch| watch.cpu_ns()).unwrap_or(0);
        let slots = slots.into_iter().map(|slot| (slot.clone(), cpu_ns(&slot))).collect();
        Self { slots, now_ns: monotonic_ns() }
    }

    pub(in crate::sampler) fn slots(&self) -> impl Iterator<Item = &Arc<ThreadSlot>> {
        self.slots.iter().map(|(slot, _)| slot)
    }

    /// What the user should know of the first thread that runs but shortly between waits.
    pub(in crate::sampler) fn bursts_note(&self) -> Option<String> {
        self.slots.iter().find_map(|(slot, cpu_ns)| {
            let waits = ThreadWatch::new(slot.tid).ok()?.voluntary_waits()?;
            slot.bursts_note(*cpu_ns, waits)
        })
    }

    /// The sum over all threads: `ended`, and those of them that `is_listed` says are not in it.
    pub(super) fn totals(&self, ended: SlotTotals, is_listed: impl Fn(&Arc<ThreadSlot>) -> bool) -> SlotTotals {
        let mut totals = ended;
        for (slot, cpu_ns) in self.slots.iter().filter(|(slot, _)| is_listed(slot)) {
            totals.add(slot, *cpu_ns);
            if !slot.current().is_null() {
                totals.left_ns = totals.left_ns.max(self.now_ns);
            }
        }
        totals
    }
}
