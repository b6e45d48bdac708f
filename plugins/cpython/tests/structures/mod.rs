//! Offsets of a C program's structures, read from the DWARF of a module. The table of layouts came from this and is
//! compared with it.
#![allow(dead_code, reason = "each user uses a part")]

use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, LittleEndian, UnitOffset};
use std::collections::HashMap;
use wasmparser::{Parser, Payload};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// The structures of one module.
pub(crate) struct Structures<'a> {
    dwarf: gimli::Dwarf<Slice<'a>>,
    units: Vec<Unit<'a>>,
    /// Complete structures by name, tags and typedefs alike: unit and place in it.
    named: HashMap<String, (usize, UnitOffset)>,
}

impl<'a> Structures<'a> {
    /// Reads the DWARF of `module`.
    pub(crate) fn read(module: &'a [u8]) -> Self {
        let mut sections: HashMap<&str, &[u8]> = HashMap::new();
        for payload in Parser::new(0).parse_all(module) {
            if let Payload::CustomSection(section) = payload.expect("a valid module") {
                sections.insert(section.name(), section.data());
            }
        }
        let load = |id: gimli::SectionId| -> Result<Slice<'a>, gimli::Error> {
            Ok(Slice::new(sections.get(id.name()).copied().unwrap_or_default(), LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(load).expect("sections cannot fail");
        let mut structures = Self { dwarf, units: Vec::new(), named: HashMap::new() };
        let mut headers = structures.dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let unit = structures.dwarf.unit(header).expect("a valid unit");
            let at = structures.units.len();
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                let is_type = matches!(entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_typedef);
                if is_type
                    && entry.attr(gimli::DW_AT_declaration).is_none()
                    && let Some(name) = structures.name(&unit, entry)
                {
                    structures.named.entry(name).or_insert((at, entry.offset()));
                }
            }
            structures.units.push(unit);
        }
        structures
    }

    fn name(&self, unit: &Unit<'a>, entry: &Entry<'a>) -> Option<String> {
        let name = self.dwarf.attr_string(unit, entry.attr_value(gimli::DW_AT_name)?).ok()?;
        Some(name.to_string_lossy().into_owned())
    }

    fn resolve(&self, unit: usize, mut offset: UnitOffset) -> Option<(usize, UnitOffset)> {
        for _ in 0..16 {
            let unit_of = &self.units[unit];
            let entry = unit_of.entry(offset).ok()?;
            if entry.tag() == gimli::DW_TAG_structure_type && entry.attr(gimli::DW_AT_declaration).is_some() {
                return self.named.get(&self.name(unit_of, &entry)?).copied();
            }
            if matches!(entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type) {
                return Some((unit, offset));
            }
            let Some(AttributeValue::UnitRef(next)) = entry.attr_value(gimli::DW_AT_type) else { return None };
            offset = next;
        }
        None
    }

    /// The size of structure `name`.
    pub(crate) fn size(&self, name: &str) -> Option<u64> {
        let &(unit, offset) = self.named.get(name)?;
        let (unit, offset) = self.resolve(unit, offset)?;
        self.units[unit].entry(offset).ok()?.attr_value(gimli::DW_AT_byte_size)?.udata_value()
    }

    /// Where `path` (`member.member…`) is in structure `name`, in bytes; bits for bit fields.
    pub(crate) fn offset(&self, name: &str, path: &str) -> Option<u64> {
        let &(unit, offset) = self.named.get(name)?;
        let (mut unit, mut structure) = self.resolve(unit, offset)?;
        let mut sum = 0;
        let mut members = path.split('.').peekable();
        while let Some(member) = members.next() {
            let (at, of) = self.member(unit, structure, member)?;
            sum += at;
            if members.peek().is_some() {
                (unit, structure) = self.resolve(unit, of)?;
            }
        }
        Some(sum)
    }

    fn member(&self, unit: usize, structure: UnitOffset, member: &str) -> Option<(u64, UnitOffset)> {
        let unit = &self.units[unit];
        let mut tree = unit.entries_tree(Some(structure)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            if self.name(unit, entry).as_deref() == Some(member) {
                let bits = entry.attr_value(gimli::DW_AT_data_bit_offset).and_then(|value| value.udata_value());
                let place = entry.attr_value(gimli::DW_AT_data_member_location).and_then(|value| value.udata_value());
                let Some(AttributeValue::UnitRef(of)) = entry.attr_value(gimli::DW_AT_type) else { return None };
                return Some((bits.or(place).unwrap_or(0), of));
            }
        }
        None
    }
}
