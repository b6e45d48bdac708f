//! Keeps the cost of sampling below what the user allows, by lowering the rate.

use super::super::options::SamplerOptions;

/// Below this rate a profile is of no use; the governor goes no lower.
const LOWEST_HZ: f64 = 10.0;

/// How long the guest is sampled at [`SamplerOptions::first_hz`], in nanoseconds of its CPU time.
const FIRST_NS: u64 = 1_000_000_000;

/// The most that interrupts may take at the default rate, as a fraction of the guest's CPU time, and in its first second, where short runs are
/// to have samples enough.
const INTERRUPTS: f64 = 0.006;
const FIRST_INTERRUPTS: f64 = 0.02;

/// The default rate is no lower, whatever an interrupt costs.
const LOWEST_DEFAULT_HZ: f64 = 100.0;

/// What sampling may take beyond its share, in nanoseconds of CPU time: the first walks touch memory and tables that
/// nobody has touched before, and say nothing of what later ones cost.
const CREDIT_NS: f64 = 20e6;

/// Chooses the time between samples.
///
/// Sampling costs the process what the machine takes to deliver a signal, measured once before the guest runs, the CPU time
/// in the handler and in the call hook, and that of the thread that records, all measured all along: deep stacks and slow language
/// walkers raise them. Looks at a thread that waits are not counted: a lower rate does not make them fewer.
pub(in crate::sampler) struct Governor {
    first_hz: f64,
    requested_hz: f64,
    max_overhead: f64,
    delivery_ns: f64,
    /// What a sample costs beside its delivery.
    sampling_ns: f64,
    seen: Spent,
    hz: f64,
    /// The lowest rate, and what a sample cost that made it so.
    lowest: (f64, f64),
}

/// What has been spent since the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sampler) struct Spent {
    /// Signals that were handled.
    pub(in crate::sampler) signals: u64,
    /// CPU time in the handler, in the call hook and on the thread that records.
    pub(in crate::sampler) sampling_ns: u64,
    /// CPU time of the guest's thread.
    pub(in crate::sampler) guest_ns: u64,
}

impl Governor {
    /// `delivery_ns` is what a signal costs when the handler does nothing.
    pub(in crate::sampler) fn new(options: &SamplerOptions, delivery_ns: u64) -> Self {
        let (requested_hz, first_hz) = match options.first_hz {
            // Somebody has said at which rate.
            None => (options.rate_hz, options.rate_hz),
            Some(first_hz) => {
                let at_most = |part: f64| part * 1e9 / delivery_ns.max(1) as f64;
                let requested_hz = options.rate_hz.min(at_most(INTERRUPTS).max(LOWEST_DEFAULT_HZ));
                (requested_hz, first_hz.min(at_most(FIRST_INTERRUPTS).max(requested_hz)))
            }
        };
        let mut governor = Self {
            first_hz,
            requested_hz,
            max_overhead: options.max_overhead,
            delivery_ns: delivery_ns as f64,
            sampling_ns: 0.0,
            seen: Spent::default(),
            hz: requested_hz,
            lowest: (requested_hz, 0.0),
        };
        governor.decide();
        governor
    }

    /// Time between two samples, in nanoseconds.
    pub(in crate::sampler) fn period_ns(&self) -> u64 {
        (1e9 / self.hz) as u64
    }

    /// Takes note of what has been spent.
    pub(in crate::sampler) fn adjust(&mut self, spent: Spent) {
        let signals = spent.signals - self.seen.signals;
        if signals > 0 {
            let mean = (spent.sampling_ns - self.seen.sampling_ns) as f64 / signals as f64;
            // Half the old: follows a phase of deep stacks within a few looks, and a single hiccup little.
            self.sampling_ns = if self.sampling_ns == 0.0 { mean } else { (self.sampling_ns + mean) / 2.0 };
            self.seen = spent;
            self.decide();
        }
    }

    fn decide(&mut self) {
        let wanted_hz = if self.seen.guest_ns < FIRST_NS { self.first_hz } else { self.requested_hz };
        let Spent { signals, sampling_ns, guest_ns } = self.seen;
        let spent_ns = sampling_ns as f64 + signals as f64 * self.delivery_ns;
        // The guest's thread has been at most of what was spent, too: where much is allowed a guest would else come to nothing at all.
        let own_ns = (guest_ns as f64 - spent_ns).max(0.0);
        if spent_ns <= own_ns * self.max_overhead + CREDIT_NS {
            self.hz = wanted_hz;
            return;
        }
        let cost_ns = (self.delivery_ns + self.sampling_ns).max(1.0);
        // To the pace, deliveries are the guest's time.
        let affordable_hz = (1e9 / (cost_ns / self.max_overhead + self.delivery_ns)).max(LOWEST_HZ);
        self.hz = affordable_hz.min(wanted_hz);
        if self.hz < self.lowest.0 || self.hz == LOWEST_HZ && cost_ns > self.lowest.1 {
            self.lowest = (self.hz, cost_ns);
        }
    }

    /// What the user should know. Its numbers are of one moment, that of the lowest rate: those of others belong to other
    /// rates.
    pub(in crate::sampler) fn note(&self) -> Option<String> {
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
                "the rate was lowered to {lowest_hz:.0} Hz at times, and goes no lower: a sample cost {cost_us:.1} µs then, so \
                 that sampling took {share} % of the guest's time, above the {allowed} % that --max-overhead allows"
            )
        } else {
            format!(
                "the rate was lowered to {lowest_hz:.0} Hz at times to keep sampling within {allowed} % of the guest's time: a \
                 sample cost {cost_us:.1} µs then (--max-overhead allows more)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(rate_hz: f64, max_overhead: f64) -> SamplerOptions {
        SamplerOptions { rate_hz, first_hz: None, max_overhead, ..SamplerOptions::default() }
    }

    fn spent(signals: u64, sampling_ns: u64, guest_ns: u64) -> Spent {
        Spent { signals, sampling_ns, guest_ns }
    }

    #[test]
    fn a_rate_that_costs_little_is_kept() {
        let mut governor = Governor::new(&options(1000.0, 0.02), 10_000);
        assert_eq!(governor.period_ns(), 1_000_000);
        governor.adjust(spent(1000, 5_000_000, 1_000_000_000));
        assert_eq!(governor.period_ns(), 1_000_000);
        assert_eq!(governor.note(), None);
    }

    #[test]
    fn the_first_second_has_a_rate_of_its_own() {
        let options = SamplerOptions { first_hz: Some(1000.0), ..options(250.0, 0.02) };
        let mut governor = Governor::new(&options, 10_000);
        assert_eq!(governor.period_ns(), 1_000_000);
        governor.adjust(spent(999, 1_000_000, 999_000_000));
        assert_eq!(governor.period_ns(), 1_000_000);
        governor.adjust(spent(1000, 1_001_000, 1_000_000_000));
        assert_eq!(governor.period_ns(), 4_000_000);
        assert_eq!(governor.note(), None);
    }

    #[test]
    fn the_default_rate_is_one_whose_interrupts_cost_little() {
        let rates = |delivery_ns| {
            let options = SamplerOptions { first_hz: Some(1000.0), ..options(250.0, 0.02) };
            let Governor { first_hz, requested_hz, .. } = Governor::new(&options, delivery_ns);
            (requested_hz.round(), first_hz.round())
        };
        assert_eq!(rates(5_000), (250.0, 1000.0));
        assert_eq!(rates(40_000), (150.0, 500.0));
        assert_eq!(rates(100_000), (100.0, 200.0));
        assert_eq!(Governor::new(&options(250.0, 0.02), 40_000).period_ns(), 4_000_000, "what was asked for is kept");
    }

    #[test]
    fn first_walks_that_take_long_are_not_held_against_the_rate() {
        let mut governor = Governor::new(&options(1000.0, 0.02), 10_000);
        governor.adjust(spent(2, 15_000_000, 2_000_000));
        assert_eq!(governor.period_ns(), 1_000_000);
        assert_eq!(governor.note(), None);
    }

    #[test]
    fn what_is_given_in_advance_is_given_once() {
        let options = options(1000.0, 0.02);
        // The guest ran for a second, of which sampling may take 20 ms, and 20 ms more. Two signals cost 20 µs.
        let mut governor = Governor::new(&options, 10_000);
        governor.adjust(spent(2, 39_980_000, 1_040_000_000));
        assert_eq!(governor.period_ns(), 1_000_000);
        let mut governor = Governor::new(&options, 10_000);
        governor.adjust(spent(2, 39_980_001, 1_040_000_000));
        assert_eq!(governor.period_ns(), 100_000_000);
        // In the next second there are 20 ms, and no more.
        let mut governor = Governor::new(&options, 10_000);
        governor.adjust(spent(2, 39_980_000, 1_040_000_000));
        governor.adjust(spent(4, 59_960_001, 2_060_000_000));
        assert_eq!(governor.period_ns(), 100_000_000);
    }

    #[test]
    fn a_rate_that_costs_too_much_is_lowered_to_the_limit() {
        let mut governor = Governor::new(&options(10_000.0, 0.02), 10_000);
        // 10 µs for the signal and 10 µs in the handler, beyond what is given in advance.
        governor.adjust(spent(10_000, 100_000_000, 1_000_000_000));
        assert_eq!(governor.period_ns(), 1_010_000);
        assert_eq!(
            governor.note().unwrap(),
            "the rate was lowered to 990 Hz at times to keep sampling within 2 % of the guest's time: a sample cost 20.0 µs \
             then (--max-overhead allows more)"
        );
        // What samples cost later does not explain that rate.
        governor.adjust(spent(10_100, 100_000_100, 1_000_000_000));
        governor.adjust(spent(10_200, 100_000_200, 1_000_000_000));
        assert!(governor.note().unwrap().contains("990 Hz") && governor.note().unwrap().contains("20.0 µs"));
    }

    #[test]
    fn a_rate_that_costs_too_much_even_at_the_lowest_is_told() {
        let mut governor = Governor::new(&options(1000.0, 0.0007), 10_000);
        governor.adjust(spent(100, 199_000_000, 100_000_000));
        assert_eq!(governor.period_ns(), 100_000_000);
        assert_eq!(
            governor.note().unwrap(),
            "the rate was lowered to 10 Hz at times, and goes no lower: a sample cost 2000.0 µs then, so that sampling took \
             2 % of the guest's time, above the 0.07 % that --max-overhead allows"
        );
    }

    #[test]
    fn as_much_as_the_guest_takes_leaves_the_guest_half() {
        let mut governor = Governor::new(&options(50_000.0, 1.0), 35_000);
        // All of its thread's time was that of signals.
        governor.adjust(spent(30_000, 240_000_000, 1_290_000_000));
        // 35 µs for the signal, 8 µs in the handler, which the pace does not count, and 43 µs of the guest's own.
        assert!((77_999..=78_000).contains(&governor.period_ns()), "{}", governor.period_ns());
    }

    #[test]
    fn it_recovers_when_what_was_overspent_is_made_up_for() {
        let mut governor = Governor::new(&options(1000.0, 0.02), 1_000);
        governor.adjust(spent(1000, 100_000_000, 1_000_000_000));
        assert!(governor.period_ns() > 4_000_000);
        governor.adjust(spent(1200, 100_200_000, 6_000_000_000));
        assert_eq!(governor.period_ns(), 1_000_000);
    }
}
