//! Where the innermost Go frame of a stopped guest keeps its return address: the candidates, the likeliest first.
//!
//! Reading the body says how far SP is below it ([`crate::body`]). But the compiler may have moved code over the
//! instruction that sets SP, code on its way to a block (the dispatch) is at the depth of either the entry or the rest,
//! and all returns of a function share an epilogue. So every depth that the function has is a candidate if what is there
//! is a return address that can be: the caller is on the wasm stack, stands at a call instruction, and what that call
//! pushed is a constant in its code. Memory is full of return addresses of calls that are over, so whoever takes a
//! candidate has to see whether the whole stack holds.

use crate::{
    body::{Body, Place},
    code::{Code, Role},
    pclntab,
};
use wlprof_plugin::{GuestMemory, WasmFrame};

/// Tail calls in a row that are looked through.
const MOST_TAIL_CALLS: usize = 16;

/// What the return address of the innermost Go frame has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnTarget {
    /// What the caller on the wasm stack pushed.
    Exactly(u64),
    /// That of any call of the function: it was resumed, and its caller is not on the wasm stack.
    AnyCall,
}

/// A depth of SP below the return address, and that return address.
pub(crate) type Candidate = (i32, u64);

/// What `callers`, the wasm frames from the caller of a Go function on, say about its return address.
pub(crate) fn expected(code: &mut Code, callers: &[WasmFrame]) -> ReturnTarget {
    for frame in callers.iter().take(MOST_TAIL_CALLS) {
        let (Role::Go(index) | Role::Export(index) | Role::Bare(index)) = code.role(*frame) else { break };
        let Some(body) = code.body(index) else { break };
        match body.call(frame.code_offset) {
            Some(call) => {
                if let Some(pc) = call.return_pc {
                    return ReturnTarget::Exactly(pc);
                }
                // A tail call: the frame is gone from Go's stack, so go on with the next.
            }
            None => break,
        }
    }
    ReturnTarget::AnyCall
}

/// How sure a return address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    No,
    /// Some call pushes it, of another function: right if that function then made a tail call.
    AnyCall,
    /// A call that may be of this function pushes it.
    ThisCall,
}

fn fit(code: &mut Code, callee: u32, expected: ReturnTarget, return_pc: u64) -> Fit {
    if let ReturnTarget::Exactly(pc) = expected {
        return if pc == return_pc { Fit::ThisCall } else { Fit::No };
    }
    let Some(caller) = code.table.index(return_pc) else { return Fit::No };
    let block = pclntab::block(return_pc);
    // Planted at the roots of stacks, where nothing called: past the first block of `goexit`, at the entry of `mstart`.
    if Some(caller) == code.special.goexit && block == 1 || Some(caller) == code.special.mstart && block == 0 {
        return Fit::ThisCall;
    }
    if block == 0 {
        // What calls `morestack` starts again from there instead of returning.
        return Fit::No;
    }
    let Some(body) = code.body(caller) else { return Fit::No };
    match body.target_of_return(return_pc) {
        Some(target) if target.is_none_or(|target| code.is_own(target, callee)) => Fit::ThisCall,
        Some(_) => Fit::AnyCall,
        None => Fit::No,
    }
}

/// The depths that SP may have below the return address of function `index`, interrupted at `frame`: the likeliest first,
/// some twice.
pub(crate) fn depths(body: &Body, frame: WasmFrame) -> impl Iterator<Item = i32> + '_ {
    let state = body.state(frame.code_offset);
    // Being taken down, SP is another goroutine's; but all returns have the same epilogue, after the return address is
    // popped.
    let first = if state.place == Place::Unwinding { Some(-8) } else { state.depth };
    first.into_iter().chain(body.depths.iter().copied())
}

/// The return address at a depth, and how well it fits.
pub(crate) fn candidate(
    code: &mut Code,
    guest: &dyn GuestMemory,
    index: u32,
    sp: u64,
    depth: i32,
    expected: ReturnTarget,
) -> (Fit, Candidate) {
    match guest.read_u64(sp.wrapping_add_signed(i64::from(depth))) {
        Ok(return_pc) => (fit(code, index, expected, return_pc), (depth, return_pc)),
        Err(_) => (Fit::No, (depth, 0)),
    }
}

/// The pc at which the goroutine whose stack pointer is `sp` will be resumed, if one is being switched to.
pub(crate) fn resumed(code: &mut Code, guest: &dyn GuestMemory, sp: u64) -> Option<u64> {
    let pc = guest.read_u64(sp.wrapping_sub(8)).ok()?;
    let function = code.table.index(pc).and_then(|index| code.table.function(index))?;
    (pclntab::block(pc) < code.table.blocks(&function)).then_some(pc)
}
