//! Architectures on which threads are not interrupted: walks begin where wasm called the host. In Cranelift's code for all
//! of them `[fp]` is the caller's frame pointer and the word after it the return address, as on x86-64; where that does not
//! hold the self-check says so.

/// The registers that a walk begins with.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct Registers {
    /// Address of the instruction about to run.
    pub(in crate::sampler) pc: usize,
    /// Stack pointer.
    pub(in crate::sampler) sp: usize,
    /// A signal handler was interrupted.
    pub(in crate::sampler) is_on_signal_stack: bool,
}

/// Return address and frame pointer of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) struct Caller {
    /// The address that the callee returns to.
    pub(in crate::sampler) return_pc: usize,
    /// The caller's frame pointer.
    pub(in crate::sampler) fp: usize,
}

/// Finds nothing: no function is interrupted.
///
/// # Safety
/// None.
pub(in crate::sampler) unsafe fn caller_of_interrupted(_: Registers, _: usize, _: &[u8], _: usize) -> Option<Caller> {
    None
}

/// The address in a word that a call has saved to return to.
pub(in crate::sampler) fn return_address(saved: usize) -> usize {
    saved
}

/// Length of a call to an address that the instruction has in it: not known.
pub(in crate::sampler) const DIRECT_CALL: usize = 0;

/// What a call calls: not known.
pub(in crate::sampler) fn directly_called(_: [u8; DIRECT_CALL], _return_pc: usize) -> Option<usize> {
    None
}
