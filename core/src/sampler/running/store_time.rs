//! How much of a thread's CPU time was in stores.
//!
//! The system is asked for CPU time by a call into the kernel, which costs a microsecond where a poll of a store may take five. So it
//! is asked now and then, and what went by in between is divided by the monotonic clock, which is read without one.
//!
//! # Accuracy
//! Where a thread is not kept waiting both clocks go alike, and the division is exact. Where it waits in a store, or is without a
//! processor there, CPU time outside may be taken for its: what was used in less than [`SETTLE_AFTER_NS`] around it.

use super::super::timing::add;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// From so much time on the next turn asks for CPU time.
const SETTLE_AFTER_NS: u64 = 500_000;

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
        let used_ns = cpu_ns.saturating_sub(self.settled_cpu_ns.load(Ordering::Relaxed));
        if used_ns == 0 {
            // A clock that goes by steps, Windows', stands still in between: what goes by is divided at the next step.
            return 0;
        }
        let inside_ns = (self.inside_ns.load(Ordering::Relaxed) + self.going_on_ns(now_ns)).min(used_ns);
        self.settled_ns.store(now_ns, Ordering::Relaxed);
        self.settled_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        self.inside_ns.store(0, Ordering::Relaxed);
        self.since_ns.store(now_ns, Ordering::Relaxed);
        add(&self.in_stores_ns, inside_ns);
        used_ns - inside_ns
    }

    /// CPU time in stores, if the thread has used `cpu_ns` at `now_ns` and `is_inside` one. From any thread.
    pub(super) fn in_stores_ns(&self, now_ns: u64, cpu_ns: u64, is_inside: bool) -> u64 {
        let used_ns = cpu_ns.saturating_sub(self.settled_cpu_ns.load(Ordering::Relaxed));
        let going_on_ns = if is_inside { self.going_on_ns(now_ns) } else { 0 };
        let inside_ns = self.inside_ns.load(Ordering::Relaxed) + going_on_ns;
        self.in_stores_ns.load(Ordering::Relaxed) + inside_ns.min(used_ns)
    }

    /// How long the thread has been in the store that it is in, or since the last settlement.
    fn going_on_ns(&self, now_ns: u64) -> u64 {
        if self.counts() { now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed)) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes in and out by these times, each with the CPU time in it, and gives what is counted of those inside.
    fn counted(turns: &[(u64, u64)]) -> u64 {
        let time = StoreTime::new(0, 0);
        let (mut now_ns, mut cpu_ns) = (0, 0);
        let mut outside_ns = 0;
        let mut before_ns = 0;
        for (index, (wall_ns, used_ns)) in turns.iter().enumerate() {
            now_ns += wall_ns;
            cpu_ns += used_ns;
            // Once it has come in, or before it does.
            if index % 2 == 0 {
                if time.is_due(now_ns) {
                    outside_ns += time.settle(now_ns, cpu_ns);
                }
                time.begin(now_ns);
            } else {
                time.end(now_ns);
                if time.is_due(now_ns) {
                    outside_ns += time.settle(now_ns, cpu_ns);
                }
            }
            let so_far_ns = time.in_stores_ns(now_ns, cpu_ns, true);
            assert!(so_far_ns >= before_ns, "it grows");
            before_ns = so_far_ns;
        }
        outside_ns += time.settle(now_ns, cpu_ns);
        assert_eq!(time.in_stores_ns(now_ns, cpu_ns, true) + outside_ns, cpu_ns, "all of it is one or the other");
        time.in_stores_ns(now_ns, cpu_ns, true)
    }

    #[test]
    fn time_is_divided_as_it_went_by() {
        // Outside, inside, by turns.
        assert_eq!(counted(&[(20_000, 20_000), (60_000, 60_000)].repeat(1000)), 60_000_000);
        // The thread sleeps outside, for long or not so long.
        assert_eq!(counted(&[(3_000_000, 20_000), (60_000, 60_000)].repeat(1000)), 60_000_000);
        assert_eq!(counted(&[(80_000, 20_000), (60_000, 60_000)].repeat(1000)), 60_000_000);
    }

    #[test]
    fn what_is_wrong_where_the_thread_waits_inside_is_what_it_used_outside_around_it() {
        for ([outside, inside], wrong_by) in [
            ([(9_000_000, 20_000), (621_000, 600_000)], 0..=0),
            ([(9_000_000, 20_000), (600_100, 600_000)], 0..=0),
            ([(1_000_000, 1_000_000), (900_000, 50_000)], 0..=0),
            ([(20_000, 20_000), (4_060_000, 60_000)], 20_000..=20_000),
            ([(400_000, 300_000), (4_060_000, 60_000)], 300_000..=300_000),
            ([(700_000, 100_000), (200_000, 100_000)], 98_000..=100_000),
        ] {
            let turns = [outside, inside].repeat(100);
            let wrong_ns = counted(&turns) as i64 / 100 - inside.1 as i64;
            assert!(wrong_by.contains(&wrong_ns), "{wrong_ns} ns in {outside:?}, {inside:?}");
        }
    }

    /// As Windows counts CPU time.
    #[test]
    fn time_is_divided_where_the_clock_goes_by_steps() {
        const STEP_NS: u64 = 15_625_000;
        let time = StoreTime::new(0, 0);
        let (mut now_ns, mut outside_ns) = (0, 0);
        let mut settle = |now_ns: u64| outside_ns += time.settle(now_ns, now_ns / STEP_NS * STEP_NS);
        while now_ns < 64 * STEP_NS {
            time.begin(now_ns);
            // In the store it is asked more than once.
            for _ in 0..3 {
                now_ns += 250_000;
                settle(now_ns);
            }
            time.end(now_ns);
            now_ns += 250_000;
            settle(now_ns);
        }
        let inside_ns = time.in_stores_ns(now_ns, now_ns / STEP_NS * STEP_NS, false);
        assert_eq!(inside_ns + outside_ns, 64 * STEP_NS);
        let share = inside_ns as f64 / (64 * STEP_NS) as f64;
        assert!((0.74..0.76).contains(&share), "{share} of the time instead of three quarters");
    }

    #[test]
    fn a_long_stay_is_its_cpu_time() {
        let time = StoreTime::new(7, 1_000);
        time.begin(7);
        assert_eq!(time.in_stores_ns(1_000_000_000, 500_001_000, true), 500_000_000);
        assert_eq!(time.in_stores_ns(1_000_000_000, 500_001_000, false), 0);
        assert_eq!(time.settle(1_000_000_000, 500_001_000), 0);
        time.give_up();
        assert_eq!(time.in_stores_ns(2_000_000_000, 900_000_000, true), 500_000_000);
    }
}
