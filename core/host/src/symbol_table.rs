//! The functions that a file's tables of symbols name.
//!
//! addr2line takes the last symbol before an address, whatever its size. In files without local symbols, such as most libraries of a system, that
//! would be another function.

use crate::elf_file::ElfFile;
use addr2line::demangle_auto;
use object::read::ReadRef;
use std::borrow::Cow;
use std::ops::Range;

/// The bytes that a table of symbols, or of their names, may have.
const MAX_TABLE: u64 = 128 << 20;

/// The functions of a file.
#[derive(Default)]
pub(crate) struct SymbolTable(Vec<(Range<u64>, String)>);

impl SymbolTable {
    /// Reads those of a file.
    pub(crate) fn read<'d, R: ReadRef<'d>>(file: &ElfFile<'d, R>) -> Self {
        let tables = [(".symtab", ".strtab"), (".dynsym", ".dynstr")];
        let symbols = tables.into_iter().flat_map(|(symbols, names)| file.functions(symbols, names, MAX_TABLE));
        let ranges = symbols.filter_map(|(start, size, section, name)| {
            // Functions in assembly language may not say how long they are.
            let end = if size > 0 { start.checked_add(size) } else { file.end_of_section(section) };
            Some((start..end?, name))
        });
        let mut table: Vec<_> = ranges.collect();
        // Of those that begin in one place, the one that says how long it is.
        table.sort_by_key(|(range, _)| (range.start, range.end));
        table.dedup_by_key(|(range, _)| range.start);
        Self(table)
    }

    /// What the function at `address` is called, without the compiler's additions.
    pub(crate) fn function_at(&self, address: u64) -> Option<Cow<'_, str>> {
        let next = self.0.partition_point(|(range, _)| range.start <= address);
        let (range, name) = self.0.get(next.checked_sub(1)?)?;
        range.contains(&address).then(|| demangle_auto(Cow::Borrowed(name), None))
    }
}
