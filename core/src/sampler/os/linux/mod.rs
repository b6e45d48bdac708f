//! Linux: events that interrupt a thread, its signal mask and its stack, and a look at it from outside.

pub(in crate::sampler) mod cpu_event;
pub(in crate::sampler) mod memory;
pub(in crate::sampler) mod own_thread;
pub(in crate::sampler) mod perf_marker;
pub(in crate::sampler) mod processors;
pub(in crate::sampler) mod thread_watch;

pub(in crate::sampler) use super::posix_clock as clock;
