//! What stops a guest so that it can be read.

pub(super) mod epoch;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) mod signal;
