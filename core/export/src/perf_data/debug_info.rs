//! The DWARF of the made-up binary: one unit with a function and a line table for each function that was seen.
//!
//! perf asks binutils' addr2line for lines, and that wants a unit in `.debug_info` that leads to the line table. Version 4,
//! since addr2line reads version 5 only from 2.35.2 on.

use super::addresses::{Addresses, PlacedFunction, START};
use crate::plain_text::plain_name;
use gimli::write::{Address, AttributeValue, DwarfUnit, EndianVec, LineProgram, LineString, Sections};
use gimli::{Encoding, Format, LineEncoding, LittleEndian};
use std::collections::HashMap;
use wlprof_recording::Recording;

/// The DWARF sections that are not empty, with their names.
pub(super) type DebugSections = Vec<(&'static str, Vec<u8>)>;

/// Writes the names and lines of `functions`.
pub(super) fn debug_sections(
    recording: &Recording,
    addresses: &Addresses,
    functions: &[PlacedFunction],
) -> gimli::write::Result<DebugSections> {
    let encoding = Encoding { format: Format::Dwarf32, version: 4, address_size: 8 };
    let mut dwarf = DwarfUnit::new(encoding);
    let unit_name = LineString::String(b"wlprof".to_vec());
    // In version 4 neither working directory nor unit name go into the table.
    let mut lines = LineProgram::new(encoding, LineEncoding::default(), unit_name.clone(), None, unit_name, None);
    let mut files = HashMap::new();
    let root = dwarf.unit.root();
    for placed in functions {
        let function = &recording.functions[placed.function as usize];
        let file = function.file.as_deref().filter(|file| !file.is_empty()).map(|file| {
            *files.entry(file).or_insert_with(|| {
                let name = LineString::String(plain_name(file).as_bytes().to_vec());
                lines.add_file(name, lines.default_directory(), None)
            })
        });
        let range = &placed.addresses;
        if let Some(file) = file {
            lines.begin_sequence(Some(Address::Constant(range.start)));
            for &(address, line) in &placed.lines {
                let row = lines.row();
                row.address_offset = address - range.start;
                row.file = file;
                // 0 is DWARF's word for a line that is unknown.
                row.line = u64::from(line.unwrap_or(0));
                lines.generate_row();
            }
            lines.end_sequence(range.end - range.start);
        }
        let entry = dwarf.unit.add(root, gimli::DW_TAG_subprogram);
        let name = dwarf.strings.add(plain_name(&function.name).as_bytes());
        let entry = dwarf.unit.get_mut(entry);
        entry.set(gimli::DW_AT_name, AttributeValue::StringRef(name));
        entry.set(gimli::DW_AT_low_pc, AttributeValue::Address(Address::Constant(range.start)));
        entry.set(gimli::DW_AT_high_pc, AttributeValue::Udata(range.end - range.start));
        if let (Some(_), Some(line)) = (file, function.line) {
            entry.set(gimli::DW_AT_decl_file, AttributeValue::FileIndex(file));
            entry.set(gimli::DW_AT_decl_line, AttributeValue::Udata(line.into()));
        }
    }
    dwarf.unit.line_program = lines;
    let root = dwarf.unit.get_mut(root);
    root.set(gimli::DW_AT_name, AttributeValue::String(plain_name(&recording.meta.guest).as_bytes().to_vec()));
    root.set(gimli::DW_AT_low_pc, AttributeValue::Address(Address::Constant(START)));
    root.set(gimli::DW_AT_high_pc, AttributeValue::Udata(addresses.end - START));
    let mut sections = Sections::new(EndianVec::new(LittleEndian));
    dwarf.write(&mut sections)?;
    let mut written = Vec::new();
    sections.for_each(|id, data| {
        if !data.slice().is_empty() {
            written.push((id.name(), data.slice().to_vec()));
        }
        Ok::<(), gimli::write::Error>(())
    })?;
    Ok(written)
}
