//! macOS.

pub(in crate::sampler) use super::posix_clock as clock;
pub(in crate::sampler) use super::unwatched::{cpu_event, memory, own_thread, perf_marker, processors, thread_watch};
