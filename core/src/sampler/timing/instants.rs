//! The instants at which something is sampled: one in each period, anywhere in it.
//!
//! # Accuracy
//! Time is divided into periods of one length, and the instant of each is drawn at random of all of it. So every moment is as likely
//! to be sampled as any other, whatever the guest does in step with, and each sample stands for one period. The samples of a
//! function are spread more evenly than chance would spread them.

use super::super::os::clock::monotonic_ns;

/// One instant in each period of a clock that goes on.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct Instants {
    /// When the period begins that the next instant is in.
    begins_ns: u64,
    period_ns: u64,
    due_ns: u64,
    random: Random,
}

impl Instants {
    /// The first period begins at `now_ns`.
    pub(in crate::sampler) fn new(now_ns: u64, period_ns: u64) -> Self {
        let mut instants = Self { begins_ns: now_ns, period_ns, due_ns: 0, random: Random::new() };
        instants.draw();
        instants
    }

    /// The next instant.
    pub(in crate::sampler) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// How many instants have passed by `now_ns`. Those after it are in periods of `period_ns`.
    pub(in crate::sampler) fn pass(&mut self, now_ns: u64, period_ns: u64) -> u64 {
        let mut passed = 0;
        while self.due_ns <= now_ns {
            passed += 1;
            self.take(period_ns);
        }
        passed
    }

    /// The next instant is taken now. Those after it are in periods of `period_ns`.
    pub(in crate::sampler) fn take(&mut self, period_ns: u64) {
        self.begins_ns += self.period_ns;
        self.period_ns = period_ns.max(1);
        self.draw();
    }

    /// The clock went on by so much in which there are to be no instants.
    pub(in crate::sampler) fn leave_out(&mut self, ns: u64) {
        self.begins_ns += ns;
        self.due_ns += ns;
    }

    fn draw(&mut self) {
        self.due_ns = self.begins_ns + self.random.below(self.period_ns);
    }
}

/// Random numbers (xorshift64).
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    /// Other numbers than any before.
    fn new() -> Self {
        Self(monotonic_ns() | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 1_000_000;

    #[test]
    fn there_is_one_in_each_period_and_anywhere_in_it() {
        let mut instants = Instants::new(500, PERIOD_NS);
        let mut eighths = [0_u64; 8];
        for period in 0..80_000 {
            let begins_ns = 500 + period * PERIOD_NS;
            let after_ns = instants.due_ns() - begins_ns;
            eighths[(after_ns * 8 / PERIOD_NS) as usize] += 1;
            assert_eq!(instants.pass(instants.due_ns(), PERIOD_NS), 1);
        }
        // Five standard deviations of 10,000.
        assert!(eighths.iter().all(|count| (9_500..=10_500).contains(count)), "{eighths:?}");
    }

    #[test]
    fn each_that_has_passed_counts() {
        let mut instants = Instants::new(0, PERIOD_NS);
        assert_eq!(instants.pass(1000 * PERIOD_NS - 1, PERIOD_NS), 1000);
        assert_eq!(instants.pass(1000 * PERIOD_NS - 1, PERIOD_NS), 0);
    }

    #[test]
    fn another_period_begins_where_the_last_one_ends() {
        let mut instants = Instants::new(0, PERIOD_NS);
        instants.take(4 * PERIOD_NS);
        assert!((PERIOD_NS..5 * PERIOD_NS).contains(&instants.due_ns()));
        instants.leave_out(PERIOD_NS);
        instants.take(PERIOD_NS);
        assert!((6 * PERIOD_NS..7 * PERIOD_NS).contains(&instants.due_ns()));
    }
}
