//! What a walk must know of a machine's code, a file for each architecture. One place chooses: this one.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::stack_memory::StackMemory;
#[cfg(target_arch = "aarch64")]
use aarch64 as this;
use std::ops::Range;
#[cfg(target_arch = "x86_64")]
use x86_64 as this;

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("wlprof walks code for x86-64 and aarch64: see docs/platforms.md");

pub(crate) use this::caller_of_interrupted;
pub use this::{
    DIRECT_CALL, LONGEST_INDIRECT_CALL, Registers, calls_indirectly, directly_called, has_tail_call, return_address,
};

/// Return address and frame pointer of a caller.
///
/// ```
/// let caller = wlprof_walk::Caller { return_pc: 0x1005, fp: 0x7000 };
/// assert!(caller.fp.is_multiple_of(16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The address that the callee returns to.
    pub return_pc: usize,
    /// The caller's frame pointer.
    pub fp: usize,
}

/// The word at `address`, which is read off code that may be made to look like something else: `None` outside of `stack`.
///
/// # Safety
/// `stack` must be memory of a stack that `memory` can read.
unsafe fn word(memory: &impl StackMemory, address: usize, stack: Range<usize>) -> Option<usize> {
    if !address.is_multiple_of(8) || !stack.contains(&address) {
        return None;
    }
    // SAFETY: `address` is aligned and lies within `stack`, which `memory` can read (see # Safety).
    unsafe { memory.word(address) }
}

/// Whether a signal handler was interrupted: `sp` is on the alternate stack of the thread with that context.
#[cfg(target_os = "linux")]
fn is_on_signal_stack(context: &libc::ucontext_t, sp: usize) -> bool {
    sp.wrapping_sub(context.uc_stack.ss_sp.addr()) < context.uc_stack.ss_size
}
