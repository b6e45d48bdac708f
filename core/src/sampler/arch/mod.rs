//! What the walk must know of a processor, a file for each: registers of an interrupted thread, the caller of a prologue
//! that was interrupted, call instructions.

#[cfg(target_arch = "x86_64")]
pub(super) mod x86_64;
