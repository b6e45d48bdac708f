//! Keeps the cost of sampling below what the user allows, by lowering the rate.

use super::super::session::SamplerOptions;

/// Below this rate a profile is of no use; the governor goes no lower.
const LOWEST_HZ: f64 = 10.0;

/// Chooses the time between ticks.
///
/// A tick costs the guest what the machine takes to deliver a signal, measured once before the guest runs, plus the
/// time in the handler, measured all along: deep stacks and slow language walkers raise it.
pub(super) struct Governor {
    requested_hz: f64,
    max_overhead: f64,
    delivery_ns: f64,
    handler_ns: f64,
    seen: (u64, u64),
    hz: f64,
    /// The lowest rate, and what a tick cost that made it so.
    lowest: (f64, f64),
}

impl Governor {
    /// `delivery_ns` is what a tick costs when the handler does nothing.
    pub(super) fn new(options: &SamplerOptions, delivery_ns: u64) -> Self {
        let requested_hz = options.rate_hz;
        let mut governor = Self {
            requested_hz,
            max_overhead: options.max_overhead,
            delivery_ns: delivery_ns as f64,
            handler_ns: 0.0,
            seen: (0, 0),
            hz: requested_hz,
            lowest: (requested_hz, 0.0),
        };
        governor.decide();
        governor
    }

    /// Time between two ticks, in nanoseconds.
    pub(super) fn period_ns(&self) -> u64 {
        (1e9 / self.hz) as u64
    }

    /// Takes note of how many signals have been handled and how long that took, both since the beginning.
    pub(super) fn adjust(&mut self, handled: u64, handler_ns: u64) {
        let (count, time) = (handled - self.seen.0, handler_ns - self.seen.1);
        if count > 0 {
            self.seen = (handled, handler_ns);
            let mean = time as f64 / count as f64;
            // Half the old: follows a phase of deep stacks within a few looks, and a single hiccup little.
            self.handler_ns = if self.handler_ns == 0.0 { mean } else { (self.handler_ns + mean) / 2.0 };
            self.decide();
        }
    }

    fn decide(&mut self) {
        let cost_ns = (self.delivery_ns + self.handler_ns).max(1.0);
        let affordable_hz = (self.max_overhead / cost_ns * 1e9).max(LOWEST_HZ);
        self.hz = affordable_hz.min(self.requested_hz);
        if self.hz < self.lowest.0 || self.hz == LOWEST_HZ && cost_ns > self.lowest.1 {
            self.lowest = (self.hz, cost_ns);
        }
    }

    /// What the user should know. Its numbers are of one moment, that of the lowest rate: those of others belong to other
    /// rates.
    pub(super) fn note(&self) -> Option<String> {
        let (lowest_hz, cost_ns) = self.lowest;
        if lowest_hz >= 0.9 * self.requested_hz {
            return None;
        }
        // Without the digits that are left of its conversion from percent.
        let percent = |share: f64| (share * 1e4).round() / 1e2;
        let allowed = percent(self.max_overhead);
        let cost_us = cost_ns / 1e3;
        let share = percent(lowest_hz * cost_ns / 1e9);
        Some(if share > allowed {
            format!(
                "the rate was lowered to {lowest_hz:.0} Hz at times, and goes no lower: a tick cost {cost_us:.1} µs then, so \
                 that sampling took {share} % of the guest's time, above the {allowed} % that --max-overhead allows"
            )
        } else {
            format!(
                "the rate was lowered to {lowest_hz:.0} Hz at times to keep sampling within {allowed} % of the guest's time: a \
                 tick cost {cost_us:.1} µs then (--max-overhead allows more)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(rate_hz: f64, max_overhead: f64) -> SamplerOptions {
        SamplerOptions { rate_hz, max_overhead, ..SamplerOptions::default() }
    }

    #[test]
    fn a_rate_that_costs_little_is_kept() {
        let governor = Governor::new(&options(1000.0, 0.02), 10_000);
        assert_eq!(governor.period_ns(), 1_000_000);
        assert_eq!(governor.note(), None);
    }

    #[test]
    fn a_rate_that_costs_too_much_is_lowered_to_the_limit() {
        let mut governor = Governor::new(&options(10_000.0, 0.02), 10_000);
        assert_eq!(governor.period_ns(), 500_000);
        governor.adjust(100, 1_000_000);
        assert_eq!(governor.period_ns(), 1_000_000, "10 µs for the signal and 10 µs in the handler");
        assert_eq!(
            governor.note().unwrap(),
            "the rate was lowered to 1000 Hz at times to keep sampling within 2 % of the guest's time: a tick cost 20.0 µs \
             then (--max-overhead allows more)"
        );
        // What ticks cost later does not explain that rate.
        governor.adjust(200, 1_000_100);
        governor.adjust(300, 1_000_200);
        assert!(governor.note().unwrap().contains("1000 Hz") && governor.note().unwrap().contains("20.0 µs"));
    }

    #[test]
    fn a_rate_that_costs_too_much_even_at_the_lowest_is_told() {
        let mut governor = Governor::new(&options(1000.0, 0.0007), 10_000);
        governor.adjust(1, 1_990_000);
        assert_eq!(governor.period_ns(), 100_000_000);
        assert_eq!(
            governor.note().unwrap(),
            "the rate was lowered to 10 Hz at times, and goes no lower: a tick cost 2000.0 µs then, so that sampling took \
             2 % of the guest's time, above the 0.07 % that --max-overhead allows"
        );
    }

    #[test]
    fn it_recovers_when_the_handler_gets_faster() {
        let mut governor = Governor::new(&options(1000.0, 0.02), 1_000);
        governor.adjust(10, 10 * 100_000);
        assert!(governor.period_ns() > 5_000_000);
        for look in 2..20 {
            governor.adjust(10 * look, 1_000_000 + 10 * look);
        }
        assert_eq!(governor.period_ns(), 1_000_000);
    }
}
