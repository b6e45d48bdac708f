//! The clocks that runs are measured with.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Readings of the clocks, or the time between two of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// CPU time of the calling thread.
    pub(crate) thread_cpu: Duration,
    /// CPU time of the process, threads that have ended included.
    pub(crate) process_cpu: Duration,
    /// Time.
    pub(crate) wall: Duration,
}

/// Begins to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    thread_cpu: Duration,
    process_cpu: Duration,
    wall: Instant,
}

impl Stopwatch {
    /// Reads all clocks.
    pub(crate) fn start() -> Self {
        Self {
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
        }
    }

    /// CPU time of the process since the start. May be called on any thread.
    pub(crate) fn process_cpu_elapsed(&self) -> Duration {
        read(ClockId::ProcessCPUTime) - self.process_cpu
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // The clocks of CPU time never run below zero.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
