//! What samples stand for: a period each, and together the time that there was.

use super::MAX_PERIODS;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is made up for at a sample, as a part of what is missing.
const PART: i64 = 16;

/// What counts of the past at a sample, as a part of what counted at the one before.
const KEPT: f64 = 31.0 / 32.0;

/// Periods that may be missing. What is beyond went by where nobody looked.
const MAX_MISSING: u64 = 64;

/// Gives each sample its time. Where threads run guests for moments only, or whoever asks for samples has no processor in time, there are
/// fewer or more samples than the time has periods: each then stands for as much as one has stood for lately.
///
/// # Accuracy
/// What a sample stands for depends on how many came lately in how much time, never on where this one is. What is missing at the end is
/// some periods.
#[derive(Debug, Default)]
pub(in crate::sampler) struct Conserved {
    /// What samples were taken for lately, and how much time that was; the older, the less it counts.
    taken_ns: AtomicU64,
    time_ns: AtomicU64,
    /// The time at the last sample.
    last_ns: AtomicU64,
    /// What all samples stand for, and what none does.
    given_ns: AtomicU64,
}

impl Conserved {
    /// Gives a sample its time, which is `ns` by what it was taken for; `there_was_ns` is the time so far. One thread calls this.
    pub(in crate::sampler) fn give(&self, ns: u64, there_was_ns: u64) -> u64 {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let most_missing_ns = MAX_MISSING * ns;
        let given_ns = load(&self.given_ns).max(there_was_ns.saturating_sub(most_missing_ns));
        let since_ns = there_was_ns.saturating_sub(load(&self.last_ns)).min(most_missing_ns);
        let taken_ns = load(&self.taken_ns) as f64 * KEPT + ns as f64;
        let time_ns = load(&self.time_ns) as f64 * KEPT + since_ns as f64;
        let mean_ns = ns as f64 * (time_ns / taken_ns.max(1.0)).clamp(0.5, MAX_PERIODS as f64);
        let missing_ns = there_was_ns as i64 - given_ns as i64;
        let most_ns = (ns / 2) as i64;
        let made_up_ns = ((missing_ns - mean_ns as i64) / PART).clamp(-most_ns, most_ns);
        // No more than there is, and no less than half of what it was taken for.
        let given =
            (mean_ns as u64).saturating_add_signed(made_up_ns).min((missing_ns.max(0) as u64).max(ns)).max(ns / 2);
        self.taken_ns.store(taken_ns as u64, Ordering::Relaxed);
        self.time_ns.store(time_ns as u64, Ordering::Relaxed);
        self.last_ns.store(there_was_ns, Ordering::Relaxed);
        self.given_ns.store(given_ns + given, Ordering::Relaxed);
        given
    }

    /// Nothing is missing: the time begins here.
    pub(in crate::sampler) fn begin(&self, there_was_ns: u64) {
        self.taken_ns.store(0, Ordering::Relaxed);
        self.time_ns.store(0, Ordering::Relaxed);
        self.last_ns.store(there_was_ns, Ordering::Relaxed);
        self.given_ns.store(there_was_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 1_000_000;

    /// What is given of `count` samples that come every so often, from `there_was_ns` on.
    fn given(conserved: &Conserved, there_was_ns: u64, every_ns: u64, count: u64) -> u64 {
        (1..=count).map(|sample| conserved.give(PERIOD_NS, there_was_ns + sample * every_ns)).sum()
    }

    #[test]
    fn samples_add_up_to_the_time_however_many_came() {
        for (every_ns, count) in
            [(1_000_000, 2000), (1_150_000, 2000), (850_000, 2000), (3_000_000, 500), (600_000, 3000)]
        {
            let all_ns = count * every_ns;
            let given_ns = given(&Conserved::default(), 0, every_ns, count);
            assert!(given_ns.abs_diff(all_ns) <= 16 * PERIOD_NS, "{given_ns} of {all_ns}");
        }
    }

    #[test]
    fn time_that_was_seen_less_is_not_given_to_what_comes_after_it() {
        for (first_ns, second_ns) in [(4_000_000, 1_000_000), (1_000_000, 4_000_000), (10_000_000, 1_000_000)] {
            let conserved = Conserved::default();
            let first = given(&conserved, 0, first_ns, 500);
            let second = given(&conserved, 500 * first_ns, second_ns, 2000);
            let all_ns = 500 * first_ns + 2000 * second_ns;
            assert!(
                first <= 500 * first_ns && first + second <= all_ns + 2 * PERIOD_NS,
                "{first} and {second} of {all_ns}"
            );
            let off = second.abs_diff(2000 * second_ns) as f64 / (2000 * second_ns) as f64;
            assert!(off < 0.06, "{second} of {}", 2000 * second_ns);
        }
    }

    #[test]
    fn what_went_by_where_nobody_looked_is_given_to_nobody() {
        let conserved = Conserved::default();
        let before = given(&conserved, 0, PERIOD_NS, 100);
        let after = given(&conserved, 10_100 * PERIOD_NS, PERIOD_NS, 1000);
        assert!(before + after < 1_300 * PERIOD_NS, "{before} and {after}");
    }
}
