//! Functions of a unit.

use crate::{
    bodies::Bodies,
    budget::Fault,
    unit::{Span, Units},
};
use gimli::UnitOffset;
use std::ops::Range;
use wlprof_plugin::Budget;

/// A function that has code in a body of the module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) unit: usize,
    pub(crate) die: UnitOffset,
    pub(crate) range: Range<u32>,
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
