//! The clocks that runs are measured with.

use anyhow::{Context, Result};
#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Clocks of CPU time where safe code is told none.
#[cfg(windows)]
enum ClockId {
    ProcessCPUTime,
    ThreadCPUTime,
}

/// Readings of the clocks, or the time between two of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// CPU time of the calling thread.
    pub(crate) thread_cpu: Duration,
    /// CPU time of the process, threads that have ended included.
    pub(crate) process_cpu: Duration,
    /// Time.
    pub(crate) wall: Duration,
    /// Time that the calling thread waited for a processor, and that the host gave this machine none, per processor.
    pub(crate) without_processor: Duration,
}

/// Begins to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    thread_cpu: Duration,
    process_cpu: Duration,
    wall: Instant,
    without_processor: Duration,
}

impl Stopwatch {
    /// Reads all clocks.
    pub(crate) fn start() -> Self {
        Self {
            without_processor: without_processor(),
            wall: Instant::now(),
            process_cpu: read(ClockId::ProcessCPUTime),
            thread_cpu: read(ClockId::ThreadCPUTime),
        }
    }

    /// Time since the start. To be called on the thread that started.
    pub(crate) fn elapsed(&self) -> Times {
        Times {
            thread_cpu: read(ClockId::ThreadCPUTime) - self.thread_cpu,
            process_cpu: self.process_cpu_elapsed(),
            wall: self.wall.elapsed(),
            without_processor: without_processor().saturating_sub(self.without_processor),
        }
    }

    /// CPU time of the process since the start. May be called on any thread.
    pub(crate) fn process_cpu_elapsed(&self) -> Duration {
        read(ClockId::ProcessCPUTime) - self.process_cpu
    }
}

/// Nothing: what sampling costs is not measured here.
#[cfg(windows)]
fn read(_clock: ClockId) -> Duration {
    Duration::ZERO
}

#[cfg(unix)]
fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // The clocks of CPU time never run below zero.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// How long a thread has run, and waited for a processor: what its `schedstat` says.
pub(crate) fn scheduled(path: &str) -> Result<(Duration, Duration)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().map(Duration::from_nanos));
    let mut next = || numbers.next().with_context(|| format!("{path} is too short"));
    Ok((next()??, next()??))
}

/// Time that the calling thread has had no processor; nothing where the system does not say.
fn without_processor() -> Duration {
    let waited = scheduled("/proc/thread-self/schedstat").map_or(Duration::ZERO, |(_, waited)| waited);
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let stolen = stat.lines().next().and_then(|line| line.split_ascii_whitespace().nth(8)?.parse::<f64>().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Hundredths of a second on every machine.
    waited + Duration::from_secs_f64(stolen.unwrap_or(0.0) / 100.0 / processors as f64)
}
