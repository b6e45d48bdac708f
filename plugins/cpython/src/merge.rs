//! Puts Python frames among wasm frames.
//!
//! A wasm frame of the interpreter's loop stands for all the Python functions that this activation of it runs, since
//! calls from Python to Python stay in the loop. C code that Python called is on the wasm stack between that activation
//! and the next, or the leaf, and so comes out where it belongs.

use crate::{
    chain::Chain,
    functions::{Functions, Role},
};
use wlprof_plugin::{FrameSink, WalkEnd, WasmFrame};

/// Writes the stack of a chain that was read to `end` into `out`.
pub(crate) fn merge(
    chain: &Chain,
    end: WalkEnd,
    functions: &Functions,
    wasm: &[WasmFrame],
    out: &mut FrameSink,
) -> WalkEnd {
    if chain.frames.is_empty() && end != WalkEnd::Complete {
        return end;
    }
    if !functions.has_eval() || wasm.is_empty() {
        return push_all(&chain.frames, end, out);
    }
    let is_eval = |frame: &WasmFrame| functions.role(*frame) == Role::Eval;
    let loops = wasm.iter().filter(|frame| is_eval(frame)).count();
    let activations = chain.activations.len();
    // An activation that has just begun or is about to end has no Python frame.
    let is_bare = end == WalkEnd::Complete && loops == activations + 1 && wasm.first().is_some_and(is_eval);
    let is_cut = wasm.len() >= FrameSink::CAPACITY && loops < activations;
    if end == WalkEnd::Complete && loops != activations && !is_bare && !is_cut {
        return side_by_side(chain, WalkEnd::Inconsistent, &is_eval, wasm, out);
    }
    if end != WalkEnd::Complete && wasm.first().is_some_and(is_eval) {
        // Whether the innermost loop has a frame cannot be told by counting.
        return side_by_side(chain, end, &is_eval, wasm, out);
    }
    let end = if end == WalkEnd::Complete && is_cut { WalkEnd::TooDeep } else { end };
    let mut groups = chain.groups();
    let mut skipped = !is_bare;
    for (index, frame) in wasm.iter().enumerate() {
        let mut pushed = 0;
        if is_eval(frame) && std::mem::replace(&mut skipped, true) {
            for &key in groups.next().unwrap_or_default() {
                pushed += 1;
                if !out.push(key) {
                    return WalkEnd::TooDeep;
                }
            }
        }
        if pushed == 0 && !out.push_wasm(index) {
            return WalkEnd::TooDeep;
        }
    }
    // What the wasm stack was cut before.
    if is_cut {
        for &key in groups.flatten() {
            if !out.push(key) {
                return WalkEnd::TooDeep;
            }
        }
    }
    end
}

fn push_all(frames: &[u64], end: WalkEnd, out: &mut FrameSink) -> WalkEnd {
    if frames.iter().all(|&key| out.push(key)) { end } else { WalkEnd::TooDeep }
}

/// Where the two stacks do not fit together: what surely is innermost, then Python's frames alone.
fn side_by_side(
    chain: &Chain,
    end: WalkEnd,
    is_eval: &dyn Fn(&WasmFrame) -> bool,
    wasm: &[WasmFrame],
    out: &mut FrameSink,
) -> WalkEnd {
    let innermost = wasm.iter().position(is_eval).unwrap_or(0);
    for index in 0..innermost {
        if !out.push_wasm(index) {
            return WalkEnd::TooDeep;
        }
    }
    push_all(&chain.frames, end, out)
}
