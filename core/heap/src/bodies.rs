//! Bodies of functions to which something is added: at their beginning, or around all that they do.

use super::allocators::NotRewritten;
use super::parsed::malformed;
use std::borrow::Cow;
use std::ops::Range;
use wasm_encoder::{Encode, ValType};
use wasmparser::{BinaryReader, FunctionBody, Operator};

/// A part of a body: its bytes, and where in the code section they were if they were there.
pub(super) type Part<'a> = (Option<u32>, Cow<'a, [u8]>);

/// A body as it was.
pub(super) struct Body<'a> {
    /// The contents of the code section.
    pub(super) code: &'a [u8],
    /// Where in it the body is.
    pub(super) range: Range<usize>,
    /// Where its first instruction is.
    pub(super) first: usize,
}

/// What is put around a body. Its locals are behind those of the function.
pub(super) struct Around {
    pub(super) locals: Vec<(u32, ValType)>,
    /// Instructions before the body. They end with the beginning of the block that the body becomes.
    pub(super) before: Vec<u8>,
    /// Instructions behind it, to which all its ways out lead, with what it returns; the function's end is the last.
    pub(super) after: Vec<u8>,
}

/// Locals of a function at most; Wasmtime takes 50,000.
const MAX_LOCALS: u32 = 1 << 24;

const CALL: u8 = 0x10;
const RETURN_CALL: u8 = 0x12;
const BRANCH: u8 = 0x0c;

impl<'a> Body<'a> {
    /// All of it.
    pub(super) fn whole(&self) -> Vec<Part<'a>> {
        vec![self.part(self.range.clone())]
    }

    /// With `prologue` before its first instruction.
    pub(super) fn beginning_with(&self, prologue: Vec<u8>) -> Vec<Part<'a>> {
        let (start, end) = (self.range.start, self.range.end);
        vec![self.part(start..self.first), (None, prologue.into()), self.part(self.first..end)]
    }

    /// How many locals it declares.
    pub(super) fn local_count(&self) -> Result<u32, NotRewritten> {
        let mut count = 0_u32;
        for group in self.reader().get_locals_reader().map_err(malformed)? {
            count = count.saturating_add(group.map_err(malformed)?.0);
        }
        if count > MAX_LOCALS {
            return Err(NotRewritten::Malformed(format!("a function has {count} locals")));
        }
        Ok(count)
    }

    /// With `around` around it: it becomes a block, and what returned from the function leaves that. A tail call is a call then, since
    /// something is done behind it: see [`tail_calls`](super::tail_calls). `None` if it has more than `exits` ways out; else there are so
    /// many fewer then.
    pub(super) fn enclosed(&self, around: Around, exits: &mut usize) -> Result<Option<Vec<Part<'a>>>, NotRewritten> {
        let mut groups = BinaryReader::new(&self.code[self.range.start..self.first], self.range.start);
        let count = groups.read_var_u32().map_err(malformed)?;
        let mut more = Vec::new();
        for (locals, of_type) in &around.locals {
            locals.encode(&mut more);
            of_type.encode(&mut more);
        }
        let mut group_count = Vec::new();
        (count + around.locals.len() as u32).encode(&mut group_count);
        let mut parts = vec![(None, group_count.into()), self.part(groups.original_position()..self.first)];
        parts.push((None, [more, around.before].concat().into()));
        let (mut depth, mut done) = (0_u32, self.first);
        let mut operators = self.reader().get_operators_reader().map_err(malformed)?;
        while !operators.eof() {
            let (operator, at) = operators.read_with_offset().map_err(malformed)?;
            if leaves(&operator) {
                let Some(left) = exits.checked_sub(1) else { return Ok(None) };
                *exits = left;
            }
            match operator {
                Operator::Block { .. }
                | Operator::Loop { .. }
                | Operator::If { .. }
                | Operator::TryTable { .. }
                | Operator::Try { .. } => depth += 1,
                // The last one is the function's, and now the block's.
                Operator::End | Operator::Delegate { .. } => depth = depth.saturating_sub(1),
                Operator::Return => {
                    parts.push(self.part(done..at));
                    // It stands for what it replaces.
                    parts.push((Some(at as u32), vec![BRANCH].into()));
                    parts.push((None, number(depth).into()));
                    done = at + 1;
                }
                Operator::ReturnCall { .. } | Operator::ReturnCallIndirect { .. } | Operator::ReturnCallRef { .. } => {
                    parts.push(self.part(done..at));
                    // Each is so much behind the call that it is like: 0x10, 0x11 and, after two others, 0x14.
                    let call = if self.code[at] == 0x15 { 0x14 } else { self.code[at] - RETURN_CALL + CALL };
                    parts.push((Some(at as u32), vec![call].into()));
                    let end = operators.original_position();
                    parts.push(self.part(at + 1..end));
                    parts.push((None, [vec![BRANCH], number(depth)].concat().into()));
                    done = end;
                }
                _ => {}
            }
        }
        parts.push(self.part(done..self.range.end));
        parts.push((None, around.after.into()));
        Ok(Some(parts))
    }

    fn part(&self, range: Range<usize>) -> Part<'a> {
        (Some(range.start as u32), Cow::Borrowed(&self.code[range]))
    }

    fn reader(&self) -> FunctionBody<'a> {
        FunctionBody::new(BinaryReader::new(&self.code[self.range.clone()], self.range.start))
    }
}

/// Whether it is a way out of its function beside the end.
fn leaves(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::Return
            | Operator::ReturnCall { .. }
            | Operator::ReturnCallIndirect { .. }
            | Operator::ReturnCallRef { .. }
    )
}

fn number(number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    number.encode(&mut bytes);
    bytes
}
