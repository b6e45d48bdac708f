//! The few instructions at the start of the interpreter's loop in which it links its first frame to the thread.
//!
//! The frame that marks an activation from 3.13 on, and the `_PyCFrame` before, are variables of the loop, and compilers
//! fill them in after they have made the thread point to what leads to them. A sample between those stores finds there
//! whatever an earlier call left, which may even look right; so such samples must be known.

use crate::{
    addresses::Addresses,
    layout::{Layout, Top},
};
use std::ops::Range;
use wasmparser::{BinaryReader, FunctionBody, Operator};

/// The stores before the loop proper, in runs of instructions without branches and calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prologue {
    /// Where each is in the code section, the constant that it adds to a variable's or loaded address, and the number of
    /// its run.
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
        let mut addresses = Addresses::default();
        for operator in body.get_operators_reader()?.into_iter_with_offsets() {
            let (operator, at) = operator?;
            match operator {
                Operator::Loop { .. } => break,
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
            if let Some(offset) = addresses.step(&operator) {
                self.stores.push((at as u32, offset, run));
            }
        }
        Ok(())
    }

    /// From the instruction that makes the thread point to what is new, to the one that completes that.
    pub(crate) fn half_linked(&self, layout: &Layout) -> Range<u32> {
        let (Top::Frame { at } | Top::CFrame { at, .. }) = layout.thread.top;
        let Some(&(linked, _, run)) = self.stores.iter().find(|(_, offset, _)| *offset == u64::from(at)) else {
            return 0..0;
        };
        let last = self.stores.iter().filter(|(_, _, of)| *of == run).map(|&(place, ..)| place).max();
        linked..last.map_or(linked, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn stores_of_the_same_run_complete_the_link() {
        // No locals; then stores of 0 at address 0 with offsets 4, 40, 52, 8, a block, a store with offset 12, a loop.
        let store = |offset: u8| [0x41, 0, 0x41, 0, 0x36, 2, offset];
        let body =
            [&[0][..], &store(4), &store(40), &store(52), &store(8), &[2, 0x40], &store(12), &[3, 0x40], &store(16)]
                .concat();
        let code = [&[0xff; 10][..], &body, &[0x0b; 3]].concat();
        let prologue = Prologue::new(&code, 10..code.len() as u32);
        for layout in synthetic::layouts() {
            // The instruction that stores is the fifth byte of seven.
            let linked = 10 + 1 + if layout.minor >= 13 { 14 } else { 7 } + 4;
            assert_eq!(prologue.half_linked(&layout), linked..10 + 1 + 21 + 5);
        }
        assert_eq!(Prologue::new(&code, 0..5).half_linked(&synthetic::layouts()[3]), 0..0);
        assert_eq!(Prologue::new(&code, 90..95).half_linked(&synthetic::layouts()[3]), 0..0);
    }

    #[test]
    fn offsets_that_are_added_to_addresses_count() {
        // What 3.14's begins with in a library: position-independent code adds all offsets itself.
        let body = [
            &[1, 4, 0x7f][..],
            // A store of 0 at 52 + 4 beyond the last parameter: of another structure, but not at the offset that counts.
            &[0x20, 2, 0x41, 52, 0x6a, 0x41, 0, 0x36, 2, 4],
            // local 3 = local 0 + 52; local 4 = load local 3; store of local 1 at local 3.
            &[0x20, 0, 0x41, 52, 0x6a, 0x22, 3, 0x28, 2, 0, 0x21, 4, 0x20, 3, 0x20, 1, 0x36, 2, 0],
            // A store of local 2 + 16 at local 1 + 4, and one of a global + 8 at local 2 + 300.
            &[0x20, 1, 0x41, 4, 0x6a, 0x20, 2, 0x41, 16, 0x6a, 0x36, 2, 0],
            &[0x20, 2, 0x23, 0, 0x41, 8, 0x6a, 0x36, 2, 0xac, 2],
            &[2, 0x40, 0x20, 2, 0x0d, 0, 0x0b, 3, 0x40, 0x0b, 0x0b],
        ];
        let starts: Vec<usize> =
            body.iter().scan(0, |start, part| Some(std::mem::replace(start, *start + part.len()))).collect();
        let code = body.concat();
        let prologue = Prologue::new(&code, 0..code.len() as u32);
        // Each store is three or four bytes long.
        let expected = starts[3] as u32 - 3..starts[5] as u32 - 4 + 1;
        assert_eq!(prologue.half_linked(&synthetic::layouts()[3]), expected);
    }
}
