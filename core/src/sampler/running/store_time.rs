//! How much of a thread's CPU time was in stores.
//!
//! The system is asked for CPU time by a call into the kernel, which costs a microsecond where a poll of a store may take five. So it
//! is asked now and then, and what went by in between is divided by the monotonic clock, which is read without one.
//!
//! # Accuracy
//! Where a thread is not kept waiting both clocks go alike, and the division is exact. If more time went by inside than the thread had
//! of its processor, it was without one there, and what went by outside is taken to be CPU time. Wrong is what of that the thread was
//! without a processor, too: less than [`SETTLE_AFTER_NS`] at a time.

use super::super::timing::add;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// From so much time on the next turn asks for CPU time.
const SETTLE_AFTER_NS: u64 = 1_000_000;

/// The CPU time of a thread. Written on that thread alone, by what runs there and by the handler that interrupts it.
pub(super) struct StoreTime {
    /// The thread is in a store whose time is counted.
    counts: AtomicBool,
    /// When that began, if it does, or what is before was added to `inside_ns`.
    since_ns: AtomicU64,
    /// Time inside, since the last settlement.
    inside_ns: AtomicU64,
    /// When that was.
    settled_ns: AtomicU64,
    /// CPU time of the thread then.
    settled_cpu_ns: AtomicU64,
    /// CPU time in stores until then.
    in_stores_ns: AtomicU64,
}

/// What went by between two settlements.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// CPU time.
    cpu_ns: u64,
    /// Time inside stores.
    inside_ns: u64,
    /// All of the time.
    all_ns: u64,
}

impl Stretch {
    /// CPU time inside.
    fn cpu_inside_ns(self) -> u64 {
        if self.inside_ns <= self.cpu_ns {
            return self.inside_ns;
        }
        let outside_ns = self.all_ns.saturating_sub(self.inside_ns);
        self.cpu_ns.saturating_sub(outside_ns)
    }
}

impl StoreTime {
    /// Of a thread that is in no store and has used `cpu_ns` at `now_ns`.
    pub(super) fn new(now_ns: u64, cpu_ns: u64) -> Self {
        Self {
            counts: AtomicBool::new(false),
            since_ns: AtomicU64::new(now_ns),
            inside_ns: AtomicU64::new(0),
            settled_ns: AtomicU64::new(now_ns),
            settled_cpu_ns: AtomicU64::new(cpu_ns),
            in_stores_ns: AtomicU64::new(0),
        }
    }

    /// Whether the thread is in a store whose time is counted.
    pub(super) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// The thread comes to a store.
    pub(super) fn begin(&self, now_ns: u64) {
        self.since_ns.store(now_ns, Ordering::Relaxed);
        self.counts.store(true, Ordering::Relaxed);
    }

    /// The thread leaves for none.
    pub(super) fn end(&self, now_ns: u64) {
        let inside_ns = now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed));
        self.counts.store(false, Ordering::Relaxed);
        add(&self.inside_ns, inside_ns);
    }

    /// It was not seen to leave: what went by since it came is nobody's.
    pub(super) fn give_up(&self) {
        self.counts.store(false, Ordering::Relaxed);
    }

    /// Whether it is time to ask for CPU time.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.settled_ns.load(Ordering::Relaxed)) >= SETTLE_AFTER_NS
    }

    /// Divides what went by until the thread has used `cpu_ns`, at `now_ns`. Gives the CPU time outside.
    pub(super) fn settle(&self, now_ns: u64, cpu_ns: u64) -> u64 {
        let stretch = self.stretch(now_ns, cpu_ns);
        let inside_ns = stretch.cpu_inside_ns();
        self.settled_ns.store(now_ns, Ordering::Relaxed);
        self.settled_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        self.inside_ns.store(0, Ordering::Relaxed);
        self.since_ns.store(now_ns, Ordering::Relaxed);
        add(&self.in_stores_ns, inside_ns);
        stretch.cpu_ns - inside_ns
    }

    /// CPU time in stores, if the thread has used `cpu_ns` at `now_ns`. From any thread.
    pub(super) fn in_stores_ns(&self, now_ns: u64, cpu_ns: u64) -> u64 {
        self.in_stores_ns.load(Ordering::Relaxed) + self.stretch(now_ns, cpu_ns).cpu_inside_ns()
    }

    fn stretch(&self, now_ns: u64, cpu_ns: u64) -> Stretch {
        let since = |began: &AtomicU64, now_ns: u64| now_ns.saturating_sub(began.load(Ordering::Relaxed));
        let going_on_ns = if self.counts() { since(&self.since_ns, now_ns) } else { 0 };
        Stretch {
            cpu_ns: since(&self.settled_cpu_ns, cpu_ns),
            inside_ns: self.inside_ns.load(Ordering::Relaxed) + going_on_ns,
            all_ns: since(&self.settled_ns, now_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes in and out by these times, each with the CPU time in it, and gives what is counted of the times inside.
    fn counted(turns: &[(u64, u64)]) -> u64 {
        let time = StoreTime::new(0, 0);
        let (mut now_ns, mut cpu_ns) = (0, 0);
        let mut outside_ns = 0;
        for (index, (wall_ns, used_ns)) in turns.iter().enumerate() {
            now_ns += wall_ns;
            cpu_ns += used_ns;
            if index % 2 == 0 {
                time.begin(now_ns)
            } else {
                time.end(now_ns)
            }
            if time.is_due(now_ns) {
                outside_ns += time.settle(now_ns, cpu_ns);
            }
        }
        outside_ns += time.settle(now_ns, cpu_ns);
        assert_eq!(time.in_stores_ns(now_ns, cpu_ns) + outside_ns, cpu_ns, "all of it is one or the other");
        time.in_stores_ns(now_ns, cpu_ns)
    }

    #[test]
    fn time_is_divided_as_it_went_by() {
        // Outside, inside, by turns.
        assert_eq!(counted(&[(20_000, 20_000), (60_000, 60_000)].repeat(1000)), 60_000_000);
        // The thread sleeps outside, for long or not so long.
        assert_eq!(counted(&[(3_000_000, 20_000), (60_000, 60_000)].repeat(1000)), 60_000_000);
        assert_eq!(counted(&[(80_000, 20_000), (60_000, 60_000)].repeat(1000)), 60_000_000);
        // It is without a processor inside, or waits there.
        assert_eq!(counted(&[(20_000, 20_000), (4_060_000, 60_000)].repeat(1000)), 60_000_000);
    }

    #[test]
    fn a_long_stay_is_its_cpu_time() {
        let time = StoreTime::new(7, 1_000);
        time.begin(7);
        assert_eq!(time.in_stores_ns(1_000_000_000, 500_001_000), 500_000_000);
        assert_eq!(time.settle(1_000_000_000, 500_001_000), 0);
        time.give_up();
        assert_eq!(time.in_stores_ns(2_000_000_000, 900_000_000), 500_000_000);
    }

    #[test]
    fn what_is_wrong_is_bounded() {
        // Without a processor outside while it was inside as well: only the sum of both is known.
        let turns = [(700_000, 100_000), (200_000, 100_000)].repeat(100);
        let error_ns = counted(&turns).abs_diff(100 * 100_000);
        assert!(error_ns <= 100 * SETTLE_AFTER_NS, "{error_ns}");
    }
}
