//! Puts Python frames among wasm frames.
//!
//! A wasm frame of the interpreter's loop stands for all the Python functions that this activation of it runs, since
//! calls from Python to Python stay in the loop. C code that Python called is on the wasm stack between that activation
//! and the next, or the leaf, and so comes out where it belongs.

use crate::{
    chain::Chain,
    functions::{Functions, Role},
};
use wlprof_plugin::{FrameSink, Truncation, WasmFrame};

/// Writes the stack of a chain into `out`, which was read to its end if `read` says so.
pub(crate) fn merge(
    chain: &Chain,
    read: Result<(), Truncation>,
    functions: &Functions,
    wasm: &[WasmFrame],
    out: &mut FrameSink,
) -> Result<(), Truncation> {
    if chain.frames.is_empty() {
        read?;
    }
    if !functions.has_eval() || wasm.is_empty() {
        return push_all(&chain.frames, read, out);
    }
    let is_eval = |frame: &WasmFrame| functions.role(*frame) == Role::Eval;
    let loops = wasm.iter().filter(|frame| is_eval(frame)).count();
    let activations = chain.activations.len();
    // An activation that has just begun or is about to end has no Python frame.
    let is_bare = read.is_ok() && loops == activations + 1 && wasm.first().is_some_and(is_eval);
    let is_cut = wasm.len() >= FrameSink::CAPACITY && loops < activations;
    if read.is_ok() && loops != activations && !is_bare && !is_cut {
        return side_by_side(chain, Err(Truncation::Inconsistent), &is_eval, wasm, out);
    }
    if read.is_err() && wasm.first().is_some_and(is_eval) {
        // Whether the innermost loop has a frame cannot be told by counting.
        return side_by_side(chain, read, &is_eval, wasm, out);
    }
    let mut groups = chain.groups();
    let mut skipped = !is_bare;
    for (index, frame) in wasm.iter().enumerate() {
        let mut pushed = 0;
        if is_eval(frame) && std::mem::replace(&mut skipped, true) {
            for &key in groups.next().unwrap_or_default() {
                out.push(key)?;
                pushed += 1;
            }
        }
        if pushed == 0 {
            out.push_wasm(index)?;
        }
    }
    // What the wasm stack was cut before.
    if is_cut {
        groups.flatten().try_for_each(|&key| out.push(key))?;
        read?;
        return Err(Truncation::TooDeep);
    }
    read
}

fn push_all(frames: &[u64], read: Result<(), Truncation>, out: &mut FrameSink) -> Result<(), Truncation> {
    frames.iter().try_for_each(|&key| out.push(key))?;
    read
}

/// Where the two stacks do not fit together: what surely is innermost, then Python's frames alone.
fn side_by_side(
    chain: &Chain,
    read: Result<(), Truncation>,
    is_eval: &dyn Fn(&WasmFrame) -> bool,
    wasm: &[WasmFrame],
    out: &mut FrameSink,
) -> Result<(), Truncation> {
    let innermost = wasm.iter().position(is_eval).unwrap_or(0);
    (0..innermost).try_for_each(|index| out.push_wasm(index))?;
    push_all(&chain.frames, read, out)
}
