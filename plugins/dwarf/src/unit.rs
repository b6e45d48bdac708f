//! Units of `.debug_info`: finding them, their shared attributes and the code they cover.

use crate::{
    budget::Fault,
    names::text,
    sections::{Reader, unit_starts},
};
use gimli::{AttributeValue, DebugInfoOffset, DebugLineOffset, Section as _, UnitOffset};
use std::{collections::HashMap, sync::Arc};
use wlprof_plugin::Budget;

/// The most ancestors that are asked for a name.
const LONGEST_REFERENCE: usize = 16;
/// What an abbreviation takes in memory for each of its bytes.
const ABBREVIATION_COST: usize = 16;

/// A unit, ready to read entries from.
pub(crate) struct Unit {
    /// The unit. Its line program is left out: a broken one must not cost the names.
    pub(crate) dies: gimli::Unit<Reader>,
    /// Where its line program is.
    pub(crate) lines: Option<DebugLineOffset>,
    /// Where it starts in `.debug_info`.
    start: usize,
    /// The code it says it covers; `None` if it does not say, or not readably.
    pub(crate) ranges: Option<Vec<gimli::Range>>,
}

/// The names of a function, and its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionName {
    pub(crate) linkage: Option<String>,
    pub(crate) plain: Option<String>,
    /// The unit and the number of the file it was declared in.
    pub(crate) file: Option<(usize, u64)>,
    /// The line it was declared at.
    pub(crate) line: Option<u32>,
}

impl FunctionName {
    /// The name that the linker has for it, as far as the DWARF knows.
    pub(crate) fn linkage(&self) -> Option<&str> {
        self.linkage.as_deref().or(self.plain.as_deref())
    }
}

/// All units of a module.
pub(crate) struct Units {
    pub(crate) dwarf: gimli::Dwarf<Reader>,
    pub(crate) all: Vec<Unit>,
    /// How many units could not be read at all.
    pub(crate) broken: usize,
    /// How many units keep their functions in another file (`-gsplit-dwarf`).
    pub(crate) split: usize,
}

impl Units {
    pub(crate) fn parse(dwarf: gimli::Dwarf<Reader>, budget: &mut Budget) -> Self {
        let info = dwarf.debug_info.reader().clone();
        let mut headers = Vec::new();
        let mut units = Self { dwarf, all: Vec::new(), broken: 0, split: 0 };
        for start in unit_starts(info.bytes()) {
            match units.dwarf.debug_info.header_from_offset(DebugInfoOffset(start)) {
                Ok(header) => headers.push((start, header)),
                Err(_) => units.broken += 1,
            }
        }
        let offsets = headers.iter().map(|(_, header)| header.debug_abbrev_offset().0);
        let tables = abbreviations(&units.dwarf, offsets, budget);
        for (start, header) in headers {
            let table = tables.get(&header.debug_abbrev_offset().0).cloned().flatten();
            match table.ok_or(Fault::Broken).and_then(|table| units.read_unit(start, header, table, budget)) {
                Ok(unit) => {
                    units.split += usize::from(unit.dies.dwo_id.is_some());
                    units.all.push(unit);
                }
                Err(fault) => units.broken += usize::from(fault == Fault::Broken),
            }
        }
        units
    }

    /// Reads the root entry.
    fn read_unit(
        &self,
        start: usize,
        header: gimli::UnitHeader<Reader>,
        abbreviations: Arc<gimli::Abbreviations>,
        budget: &mut Budget,
    ) -> Result<Unit, Fault> {
        let encoding = header.encoding();
        let mut dies = gimli::Unit {
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, self.dwarf.file_type),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase(0),
            rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, self.dwarf.file_type),
            line_program: None,
            dwo_id: match header.type_() {
                gimli::UnitType::Skeleton(id) | gimli::UnitType::SplitCompilation(id) => Some(id),
                _ => None,
            },
            header,
        };
        let mut entries = dies.header.entries_raw(&dies.abbreviations, None)?;
        let root = entries.read_abbreviation()?.ok_or(Fault::Broken)?;
        budget.spend(size_of::<Unit>() + root.attributes().len())?;
        let mut lines = None;
        let mut comp_dir = None;
        let mut unit_name = None;
        let (mut comp_dir_text, mut name_text) = (None, None);
        let mut span = Span::default();
        // Bases first: the other attributes need them, and may stand before them.
        let mut rest = Vec::new();
        for spec in root.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            match (attribute.name(), attribute.value()) {
                (_, AttributeValue::DebugStrOffsetsBase(base)) => dies.str_offsets_base = base,
                (_, AttributeValue::DebugAddrBase(base)) => dies.addr_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => dies.rnglists_base = base,
                (gimli::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => dies.dwo_id = Some(id),
                (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => lines = Some(offset),
                (gimli::DW_AT_comp_dir, value) => comp_dir = Some(value),
                (gimli::DW_AT_name, value) => unit_name = Some(value),
                (name, value) => rest.push((name, value)),
            }
        }
        drop(entries);
        for (value, text) in [(comp_dir, &mut comp_dir_text), (unit_name, &mut name_text)] {
            *text = value.map(|value| self.bytes(&dies, value, budget)).transpose()?.flatten();
        }
        (dies.comp_dir, dies.name) = (comp_dir_text, name_text);
        for (name, value) in rest {
            // A broken address costs the unit its ranges, not its entries.
            let _ = span.note(&self.dwarf, &dies, name, value);
        }
        dies.low_pc = span.low.unwrap_or(0);
        let mut ranges = Vec::new();
        let readable = span.for_each(&self.dwarf, &dies, budget, |range| ranges.push(range));
        if readable == Err(Fault::Budget) {
            return Err(Fault::Budget);
        }
        let ranges = (readable.is_ok() && !ranges.is_empty()).then_some(ranges);
        Ok(Unit { dies, lines, start, ranges })
    }

    /// The names of the function at `die`, its own or those of the declaration or abstract instance it refers to.
    pub(crate) fn function_name(&self, unit: usize, die: UnitOffset, budget: &mut Budget) -> FunctionName {
        let mut found = FunctionName::default();
        let mut place = Some((unit, die));
        for _ in 0..LONGEST_REFERENCE {
            let Some((unit, die)) = place.take() else { break };
            // A reference that leads nowhere leaves the names found on the way.
            let Ok(next) = self.own_name(unit, die, &mut found, budget) else { break };
            place = next.filter(|_| found.linkage.is_none());
        }
        found
    }

    fn own_name(
        &self,
        unit: usize,
        die: UnitOffset,
        found: &mut FunctionName,
        budget: &mut Budget,
    ) -> Result<Option<(usize, UnitOffset)>, Fault> {
        let dies = &self.all.get(unit).ok_or(Fault::Broken)?.dies;
        let mut entries = dies.entries_raw(Some(die))?;
        let entry = entries.read_abbreviation()?.ok_or(Fault::Broken)?;
        budget.spend(entry.attributes().len())?;
        let mut next = None;
        for spec in entry.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name if found.linkage.is_none() => {
                    found.linkage = self.string(dies, attribute.value(), budget)?;
                }
                gimli::DW_AT_name if found.plain.is_none() => {
                    found.plain = self.string(dies, attribute.value(), budget)?;
                }
                gimli::DW_AT_decl_file if found.file.is_none() => {
                    if let AttributeValue::FileIndex(file) = attribute.value() {
                        found.file = Some((unit, file));
                    }
                }
                gimli::DW_AT_decl_line if found.line.is_none() => {
                    found.line =
                        attribute.udata_value().and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0);
                }
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    next = match attribute.value() {
                        AttributeValue::UnitRef(offset) => Some((unit, offset)),
                        AttributeValue::DebugInfoRef(offset) => self.containing(offset.0),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        Ok(next)
    }

    /// The unit that holds an offset of `.debug_info`, and the offset in it.
    pub(crate) fn containing(&self, offset: usize) -> Option<(usize, UnitOffset)> {
        let unit = self.all.partition_point(|unit| unit.start <= offset).checked_sub(1)?;
        Some((unit, UnitOffset(offset - self.all[unit].start)))
    }

    /// A string, cut if it is too long. `None` if it is empty or cannot be read.
    pub(crate) fn string(
        &self,
        dies: &gimli::Unit<Reader>,
        value: AttributeValue<Reader>,
        budget: &mut Budget,
    ) -> Result<Option<String>, Fault> {
        let bytes = self.bytes(dies, value, budget)?;
        Ok(bytes.map(|bytes| text(bytes.bytes())).filter(|text| !text.is_empty()))
    }

    /// The bytes of a string, which cost their length to find the end of. `None` if it cannot be read.
    fn bytes(
        &self,
        dies: &gimli::Unit<Reader>,
        value: AttributeValue<Reader>,
        budget: &mut Budget,
    ) -> Result<Option<Reader>, Fault> {
        let text = self.dwarf.attr_string(dies, value).ok();
        // Without a terminator the section was searched to its end.
        budget.spend(text.as_ref().unwrap_or(self.dwarf.debug_str.reader()).bytes().len())?;
        Ok(text)
    }
}

/// Each abbreviation table that a unit names, by its offset, read once.
///
/// A table ends where the next one starts, so reading all of them costs one pass however many units overlap.
fn abbreviations(
    dwarf: &gimli::Dwarf<Reader>,
    offsets: impl Iterator<Item = usize>,
    budget: &mut Budget,
) -> HashMap<usize, Option<Arc<gimli::Abbreviations>>> {
    use gimli::Reader as _;
    let mut offsets: Vec<_> = offsets.collect();
    offsets.sort_unstable();
    offsets.dedup();
    let mut table = |offset: usize, end: Option<usize>| {
        let mut bytes = dwarf.debug_abbrev.reader().clone();
        bytes.skip(offset).ok()?;
        if let Some(end) = end {
            bytes.truncate((end - offset).min(bytes.len())).ok()?;
        }
        budget.spend(bytes.len().saturating_mul(ABBREVIATION_COST)).ok()?;
        let section = gimli::DebugAbbrev::from(bytes);
        section.abbreviations(gimli::DebugAbbrevOffset(0)).ok().map(Arc::new)
    };
    let ends = offsets.iter().skip(1).copied().map(Some).chain([None]);
    offsets.iter().zip(ends).map(|(&offset, end)| (offset, table(offset, end))).collect()
}

/// The code that an entry covers, as its attributes say it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    list: Option<gimli::RangeListsOffset>,
}

impl Span {
    /// Takes in an attribute; others than those of ranges are ignored.
    pub(crate) fn note(
        &mut self,
        dwarf: &gimli::Dwarf<Reader>,
        dies: &gimli::Unit<Reader>,
        name: gimli::DwAt,
        value: AttributeValue<Reader>,
    ) -> Result<(), Fault> {
        match (name, value) {
            (gimli::DW_AT_low_pc, value) => self.low = dwarf.attr_address(dies, value)?,
            (gimli::DW_AT_high_pc, AttributeValue::Udata(size)) => self.size = Some(size),
            (gimli::DW_AT_high_pc, value) => self.high = dwarf.attr_address(dies, value)?,
            (gimli::DW_AT_ranges, value) => self.list = dwarf.attr_ranges_offset(dies, value)?,
            _ => {}
        }
        Ok(())
    }

    /// Calls `each` with every range that is not empty.
    pub(crate) fn for_each(
        &self,
        dwarf: &gimli::Dwarf<Reader>,
        dies: &gimli::Unit<Reader>,
        budget: &mut Budget,
        mut each: impl FnMut(gimli::Range),
    ) -> Result<(), Fault> {
        if let Some(list) = self.list {
            let mut ranges = dwarf.ranges(dies, list)?;
            while let Some(range) = ranges.next()? {
                // Kept by whoever asks.
                budget.spend(size_of::<gimli::Range>())?;
                if range.begin < range.end {
                    each(range);
                }
            }
        } else if let Some(begin) = self.low
            && let Some(end) = self.high.or_else(|| begin.checked_add(self.size?))
            && begin < end
        {
            each(gimli::Range { begin, end });
        }
        Ok(())
    }
}
