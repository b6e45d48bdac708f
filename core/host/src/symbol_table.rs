//! The functions that a file's tables of symbols name.
//!
//! addr2line takes the last symbol before an address, whatever its size. In files without local symbols, such as most libraries of a system, that
//! would be another function.

use addr2line::demangle_auto;
use object::read::ReadRef;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::ops::Range;

/// The functions of a file.
#[derive(Default)]
pub(crate) struct SymbolTable(Vec<(Range<u64>, String)>);

impl SymbolTable {
    /// Reads those of a file. It has none if it cannot be read.
    pub(crate) fn read<'d>(file: impl ReadRef<'d>) -> Self {
        let Ok(object) = object::File::parse(file) else { return Self::default() };
        let symbols = object.symbols().chain(object.dynamic_symbols()).filter_map(|symbol| {
            let is_function = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown) && symbol.is_definition();
            let (start, name) = (symbol.address(), symbol.name().ok()?);
            let is_named = is_function && !name.is_empty();
            // Functions in assembly language may not say how long they are.
            let section = || {
                let section = object.section_by_index(symbol.section_index()?).ok()?;
                Some(section.address().saturating_add(section.size()))
            };
            let end = if symbol.size() > 0 { Some(start.saturating_add(symbol.size())) } else { section() };
            end.filter(|_| is_named).map(|end| (start..end, name.to_owned()))
        });
        let mut table: Vec<_> = symbols.collect();
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
