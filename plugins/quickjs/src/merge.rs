//! Puts JavaScript frames among wasm frames.
//!
//! Each wasm frame of the interpreter's loop runs one function in bytecode, and each of the functions that call native
//! ones runs one of those: so they are put in their places, and the other wasm frames, C code that JavaScript called, stay
//! in theirs. There must be as many of either kind, in the same order.

use crate::{
    chain::Frame,
    roles::{Role, Roles},
};
use wlprof_plugin::{FrameSink, WalkEnd, WasmFrame};

/// Writes the stack of `frames`, which were read to `end`, into `out`.
pub(crate) fn merge(frames: &[Frame], end: WalkEnd, roles: &Roles, wasm: &[WasmFrame], out: &mut FrameSink) -> WalkEnd {
    if frames.is_empty() && end != WalkEnd::Complete {
        return end;
    }
    if !roles.has_loop() || wasm.is_empty() {
        return push_all(frames, end, out);
    }
    if end != WalkEnd::Complete {
        return side_by_side(frames, end, roles, wasm, out);
    }
    let places = slots(roles, wasm).count();
    let is_cut = wasm.len() >= FrameSink::CAPACITY;
    // A function that has just been called has no frame yet, and one that returns none any more.
    let bare = match places.checked_sub(frames.len()) {
        Some(bare) if bare <= 1 => bare,
        None if is_cut => usize::from(!fits(frames, 0, roles, wasm)),
        _ => return side_by_side(frames, WalkEnd::Inconsistent, roles, wasm, out),
    };
    if !fits(frames, bare, roles, wasm) {
        return side_by_side(frames, WalkEnd::Inconsistent, roles, wasm, out);
    }
    let mut slots = slots(roles, wasm).skip(bare);
    let mut frames = frames.iter();
    let mut next = slots.next();
    for index in 0..wasm.len() {
        let is_pushed = match next {
            Some((slot, _)) if slot == index => {
                next = slots.next();
                frames.next().is_some_and(|frame| out.push(frame.key))
            }
            _ => out.push_wasm(index),
        };
        if !is_pushed {
            return WalkEnd::TooDeep;
        }
    }
    if !is_cut {
        return WalkEnd::Complete;
    }
    // What the wasm stack was cut before.
    for frame in frames {
        if !out.push(frame.key) {
            break;
        }
    }
    WalkEnd::TooDeep
}

/// Whether frames are of the kinds of their places, when the first `bare` places have none.
fn fits(frames: &[Frame], bare: usize, roles: &Roles, wasm: &[WasmFrame]) -> bool {
    slots(roles, wasm).skip(bare).zip(frames).all(|((_, role), frame)| (role == Role::Native) == frame.is_native)
}

/// Wasm frames that have a JavaScript frame, with their roles.
fn slots<'a>(roles: &'a Roles, wasm: &'a [WasmFrame]) -> impl Iterator<Item = (usize, Role)> + 'a {
    let mut callee = Role::Other;
    wasm.iter().enumerate().filter_map(move |(index, frame)| {
        let role = roles.of(*frame);
        let inner = std::mem::replace(&mut callee, role);
        match role {
            Role::Native => Some((index, role)),
            // The loop is entered for whatever is called, and passes on what is not bytecode.
            Role::Loop if !matches!(inner, Role::Native | Role::Passed) => Some((index, role)),
            _ => None,
        }
    })
}

fn push_all(frames: &[Frame], end: WalkEnd, out: &mut FrameSink) -> WalkEnd {
    if frames.iter().all(|frame| out.push(frame.key)) { end } else { WalkEnd::TooDeep }
}

/// Where the two stacks do not fit together: what surely is innermost, then JavaScript's frames alone.
fn side_by_side(frames: &[Frame], end: WalkEnd, roles: &Roles, wasm: &[WasmFrame], out: &mut FrameSink) -> WalkEnd {
    let innermost = slots(roles, wasm).next().map_or(0, |(index, _)| index);
    for index in 0..innermost {
        if !out.push_wasm(index) {
            return WalkEnd::TooDeep;
        }
    }
    push_all(frames, end, out)
}
