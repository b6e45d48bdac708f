//! How often the agent samples, so that it takes no more CPU time than it may.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use wlprof_attach::RateLimit;

/// The lowest rate: below, a process is seen no more than once or twice in a window.
const MIN_HZ: f64 = 0.1;

/// How much the rate may rise, and fall, at a time.
const STEPS: std::ops::RangeInclusive<f64> = 0.5..=1.25;

/// The part of what may be taken that is planned with: no look finds what the one before did.
const PLANNED: f64 = 0.9;

/// What the agent may take of one processor, for all processes together.
pub(super) struct Budget {
    /// Part of a processor's time.
    share: f64,
    max_hz: f64,
    limit: RateLimit,
    /// When it was last looked, and what this process had taken by then.
    looked: Instant,
    taken: Duration,
}

impl Budget {
    /// At most `max_hz` samples a second, and less where that takes more than this share of a processor.
    pub(super) fn new(share: f64, max_hz: f64) -> Self {
        Self { share, max_hz, limit: RateLimit::new(max_hz), looked: Instant::now(), taken: cpu_time() }
    }

    /// What sessions are limited by.
    pub(super) fn limit(&self) -> &RateLimit {
        &self.limit
    }

    /// Looks what has been taken since it was looked last, if that is `every` ago, and has sessions sample less, or more.
    pub(super) fn keep(&mut self, every: Duration) {
        let passed = self.looked.elapsed();
        if passed < every {
            return;
        }
        let taken = cpu_time();
        let share = (taken - self.taken).as_secs_f64() / passed.as_secs_f64();
        self.limit.set(next_rate(self.limit.rate_hz(), share, PLANNED * self.share, self.max_hz));
        (self.looked, self.taken) = (Instant::now(), taken);
    }
}

/// The rate that is in order where `rate_hz` took `share` of a processor and `allowed` may be taken.
fn next_rate(rate_hz: f64, share: f64, allowed: f64, max_hz: f64) -> f64 {
    let step = (allowed / share.max(1e-9)).clamp(*STEPS.start(), *STEPS.end());
    (rate_hz * step).clamp(MIN_HZ.min(max_hz), max_hz)
}

/// The CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_settles_where_the_budget_is_kept() {
        // Each sample a second takes a thousandth, beside two thousandths that are taken in any case.
        let share = |rate: f64| 0.002 + 0.001 * rate;
        let mut rate = 100.0;
        for _ in 0..20 {
            rate = next_rate(rate, share(rate), 0.01, 100.0);
        }
        assert!((share(rate) - 0.01).abs() < 0.001, "{rate}");
        // Nothing to do: it rises to where it may.
        (0..40).for_each(|_| rate = next_rate(rate, 0.0, 0.01, 100.0));
        assert_eq!(rate, 100.0);
        (0..40).for_each(|_| rate = next_rate(rate, 1.0, 0.01, 100.0));
        assert_eq!(rate, MIN_HZ);
    }
}
