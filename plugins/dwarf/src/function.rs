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
pub(crate) struct UnitFunctions {
    pub(crate) functions: Vec<(usize, Function)>,
    pub(crate) fit: UnitFit,
    /// Functions that begin within the first body, which is near 0: older linkers leave such addresses of dead functions.
    near_zero: usize,
}

/// How well a unit fits the code. Linkers mix units that fit with others that a tool left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitFit {
    /// Functions that lie in a body and begin where it begins.
    pub(crate) fitting: usize,
    /// Functions that begin where no body begins. The linker's dead ones are in neither count.
    pub(crate) stray: usize,
}

impl UnitFit {
    /// Returns whether the unit describes other code than the module has. No linker puts a function elsewhere than at the start of
    /// a body, and some of a stale unit's functions begin at one by chance.
    pub(crate) fn is_stale(self) -> bool {
        self.stray > 0 && self.stray >= self.fitting
    }
}

/// Finds the functions of `unit` with the bodies they lie in. Entries before a broken one are kept.
pub(crate) fn functions(
    units: &Units,
    unit: usize,
    bodies: &Bodies,
    budget: &mut Budget,
    found: &mut UnitFunctions,
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
        let mut ranges = Vec::new();
        let readable = readable.and_then(|()| span.for_each(&units.dwarf, dies, budget, |range| ranges.push(range)));
        found.take(unit, die, &ranges, bodies, |address| dies.header.is_tombstone_address(address));
        if readable == Err(Fault::Budget) {
            return Err(Fault::Budget);
        }
    }
    Ok(())
}

impl UnitFunctions {
    /// Returns whether nothing shows that the unit describes this module's code.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.functions.is_empty() && self.near_zero > 0
    }

    /// Adds the function at `die` with the code in `ranges`, if it begins where a body begins.
    fn take(
        &mut self,
        unit: usize,
        die: UnitOffset,
        ranges: &[gimli::Range],
        bodies: &Bodies,
        is_tombstone: impl Fn(u64) -> bool,
    ) {
        // Older linkers leave 0.
        let live = || ranges.iter().filter(|range| range.begin != 0 && !is_tombstone(range.begin));
        let Some(begin) = live().map(|range| range.begin).min() else { return };
        if !bodies.begins_at(begin) {
            *(if begin < bodies.range(0).end.into() { &mut self.near_zero } else { &mut self.fit.stray }) += 1;
            return;
        }
        let before = self.functions.len();
        let enclosed = live().filter_map(|range| bodies.enclosing(range.begin, range.end));
        self.functions.extend(enclosed.map(|(body, range)| (body, Function { unit, die, range })));
        self.fit.fitting += usize::from(self.functions.len() > before);
    }
}
