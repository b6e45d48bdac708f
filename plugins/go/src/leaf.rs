//! Where the innermost Go frame of a stopped guest keeps its return address.
//!
//! Reading the body says how far SP is below it ([`crate::body`]). That is checked wherever it can be: the caller is on
//! the wasm stack, stands at a call instruction, and what that call pushed is a constant in its code. Where the two do
//! not agree, another depth of the same function must: the compiler may have moved code over the instruction that sets
//! SP, and code on its way to a block (the dispatch) is at the depth of either the entry or the rest.

use crate::{
    body::{Body, Place},
    pclntab,
    program::{Program, Role},
};
use wlprof_plugin::{GuestMemory, WasmFrame};

/// Tail calls in a row that are looked through.
const MOST_TAIL_CALLS: usize = 16;

/// What the return address of the innermost Go frame has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// What the caller on the wasm stack pushed.
    Exactly(u64),
    /// That of any call of the function: it was resumed, and its caller is not on the wasm stack.
    AnyCall,
}

/// What `callers`, the wasm frames from the caller of a Go function on, say about its return address.
pub(crate) fn expected(program: &mut Program, callers: &[WasmFrame]) -> Expected {
    for frame in callers.iter().take(MOST_TAIL_CALLS) {
        let (Role::Go(index) | Role::Export(index) | Role::Bare(index)) = program.role(*frame) else { break };
        let Some(body) = program.body(index) else { break };
        match body.call(frame.code_offset) {
            Some(call) => {
                if let Some(pc) = call.return_pc {
                    return Expected::Exactly(pc);
                }
                // A tail call: the frame is gone from Go's stack, so go on with the next.
            }
            None => break,
        }
    }
    Expected::AnyCall
}

/// How sure a return address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    No,
    /// Some call pushes it, of another function: right if that function then made a tail call.
    AnyCall,
    /// A call that may be of this function pushes it.
    ThisCall,
}

fn fit(program: &mut Program, callee: u32, expected: Expected, return_pc: u64) -> Fit {
    if let Expected::Exactly(pc) = expected {
        return if pc == return_pc { Fit::ThisCall } else { Fit::No };
    }
    let Some(caller) = program.table.index(return_pc) else { return Fit::No };
    let block = pclntab::block(return_pc);
    // Planted at the roots of stacks, where nothing called: past the first block of `goexit`, at the entry of `mstart`.
    if Some(caller) == program.special.goexit && block == 1 || Some(caller) == program.special.mstart && block == 0 {
        return Fit::ThisCall;
    }
    let Some(body) = program.body(caller) else { return Fit::No };
    match body.target_of_return(return_pc) {
        Some(target) if target.is_none_or(|target| program.is_own(target, callee)) => Fit::ThisCall,
        Some(_) => Fit::AnyCall,
        None => Fit::No,
    }
}

/// The depth of SP below the return address of `frame`, function `index`, and that return address.
pub(crate) fn find(
    program: &mut Program,
    guest: &dyn GuestMemory,
    index: u32,
    body: &Body,
    frame: WasmFrame,
    sp: u64,
    expected: Expected,
) -> Option<(i32, u64)> {
    let state = body.state(frame.code_offset);
    if state.place == Place::Unwinding {
        return None;
    }
    let depths = state.depth.into_iter().chain(body.depths.iter().copied());
    let mut best = (Fit::No, None);
    for depth in depths {
        let Ok(return_pc) = guest.read_u64(sp.wrapping_add_signed(i64::from(depth))) else { continue };
        let fit = fit(program, index, expected, return_pc);
        if fit == Fit::ThisCall {
            return Some((depth, return_pc));
        }
        if fit > best.0 {
            best = (fit, Some((depth, return_pc)));
        }
    }
    // Just after a call, it may be that the goroutine was switched and SP is not this function's.
    best.1.filter(|_| state.place != Place::AfterCall)
}

/// The pc at which the goroutine whose stack pointer is `sp` will be resumed, if one is being switched to.
pub(crate) fn resumed(program: &mut Program, guest: &dyn GuestMemory, sp: u64) -> Option<u64> {
    let pc = guest.read_u64(sp.wrapping_sub(8)).ok()?;
    let function = program.table.index(pc).and_then(|index| program.table.function(index))?;
    (pclntab::block(pc) < program.table.blocks(&function)).then_some(pc)
}
