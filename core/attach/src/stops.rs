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
    calls: CallStops,
}

/// Stops of threads that ran when they were looked at, and how many of them were behind system calls.
///
/// A thread that is asked to stop does so when an interrupt comes, or when it comes back from a system call before that. Where interrupts take long,
/// most stops are of the second kind, wherever the thread was when it was looked at.
#[derive(Debug, Default)]
struct CallStops {
    all: u64,
    behind_calls: u64,
    /// Of the same threads and time: ticks of the system's clock in user code and in the kernel.
    user_ticks: u64,
    kernel_ticks: u64,
}

impl CallStops {
    /// Stops, and ticks, that say enough.
    const ENOUGH: u64 = 50;
    /// What part of all stops may be behind system calls beyond their part of the time without a note.
    const MAX_BEYOND: f64 = 0.1;

    fn note(&self, late: Duration) -> Option<String> {
        let ticks = self.user_ticks + self.kernel_ticks;
        let behind = self.behind_calls as f64 / self.all as f64;
        let kernel = self.kernel_ticks as f64 / ticks as f64;
        let is_known = self.all >= Self::ENOUGH && ticks >= Self::ENOUGH;
        (is_known && behind - kernel > Self::MAX_BEYOND).then(|| {
            format!(
                "{:.0} % of samples were taken as a thread came back from a system call, though the kernel has {:.0} % of its time: a thread stops \
                 {:.0} µs after it is looked at on this machine, and earlier where it calls the kernel; shares of host calls, and of what runs \
                 around them, are too large",
                behind * 100.0,
                kernel * 100.0,
                late.as_secs_f64() * 1e6
            )
        })
    }
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

    /// Notes that a thread that had run stopped behind a system call, or not, and how many ticks of the system's clock it has had since it was last
    /// noted, in user code and in the kernel.
    pub(crate) fn stopped(&mut self, is_behind_call: bool, (user_ticks, kernel_ticks): (u64, u64)) {
        self.calls.all += 1;
        self.calls.behind_calls += u64::from(is_behind_call);
        self.calls.user_ticks += user_ticks;
        self.calls.kernel_ticks += kernel_ticks;
    }

    /// Returns what the user should know of threads that are elsewhere when they stop than when they were looked at.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.turns_note().into_iter().chain(self.calls.note(self.lateness()))
    }

    /// What there is to say of threads that run so shortly that they are elsewhere when they stop; `None` if they do not.
    fn turns_note(&self) -> Option<String> {
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
        assert_eq!(stops.turns_note(), None);
        stops.ran(Duration::ZERO, 9000);
        let note = stops.turns_note().unwrap();
        assert!(note.contains("runs for 200 µs") && note.ends_with("off by 10 %"), "{note}");
    }

    #[test]
    fn stops_behind_system_calls_are_noted_beyond_their_part_of_the_time() {
        let stops = |behind: u64, kernel_ticks| {
            let mut stops = Stops::default();
            (0..100).for_each(|number| stops.stopped(number < behind, (100 - kernel_ticks, kernel_ticks)));
            stops.calls.note(Duration::from_micros(40))
        };
        assert_eq!((stops(3, 3), stops(60, 55), stops(2, 90)), (None, None, None));
        let note = stops(70, 4).unwrap();
        assert!(note.starts_with("70 % of samples") && note.contains("the kernel has 4 %"), "{note}");
    }
}
