//! macOS.

pub(in crate::sampler) use super::posix_clock as clock;
pub(in crate::sampler) use super::unwatched::{memory, own_thread, perf_marker, thread_timer, thread_watch};
