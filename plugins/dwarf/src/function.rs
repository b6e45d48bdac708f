//! Functions of a unit and what was inlined into each.

use crate::{
    bodies::Bodies,
    budget::{Budget, Fault},
    unit::{Span, Units},
};
use gimli::{AttributeValue, UnitOffset};
use std::ops::Range;

/// A function that has code in a body of the module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) unit: usize,
    pub(crate) die: UnitOffset,
    pub(crate) range: Range<u32>,
}

/// One inlined call.
#[derive(Clone, Debug)]
pub(crate) struct Inlined {
    pub(crate) die: UnitOffset,
    ranges: Vec<Range<u32>>,
    /// Index of the first entry, in the same list, that is not within this one.
    end: usize,
    pub(crate) call_file: Option<u64>,
    pub(crate) call_line: Option<u32>,
    pub(crate) call_column: Option<u32>,
}

/// What the entries of a unit came to.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) functions: Vec<(usize, Function)>,
    /// Ranges that lie in no body, not counting what the linker marked as dead.
    pub(crate) misplaced: usize,
}

/// Finds the functions of `unit` with the bodies they lie in. Entries before a broken one are kept.
pub(crate) fn functions(
    units: &Units,
    unit: usize,
    bodies: &Bodies,
    budget: &mut Budget,
    found: &mut Found,
) -> Result<(), Fault> {
    let dies = &units.all[unit].dies;
    let mut entries = dies.entries_raw(None)?;
    while !entries.is_empty() {
        let die = entries.next_offset();
        budget.spend(1)?;
        let Some(entry) = entries.read_abbreviation()? else { continue };
        budget.spend(entry.attributes().len())?;
        if entry.tag() != gimli::DW_TAG_subprogram {
            entries.skip_attributes(entry.attributes())?;
            continue;
        }
        let mut span = Span::default();
        let mut readable = Ok(());
        for spec in entry.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            readable = readable.and(span.note(&units.dwarf, dies, attribute.name(), attribute.value()));
        }
        let readable = readable.and_then(|()| {
            span.for_each(&units.dwarf, dies, budget, |range| match bodies.enclosing(range.begin, range.end) {
                Some((body, range)) => found.functions.push((body, Function { unit, die, range })),
                None => found.misplaced += usize::from(!dies.header.is_tombstone_address(range.begin)),
            })
        });
        if readable == Err(Fault::Budget) {
            return Err(Fault::Budget);
        }
    }
    Ok(())
}

/// Finds what was inlined into `function`, outer calls before those within them. Entries before a broken one are kept.
pub(crate) fn inlined(units: &Units, function: &Function, budget: &mut Budget) -> Vec<Inlined> {
    let mut found = Vec::new();
    let mut open = Vec::new();
    // Broken entries end the list early.
    let _ = read_inlined(units, function, budget, &mut found, &mut open);
    for (_, index) in open {
        found[index].end = found.len();
    }
    found
}

fn read_inlined(
    units: &Units,
    function: &Function,
    budget: &mut Budget,
    found: &mut Vec<Inlined>,
    // Depth and index of the calls that the next entry is within.
    open: &mut Vec<(isize, usize)>,
) -> Result<(), Fault> {
    let dies = &units.all[function.unit].dies;
    let mut entries = dies.entries_raw(Some(function.die))?;
    let root = entries.read_abbreviation()?.ok_or(Fault::Broken)?;
    entries.skip_attributes(root.attributes())?;
    // Depth of a function within this one, whose entries are not this one's.
    let mut nested = None;
    while entries.next_depth() > 0 {
        let die = entries.next_offset();
        let depth = entries.next_depth();
        budget.spend(1)?;
        let Some(entry) = entries.read_abbreviation()? else { continue };
        budget.spend(entry.attributes().len())?;
        while let Some((_, index)) = open.pop_if(|(above, _)| *above >= depth) {
            found[index].end = found.len();
        }
        nested = nested.filter(|above| depth > *above);
        if nested.is_none() && entry.tag() == gimli::DW_TAG_subprogram {
            nested = Some(depth);
        }
        if nested.is_some() || entry.tag() != gimli::DW_TAG_inlined_subroutine {
            entries.skip_attributes(entry.attributes())?;
            continue;
        }
        let mut call = Inlined { die, ranges: Vec::new(), end: 0, call_file: None, call_line: None, call_column: None };
        let mut span = Span::default();
        for spec in entry.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            let number =
                |value: AttributeValue<_>| value.udata_value().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
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
        let inside = |range: &Range<u32>| function.range.start <= range.start && range.end <= function.range.end;
        span.for_each(&units.dwarf, dies, budget, |range| {
            let narrow = u32::try_from(range.begin).ok().zip(u32::try_from(range.end).ok());
            call.ranges.extend(narrow.map(|(begin, end)| begin..end).filter(inside));
        })?;
        open.push((depth, found.len()));
        found.push(call);
    }
    Ok(())
}

/// The calls that `offset` is within, outermost first.
pub(crate) fn chain(calls: &[Inlined], offset: u32) -> Vec<&Inlined> {
    let mut chain = Vec::new();
    let mut index = 0;
    let mut end = calls.len();
    while index < end {
        let call = &calls[index];
        if call.ranges.iter().any(|range| range.contains(&offset)) {
            chain.push(call);
            end = call.end.min(end);
            index += 1;
        } else {
            // Always forward, whatever the list says.
            index = call.end.max(index + 1);
        }
    }
    chain
}
