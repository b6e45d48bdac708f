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
