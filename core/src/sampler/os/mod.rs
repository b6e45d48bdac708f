//! What the samplers ask of the operating system. One place chooses: this one. Each system has a file or a folder with all that
//! is asked of it; what several of them share stands beside those.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(not(windows))]
pub(super) mod posix_clock;
#[cfg(not(target_os = "linux"))]
pub(super) mod unwatched;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as this;
#[cfg(target_os = "macos")]
use macos as this;
#[cfg(windows)]
use windows as this;

pub(super) use this::{clock, cpu_event, memory, own_thread, perf_marker, processors, thread_watch};

/// Where a thread is, seen from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Activity {
    /// On a processor.
    Running,
    /// Waiting for a processor.
    Queued,
    /// Asleep in a system call that a signal would interrupt.
    Blocked,
    /// Stopped, or asleep in a page fault or an uninterruptible system call.
    Stuck,
    /// Gone.
    Dead,
}
