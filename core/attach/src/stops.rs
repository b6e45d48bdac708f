//! How long threads stand still for samples, and how often they may.

use std::time::Duration;

/// Stops whose times are kept.
const MAX_STOPS: usize = 100_000;

/// How much of what is known of earlier instants stays known at one.
const MEMORY: f64 = 0.95;

/// How many times as long as usual a stop counts at most. Once an instance is found for the first time, or this process has no processor: that
/// says little of the next ones.
const MAX_RATIO: f64 = 4.0;

/// Threads that are waited for longer than this stop late for reasons of their own.
const LONGEST_LATENESS: Duration = Duration::from_micros(200);

/// What part of a turn a stop may come late without a note.
const MAX_OFF: f64 = 0.02;

/// The stops of all threads.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    all_ns: Vec<u64>,
    /// Of the instant now: the longest stop of a thread.
    longest: Duration,
    /// What an instant takes of a thread, on average of the last ones: at first as much as it may. `None` before the first.
    usual_ns: Option<f64>,
    /// How long after it was looked at a thread that runs stops, on average of the last ones.
    late_ns: f64,
    /// For how long threads of guests ran in all, and in how many turns.
    ran: Duration,
    turns: u64,
}

impl Stops {
    /// Notes that a thread stood still for so long; and how long after it was looked at, if it ran then.
    pub(crate) fn add(&mut self, stood: Duration, late: Option<Duration>) {
        if let Some(late) = late {
            self.late_ns = self.late_ns * MEMORY + late.as_nanos() as f64 * (1.0 - MEMORY);
        }
        self.longest = self.longest.max(stood);
        if self.all_ns.len() < MAX_STOPS {
            self.all_ns.push(stood.as_nanos() as u64);
        }
    }

    /// Returns how long after it was looked at a thread that runs stops.
    pub(crate) fn lateness(&self) -> Duration {
        Duration::from_nanos(self.late_ns as u64).min(LONGEST_LATENESS)
    }

    /// Notes that a thread of a guest has run for so long, in so many turns.
    pub(crate) fn ran(&mut self, time: Duration, turns: u64) {
        self.ran += time;
        self.turns += turns;
    }

    /// Returns what the user should know of threads that run so shortly that they are elsewhere when they stop; `None` if they do not.
    pub(crate) fn note(&self) -> Option<String> {
        let turn_us = self.ran.as_secs_f64() * 1e6 / self.turns as f64;
        let late_us = self.lateness().as_secs_f64() * 1e6;
        let off = late_us / turn_us;
        (off > MAX_OFF).then(|| {
            format!(
                "the guest runs for {turn_us:.0} µs at a time and stops {late_us:.0} µs after it is looked at: shares of what it does first \
                 and last may be off by {:.0} %",
                off.min(1.0) * 100.0
            )
        })
    }

    /// Returns how long the next period is to be, if a thread may stand still for the part `max_overhead` of its time: `period`, or longer.
    pub(crate) fn next_period(&mut self, period: Duration, max_overhead: f64) -> Duration {
        let longest_ns = std::mem::take(&mut self.longest).as_nanos() as f64;
        let usual_ns = self.usual_ns.get_or_insert(period.as_nanos() as f64 * max_overhead);
        if longest_ns > 0.0 {
            *usual_ns = *usual_ns * MEMORY + longest_ns.min(*usual_ns * MAX_RATIO) * (1.0 - MEMORY);
        }
        period.max(Duration::from_nanos((*usual_ns / max_overhead) as u64))
    }

    /// Returns the median and the 99th percentile of all stops, in nanoseconds.
    pub(crate) fn percentiles(&mut self) -> (u64, u64) {
        self.all_ns.sort_unstable();
        let percentile = |part: usize| self.all_ns.get(self.all_ns.len() * part / 100).copied().unwrap_or(0);
        (percentile(50), percentile(99))
    }
}

#[cfg(test)]
mod tests {
    use super::Stops;
    use std::time::Duration;

    #[test]
    fn long_stops_make_periods_longer_and_short_ones_do_not() {
        let mut stops = Stops::default();
        let period = Duration::from_millis(10);
        assert_eq!(stops.next_period(period, 0.02), period);
        stops.add(Duration::from_micros(100), None);
        assert_eq!(stops.next_period(period, 0.02), period);
        stops.add(Duration::from_millis(100), None);
        assert!(stops.next_period(period, 0.02) < Duration::from_millis(12));
        for _ in 0..200 {
            stops.add(Duration::from_millis(1), None);
            let next = stops.next_period(period, 0.02);
            assert!((period..=Duration::from_millis(50)).contains(&next), "{next:?}");
        }
        stops.add(Duration::from_millis(1), None);
        assert!(stops.next_period(period, 0.02) > Duration::from_millis(49));
        assert_eq!(stops.percentiles().0, 1_000_000);
    }

    #[test]
    fn short_turns_are_noted() {
        let mut stops = Stops::default();
        for _ in 0..1000 {
            stops.add(Duration::from_micros(100), Some(Duration::from_micros(20)));
            stops.ran(Duration::from_millis(2), 1);
        }
        assert_eq!(stops.note(), None);
        stops.ran(Duration::ZERO, 9000);
        let note = stops.note().unwrap();
        assert!(note.contains("runs for 200 µs") && note.ends_with("off by 10 %"), "{note}");
    }
}
