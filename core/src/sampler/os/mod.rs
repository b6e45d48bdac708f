//! What the samplers ask of the operating system. One place chooses: this one.

pub(super) mod clock;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(super) use linux::{memory, own_thread, thread_timer, thread_watch};
#[cfg(not(target_os = "linux"))]
pub(super) use other::{memory, own_thread, thread_timer, thread_watch};

/// What a timer goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum TimerClock {
    /// CPU time of the thread that makes it.
    OwnCpu,
    /// Time that goes by.
    Monotonic,
}

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
