//! The few instructions at the start of the interpreter's loop in which it links its first frame to the thread.
//!
//! From 3.13 on the frame that marks an activation is a variable of the loop, and compilers fill it in after they have
//! made the thread point to what leads to it. A sample between those stores finds there whatever an earlier call left,
//! which may even look right; so such samples must be known.

use crate::layout::{Layout, Top};
use std::ops::Range;
use wasmparser::{BinaryReader, FunctionBody, Operator};

/// The stores before the loop proper, in runs of instructions without branches and calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prologue {
    /// Where each is in the code section, the offset that it adds to the address, and the number of its run.
    stores: Vec<(u32, u64, u32)>,
}

impl Prologue {
    /// Reads the function with that body. `code` is the payload of the code section.
    pub(crate) fn new(code: &[u8], body: Range<u32>) -> Self {
        let mut prologue = Self::default();
        let bytes = code.get(body.start as usize..body.end as usize).unwrap_or_default();
        // What cannot be read is as if it were not there.
        let _ = prologue.read(FunctionBody::new(BinaryReader::new(bytes, body.start as usize)));
        prologue
    }

    fn read(&mut self, body: FunctionBody<'_>) -> wasmparser::Result<()> {
        let mut run = 0;
        for operator in body.get_operators_reader()?.into_iter_with_offsets() {
            let (operator, at) = operator?;
            match operator {
                Operator::Loop { .. } => break,
                Operator::I32Store { memarg }
                | Operator::I64Store { memarg }
                | Operator::I32Store8 { memarg }
                | Operator::I32Store16 { memarg } => self.stores.push((at as u32, memarg.offset, run)),
                Operator::Block { .. }
                | Operator::If { .. }
                | Operator::Else
                | Operator::End
                | Operator::Br { .. }
                | Operator::BrIf { .. }
                | Operator::BrTable { .. }
                | Operator::Call { .. }
                | Operator::CallIndirect { .. }
                | Operator::Return => run += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// After which instruction the thread points to the new frame, and up to which one the marking frame is not
    /// complete.
    pub(crate) fn half_linked(&self, layout: &Layout) -> Range<u32> {
        // Before 3.13, each activation has a `_PyCFrame` that must agree with it.
        let Top::Frame { at } = layout.thread.top else { return 0..0 };
        let Some(&(linked, _, run)) = self.stores.iter().find(|(_, offset, _)| *offset == u64::from(at)) else {
            return 0..0;
        };
        let last = self.stores.iter().filter(|(_, _, of)| *of == run).map(|&(place, ..)| place).max();
        linked + 1..last.map_or(linked + 1, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn stores_of_the_same_run_complete_the_link() {
        // No locals; then stores of 0 at address 0 with offsets 4, 52, 8, a block, a store with offset 12, a loop.
        let store = |offset: u8| [0x41, 0, 0x41, 0, 0x36, 2, offset];
        let body =
            [&[0][..], &store(4), &store(52), &store(8), &[2, 0x40], &store(12), &[3, 0x40], &store(16)].concat();
        let code = [&[0xff; 10][..], &body, &[0x0b; 3]].concat();
        let prologue = Prologue::new(&code, 10..code.len() as u32);
        for layout in synthetic::layouts() {
            // The instruction that stores is the fifth byte of seven.
            let expected = if layout.minor >= 13 { 10 + 1 + 7 + 5..10 + 1 + 14 + 5 } else { 0..0 };
            assert_eq!(prologue.half_linked(&layout), expected);
        }
        assert_eq!(Prologue::new(&code, 0..5).half_linked(&synthetic::layouts()[3]), 0..0);
        assert_eq!(Prologue::new(&code, 90..95).half_linked(&synthetic::layouts()[3]), 0..0);
    }
}
