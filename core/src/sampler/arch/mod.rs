//! What a walk must know of a machine's code, a file for each architecture. One place chooses: this one.

#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use other::{Caller, Registers, caller_of_interrupted};
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{Caller, Registers, caller_of_interrupted};
