//! What a walk must know of a machine's code, a file for each architecture. One place chooses: this one.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as this;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
use other as this;
#[cfg(target_arch = "x86_64")]
use x86_64 as this;

pub(super) use this::{Caller, DIRECT_CALL, Registers, caller_of_interrupted, directly_called, return_address};
