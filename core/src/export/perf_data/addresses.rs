//! Gives every line that was seen an address, since perf knows frames by nothing else.
//!
//! A function is a range of addresses and each of its lines a slot in it. Inlined functions are functions like others, so
//! that readers show them without knowing of inlining.

use crate::recording::{FunctionId, Line, Recording};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a slot: one instruction of the made-up code.
pub(super) const SLOT: u64 = 8;

/// Address of the first slot. Also its offset in the ELF file and its address there, so that addresses in perf's output
/// are those that `addr2line` takes.
pub(super) const START: u64 = 0x1000;

/// The function that stands for frames that a sample has no room for.
const CUT: u64 = START;

/// Where everything is.
pub(super) struct Addresses {
    /// By function, then by line; a line that is unknown comes first.
    slots: BTreeMap<(FunctionId, Option<u32>), u64>,
    /// The end of the last slot.
    pub(super) end: u64,
}

/// A function and its lines.
pub(super) struct PlacedFunction {
    pub(super) function: FunctionId,
    pub(super) addresses: Range<u64>,
    /// The start of each slot and the line it stands for.
    pub(super) lines: Vec<(u64, Option<u32>)>,
}

impl Addresses {
    /// Places all lines of `recording`.
    pub(super) fn of(recording: &Recording) -> Self {
        let lines = recording.frames.iter().flat_map(|frame| &frame.lines);
        let mut slots: BTreeMap<_, u64> = lines.map(|line| ((line.function, line.line), 0)).collect();
        let mut end = CUT + SLOT;
        for slot in slots.values_mut() {
            *slot = end;
            end += SLOT;
        }
        Self { slots, end }
    }

    /// The address that stands for `line` in a stack. It is inside the slot: readers take one off callers' addresses, which
    /// elsewhere are those of the instruction after the call.
    pub(super) fn instruction_pointer(&self, line: Line) -> u64 {
        self.slots[&(line.function, line.line)] + SLOT / 2
    }

    /// The address that stands for frames left out.
    pub(super) fn cut(&self) -> u64 {
        CUT + SLOT / 2
    }

    /// The addresses of the function that stands for frames left out.
    pub(super) fn cut_function(&self) -> Range<u64> {
        CUT..CUT + SLOT
    }

    /// All functions in order of their addresses.
    pub(super) fn functions(&self) -> Vec<PlacedFunction> {
        let mut functions: Vec<PlacedFunction> = Vec::new();
        for (&(function, line), &address) in &self.slots {
            match functions.last_mut().filter(|last| last.function == function) {
                Some(last) => {
                    last.addresses.end = address + SLOT;
                    last.lines.push((address, line));
                }
                None => functions.push(PlacedFunction {
                    function,
                    addresses: address..address + SLOT,
                    lines: vec![(address, line)],
                }),
            }
        }
        functions
    }
}
