//! What was inlined into a function, and which of it stands behind an offset.

use crate::{
    budget::Fault,
    function::Function,
    unit::{Span, Units},
};
use gimli::{AttributeValue, UnitOffset};
use std::{collections::BTreeMap, ops::Range};
use wlprof_plugin::Budget;

/// The most inlined calls that are shown at one place: compilers nest a few dozen. Recursion multiplies them.
pub(crate) const DEEPEST: usize = 128;

/// One inlined call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlinedCall {
    pub(crate) die: UnitOffset,
    /// The index of the call that it is within.
    within: Option<usize>,
    /// The index of the innermost call around it of which is known where it is: Binaryen loses the end of some (TinyGo's guests have
    /// them), and what is inlined into those stands in the call around them then.
    around: Option<usize>,
    /// The index of the outermost call around it; its own, if there is none.
    outermost: usize,
    pub(crate) call_file: Option<u64>,
    pub(crate) call_line: Option<u32>,
    pub(crate) call_column: Option<u32>,
}

/// The inlined calls of a function.
#[derive(Debug, Default)]
pub(crate) struct InlinedCalls {
    calls: Vec<InlinedCall>,
    /// From which offset on which call is the innermost. None is, before the first.
    innermost: BTreeMap<u32, Option<usize>>,
}

/// What is inlined at one place.
#[derive(Debug, Default)]
pub(crate) struct Chain<'a> {
    /// The innermost calls, innermost first.
    pub(crate) calls: Vec<&'a InlinedCall>,
    /// The call that the function itself makes, if it is not among them.
    pub(crate) outermost: Option<&'a InlinedCall>,
}

impl InlinedCalls {
    /// Finds what was inlined into `function`. Entries before a broken one are kept.
    pub(crate) fn read(units: &Units, function: &Function, budget: &mut Budget) -> Self {
        let mut found = Self::default();
        // Broken entries end the list early.
        let _ = found.read_entries(units, function, budget);
        found
    }

    fn read_entries(&mut self, units: &Units, function: &Function, budget: &mut Budget) -> Result<(), Fault> {
        let dies = &units.all[function.unit].dies;
        let mut entries = dies.entries_raw(Some(function.die))?;
        let root = entries.read_abbreviation()?.ok_or(Fault::Broken)?;
        entries.skip_attributes(root.attributes())?;
        // Depth and index of the calls that the next entry is within, and the innermost one from there on of which is known where
        // it is.
        let mut open: Vec<(isize, usize, Option<usize>)> = Vec::new();
        // Depth of a function within this one, whose entries are not this one's.
        let mut nested = None;
        while entries.next_depth() > 0 {
            let die = entries.next_offset();
            let depth = entries.next_depth();
            budget.spend(1)?;
            let Some(entry) = entries.read_abbreviation()? else { continue };
            budget.spend(entry.attributes().len())?;
            while open.pop_if(|(above, ..)| *above >= depth).is_some() {}
            nested = nested.filter(|above| depth > *above);
            if nested.is_none() && entry.tag() == gimli::DW_TAG_subprogram {
                nested = Some(depth);
            }
            if nested.is_some() || entry.tag() != gimli::DW_TAG_inlined_subroutine {
                entries.skip_attributes(entry.attributes())?;
                continue;
            }
            budget.spend(size_of::<InlinedCall>())?;
            let index = self.calls.len();
            let within = open.last().map(|&(_, within, _)| within);
            let around = open.last().and_then(|&(.., around)| around);
            let outermost = within.map_or(index, |within| self.calls[within].outermost);
            let mut call =
                InlinedCall { die, within, around, outermost, call_file: None, call_line: None, call_column: None };
            let mut span = Span::default();
            for spec in entry.attributes() {
                let attribute = entries.read_attribute(*spec)?;
                let number = |value: AttributeValue<_>| {
                    value.udata_value().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0)
                };
                match (attribute.name(), attribute.value()) {
                    // Up to DWARF 4 file 0 is no file; from 5 on it is the first.
                    (gimli::DW_AT_call_file, AttributeValue::FileIndex(file)) if file > 0 || dies.version() >= 5 => {
                        call.call_file = Some(file);
                    }
                    (gimli::DW_AT_call_line, value) => call.call_line = number(value),
                    (gimli::DW_AT_call_column, value) => call.call_column = number(value),
                    (name, value) => span.note(&units.dwarf, dies, name, value)?,
                }
            }
            self.calls.push(call);
            let mut ranges = Vec::new();
            let inside = |range: &Range<u32>| function.range.start <= range.start && range.end <= function.range.end;
            span.for_each(&units.dwarf, dies, budget, |range| {
                let narrow = u32::try_from(range.begin).ok().zip(u32::try_from(range.end).ok());
                ranges.extend(narrow.map(|(begin, end)| begin..end).filter(inside));
            })?;
            open.push((depth, index, if ranges.is_empty() { around } else { Some(index) }));
            for range in ranges {
                self.cover(range, index, budget)?;
            }
        }
        Ok(())
    }

    /// Makes `call` the innermost in `range`, where that is the known call around it so far: of calls side by side that lie, the
    /// first is believed.
    fn cover(&mut self, range: Range<u32>, call: usize, budget: &mut Budget) -> Result<(), Fault> {
        for border in [range.start, range.end] {
            let before = self.innermost_at(border);
            self.innermost.entry(border).or_insert(before);
        }
        for (_, innermost) in self.innermost.range_mut(range) {
            budget.spend(1)?;
            if *innermost == self.calls[call].around {
                *innermost = Some(call);
            }
        }
        Ok(())
    }

    fn innermost_at(&self, offset: u32) -> Option<usize> {
        *self.innermost.range(..=offset).next_back()?.1
    }

    /// What is inlined at `offset`.
    pub(crate) fn at(&self, offset: u32) -> Chain<'_> {
        let innermost = self.innermost_at(offset);
        let outwards = std::iter::successors(innermost, |&call| self.calls[call].within);
        let calls: Vec<_> = outwards.take(DEEPEST).map(|call| &self.calls[call]).collect();
        let is_whole = calls.last().is_none_or(|last| last.within.is_none());
        let outermost = innermost.filter(|_| !is_whole).map(|call| &self.calls[self.calls[call].outermost]);
        Chain { calls, outermost }
    }
}
