//! What the samplers ask of the operating system, a folder for each. One place chooses: this one.

pub(super) mod clock;
#[cfg(target_os = "linux")]
pub(super) mod linux;
