//! Puts JavaScript frames among wasm frames.
//!
//! Each wasm frame of the interpreter's loop runs one function in bytecode, and each of the functions that call native
//! ones runs one of those: so they are put in their places, and the other wasm frames, C code that JavaScript called, stay
//! in theirs. There must be as many of either kind, in the same order.

use crate::{
    chain::Frame,
    roles::{Role, Roles},
};
use wlprof_plugin::{FrameSink, Truncation, WasmFrame};

/// Writes the stack of `frames` into `out`, which were read to the root if `read` says so.
pub(crate) fn merge(
    frames: &[Frame],
    read: Result<(), Truncation>,
    roles: &Roles,
    wasm: &[WasmFrame],
    out: &mut FrameSink,
) -> Result<(), Truncation> {
    if frames.is_empty() {
        read?;
    }
    if !roles.has_loop() || wasm.is_empty() {
        return push_all(frames, read, out);
    }
    if read.is_err() {
        return side_by_side(frames, read, roles, wasm, out);
    }
    let places = slots(roles, wasm).count();
    let is_cut = wasm.len() >= FrameSink::CAPACITY;
    // A function that has just been called has no frame yet, and one that returns none any more.
    let bare = match places.checked_sub(frames.len()) {
        Some(bare) if bare <= 1 => bare,
        None if is_cut => usize::from(!fits(frames, 0, roles, wasm)),
        _ => return side_by_side(frames, Err(Truncation::Inconsistent), roles, wasm, out),
    };
    if !fits(frames, bare, roles, wasm) {
        return side_by_side(frames, Err(Truncation::Inconsistent), roles, wasm, out);
    }
    let mut slots = slots(roles, wasm).skip(bare);
    let mut frames = frames.iter();
    let mut next = slots.next();
    for index in 0..wasm.len() {
        match next {
            Some((slot, _)) if slot == index => {
                next = slots.next();
                out.push(frames.next().ok_or(Truncation::TooDeep)?.key)?;
            }
            _ => out.push_wasm(index)?,
        }
    }
    if !is_cut {
        return Ok(());
    }
    // What the wasm stack was cut before.
    frames.try_for_each(|frame| out.push(frame.key))?;
    Err(Truncation::TooDeep)
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

fn push_all(frames: &[Frame], read: Result<(), Truncation>, out: &mut FrameSink) -> Result<(), Truncation> {
    frames.iter().try_for_each(|frame| out.push(frame.key))?;
    read
}

/// Where the two stacks do not fit together: what surely is innermost, then JavaScript's frames alone.
fn side_by_side(
    frames: &[Frame],
    read: Result<(), Truncation>,
    roles: &Roles,
    wasm: &[WasmFrame],
    out: &mut FrameSink,
) -> Result<(), Truncation> {
    let innermost = slots(roles, wasm).next().map_or(0, |(index, _)| index);
    (0..innermost).try_for_each(|index| out.push_wasm(index))?;
    push_all(frames, read, out)
}
