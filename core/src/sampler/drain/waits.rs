//! Looks at the guest's thread from outside: what it waits for is seen without waking it.

use super::super::os::Activity;
use super::super::os::clock::monotonic_ns;
use super::super::os::thread_watch::ThreadWatch;
use super::super::reading::MAX_WORDS;
use super::super::running::{Sighting, collect_blocked};
use super::super::running::{StoreState, ThreadSlot};
use super::super::timing::Instants;
use std::time::Duration;
use wlprof_recording::Clock;

/// Between looks with [`Clock::Cpu`] at a thread that waits: the wait's end is known so well. Until then there is a look whenever the rings
/// are emptied, and shorter waits may not be seen.
const LOOK_AT_WAITS: Duration = Duration::from_millis(10);

/// What looks at a thread, and what it saw last.
pub(in crate::sampler) struct Waits {
    watch: ThreadWatch,
    /// When to look, with [`Clock::Wall`]; `None` before the first look.
    instants: Option<Instants>,
    looked_ns: u64,
    cpu_ns: u64,
    /// The thread was found waiting.
    waits: bool,
    words: Box<[u64]>,
    pub(in crate::sampler) counts: WaitCounts,
}

/// What became of the looks.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sampler) struct WaitCounts {
    /// Looks that found the thread waiting. With [`Clock::Wall`] they are samples, but for those that follow.
    pub(in crate::sampler) found: u64,
    /// It woke while it was being read.
    pub(in crate::sampler) woke: u64,
    /// Looks that were not made, because the thread that makes them was kept from running. Not among those found.
    pub(in crate::sampler) late: u64,
}

impl WaitCounts {
    /// Adds those of another thread.
    pub(in crate::sampler) fn add(&mut self, other: Self) {
        self.found += other.found;
        self.woke += other.woke;
        self.late += other.late;
    }
}

impl Waits {
    pub(in crate::sampler) fn new(watch: ThreadWatch) -> Self {
        let cpu_ns = watch.cpu_ns().unwrap_or(0);
        let words = vec![0; MAX_WORDS].into_boxed_slice();
        let now_ns = monotonic_ns();
        Self { watch, instants: None, looked_ns: now_ns, cpu_ns, waits: false, words, counts: WaitCounts::default() }
    }

    /// There is nothing to look at now.
    pub(in crate::sampler) fn rest(&mut self) {
        (self.instants, self.looked_ns, self.waits) = (None, monotonic_ns(), false);
    }

    /// How long until the next look is due, at the latest.
    pub(in crate::sampler) fn until_due(&self, clock: Clock) -> Duration {
        match clock {
            Clock::Cpu if self.waits => LOOK_AT_WAITS,
            Clock::Cpu => Duration::MAX,
            Clock::Wall => {
                let due_ns = self.instants.map_or(0, |instants| instants.due_ns());
                Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()))
            }
        }
    }

    /// Looks at `thread`, which runs `store`, if that is due, and gives a record of where it waits, if it does. That is a sample
    /// with [`Clock::Wall`], else only a sighting.
    pub(in crate::sampler) fn look(&mut self, clock: Clock, thread: &ThreadSlot, store: &StoreState) -> Option<&[u64]> {
        let period_ns = thread.period_ns();
        let passed = if clock == Clock::Wall { self.pass(period_ns) } else { 1 };
        if passed == 0 {
            return None;
        }
        let (activity, cpu_ns) = self.watch.look();
        let now_ns = monotonic_ns();
        // A thread that has used no time since the last look has stood still all along, however long ago that was. Of
        // another one's past nothing is known.
        let stood_still = cpu_ns == self.cpu_ns;
        (self.looked_ns, self.cpu_ns) = (now_ns, cpu_ns);
        self.waits = match activity {
            Activity::Blocked | Activity::Stuck => true,
            // It has waited for something in a host call, and now for a processor.
            Activity::Queued if clock == Clock::Wall && !store.is_in_wasm() => true,
            Activity::Queued if clock == Clock::Wall => {
                // Where it stands it says itself, when it has a processor.
                thread.waits_for_processor(period_ns);
                false
            }
            Activity::Queued | Activity::Running | Activity::Dead => false,
        };
        if !self.waits {
            return None;
        }
        self.counts.found += 1;
        let weight_ns = match clock {
            Clock::Cpu => 0,
            Clock::Wall if stood_still => passed * period_ns,
            Clock::Wall => period_ns,
        };
        let watch = &self.watch;
        let is_there = || watch.look() == (activity, cpu_ns) && std::ptr::eq(thread.current(), store);
        let sighting = Sighting { cpu_ns, weight_ns, period_ns };
        let found = collect_blocked(sighting, store, &mut self.words, is_there);
        self.counts.woke += u64::from(clock == Clock::Wall && found.is_none());
        found.map(|length| &self.words[..length])
    }

    /// How many looks are due.
    fn pass(&mut self, period_ns: u64) -> u64 {
        let now_ns = monotonic_ns();
        let instants = self.instants.get_or_insert_with(|| Instants::new(now_ns, period_ns));
        let passed = instants.pass(now_ns, period_ns);
        self.counts.late += passed.saturating_sub(1);
        passed
    }
}
