//! Looks at the guest's thread from outside: what it waits for is seen without waking it.

use super::super::os::Activity;
use super::super::os::clock::monotonic_ns;
use super::super::os::thread_watch::ThreadWatch;
use super::super::reading::MAX_WORDS;
use super::super::running::{Sighting, collect_blocked};
use super::super::running::{StoreState, ThreadSlot};
use super::super::timing::Jitter;
use crate::recording::Clock;
use std::time::Duration;

/// Between looks with [`Clock::Cpu`] at a thread that waits: the wait's end is known so well. Until then there is a look whenever the rings
/// are emptied, and shorter waits may not be seen.
const LOOK_AT_WAITS: Duration = Duration::from_millis(10);

/// What looks at a thread, and what it saw last.
pub(in crate::sampler) struct Waits {
    watch: ThreadWatch,
    jitter: Jitter,
    /// When to look next, with [`Clock::Wall`].
    due_ns: u64,
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
        let (due_ns, looked_ns) = (now_ns, now_ns);
        Self {
            watch,
            jitter: Jitter::new(),
            due_ns,
            looked_ns,
            cpu_ns,
            waits: false,
            words,
            counts: WaitCounts::default(),
        }
    }

    /// There is nothing to look at now.
    pub(in crate::sampler) fn rest(&mut self) {
        let now_ns = monotonic_ns();
        (self.due_ns, self.looked_ns, self.waits) = (now_ns, now_ns, false);
    }

    /// How long until the next look is due, at the latest.
    pub(in crate::sampler) fn until_due(&self, clock: Clock) -> Duration {
        match clock {
            Clock::Cpu if self.waits => LOOK_AT_WAITS,
            Clock::Cpu => Duration::MAX,
            Clock::Wall => Duration::from_nanos(self.due_ns.saturating_sub(monotonic_ns())),
        }
    }

    /// Looks at `thread`, which runs `store`, if that is due, and gives a record of where it waits, if it does. That is a sample
    /// with [`Clock::Wall`], else only a sighting.
    pub(in crate::sampler) fn look(&mut self, clock: Clock, thread: &ThreadSlot, store: &StoreState) -> Option<&[u64]> {
        let period_ns = thread.period_ns();
        if clock == Clock::Wall && !self.is_due(period_ns) {
            return None;
        }
        let (activity, cpu_ns) = self.watch.look();
        let now_ns = monotonic_ns();
        let since_ns = now_ns.saturating_sub(self.looked_ns);
        // A thread that has used no time since the last look has stood still all along, however long ago that was. Of
        // another one's past nothing is known.
        let stood_still = cpu_ns == self.cpu_ns;
        (self.looked_ns, self.cpu_ns) = (now_ns, cpu_ns);
        self.waits = matches!(activity, Activity::Blocked | Activity::Stuck);
        if !self.waits {
            return None;
        }
        self.counts.found += 1;
        let weight_ns = match clock {
            Clock::Cpu => 0,
            Clock::Wall if stood_still => since_ns,
            Clock::Wall => since_ns.min(period_ns),
        };
        let watch = &self.watch;
        let is_there = || watch.look() == (activity, cpu_ns) && std::ptr::eq(thread.current(), store);
        let sighting = Sighting { cpu_ns, weight_ns, period_ns };
        let found = collect_blocked(sighting, store, &mut self.words, is_there);
        self.counts.woke += u64::from(clock == Clock::Wall && found.is_none());
        found.map(|length| &self.words[..length])
    }

    /// Whether a look is due; if so, the next one will be a period after it.
    fn is_due(&mut self, period_ns: u64) -> bool {
        let now_ns = monotonic_ns();
        if now_ns < self.due_ns {
            return false;
        }
        // Looks that were not made are not made up for: they would all see one place.
        self.counts.late += (now_ns - self.due_ns) / period_ns.max(1);
        self.due_ns = (self.due_ns + self.jitter.around(period_ns)).max(now_ns);
        true
    }
}
