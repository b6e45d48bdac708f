//! Gives every line that was seen an address, since perf knows frames by nothing else.
//!
//! A function is a range of addresses and each of its lines a slot in it. Inlined functions are functions like others, so
//! that readers show them without knowing of inlining.

use std::collections::BTreeMap;
use std::ops::Range;
use wlprof_recording::{FunctionId, Line, Recording, StackId};

/// Bytes of a slot: one instruction of the made-up code.
pub(super) const SLOT: u64 = 8;

/// Address of the first slot. Also its offset in the ELF file and its address there, so that addresses in perf's output
/// are those that `addr2line` takes.
pub(super) const START: u64 = 0x1000;

/// The most lines of a stack that are written: a record's size has 16 bits.
pub(super) const LONGEST_CHAIN: usize = 8000;

/// Where everything is.
pub(super) struct Addresses {
    /// By function, then by line; a line that is unknown comes first.
    slots: BTreeMap<(FunctionId, Option<u32>), u64>,
    /// The slot that stands for the lines that a stack has no room for, if there is such a stack.
    pub(super) cut: Option<u64>,
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
        let mut end = START;
        for slot in slots.values_mut() {
            *slot = end;
            end += SLOT;
        }
        let cut = (longest_chain(recording) > LONGEST_CHAIN).then_some(end);
        end += cut.map_or(0, |_| SLOT);
        Self { slots, cut, end }
    }

    /// The address that stands for `line` in a stack. It is inside the slot: readers take one off callers' addresses, which
    /// elsewhere are those of the instruction after the call.
    fn instruction_pointer(&self, line: Line) -> u64 {
        self.slots[&(line.function, line.line)] + SLOT / 2
    }

    /// The addresses of the lines of `stack`, leaf first.
    pub(super) fn chain(&self, recording: &Recording, stack: StackId) -> Vec<u64> {
        let mut chain: Vec<u64> = recording.lines_of(stack).map(|line| self.instruction_pointer(line)).collect();
        if let Some(cut) = self.cut.filter(|_| chain.len() > LONGEST_CHAIN) {
            chain.truncate(LONGEST_CHAIN);
            chain.push(cut + SLOT / 2);
        }
        chain
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

fn longest_chain(recording: &Recording) -> usize {
    let mut lengths: Vec<usize> = Vec::with_capacity(recording.stacks.len());
    for stack in &recording.stacks {
        // A parent stands before its children.
        let callers = stack.parent.map_or(0, |parent| lengths[parent as usize]);
        lengths.push(callers + recording.frames[stack.frame as usize].lines.len());
    }
    lengths.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_plugin::SourceFrame;
    use wlprof_recording::{Frame, Origin, testing};

    /// A stack of as many frames, all of one function.
    fn recursion(frames: usize) -> Recording {
        let mut recorder = testing::recorder();
        let frame = recorder.frame(Origin::Host);
        recorder.stack(std::iter::repeat_n(frame, frames)).unwrap();
        testing::finish(recorder, &mut |_: &Origin, out: &mut Vec<SourceFrame>| {
            out.push(SourceFrame { function: "f".into(), ..SourceFrame::default() });
        })
    }

    #[test]
    fn what_a_record_has_no_room_for_is_labelled() {
        for (frames, expected) in
            [(LONGEST_CHAIN, LONGEST_CHAIN), (LONGEST_CHAIN + 1, LONGEST_CHAIN + 1), (9000, LONGEST_CHAIN + 1)]
        {
            let recording = recursion(frames);
            let addresses = Addresses::of(&recording);
            let chain = addresses.chain(&recording, frames as StackId - 1);
            assert_eq!(chain.len(), expected);
            let is_cut = frames > LONGEST_CHAIN;
            assert_eq!(addresses.cut.is_some(), is_cut);
            assert_eq!(*chain.last().unwrap() == chain[0], !is_cut);
        }
    }

    #[test]
    fn lines_of_a_function_are_its_slots() {
        let mut recording = recursion(1);
        let line = |line| Line { function: 0, line, column: None };
        recording.frames.push(Frame { origin: Origin::Host, lines: vec![line(Some(7)), line(Some(3)), line(None)] });
        let addresses = Addresses::of(&recording);
        let functions = addresses.functions();
        assert_eq!(functions.len(), 1);
        assert_eq!(functions[0].addresses, START..START + 3 * SLOT);
        let expected = [(START, None), (START + SLOT, Some(3)), (START + 2 * SLOT, Some(7))];
        assert_eq!(functions[0].lines, expected);
        assert_eq!(addresses.instruction_pointer(line(Some(3))), START + SLOT + SLOT / 2);
    }
}
