//! Line tables, cut to the function bodies they speak of.

use crate::{
    bodies::Bodies,
    budget::Fault,
    function::UnitFit,
    names::{shorten, text},
    sections::Reader,
    unit::Units,
};
use gimli::{ColumnType, DebugLineOffset, Section as _};
use std::sync::Arc;
use wlprof_plugin::Budget;

/// What the tables of files and folders take in memory for each byte of a line program's header.
const HEADER_COST: usize = 32;

/// A file, line and column, from one address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) address: u32,
    pub(crate) file: u32,
    /// 0: code that the compiler made up.
    pub(crate) line: u32,
    /// 0: the whole line.
    pub(crate) column: u32,
}

/// How well a sequence of rows fits a body. A dead function's sequence fits none: its addresses start at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// From the body's first byte to its last.
    Exact,
    /// Inside the body.
    Inside,
    /// From the first byte of one body to the last of another, this one between them.
    Whole,
}

/// The rows of one sequence.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// The unit whose files these are: the first of those that name the line program.
    pub(crate) unit: usize,
    pub(crate) fit: Fit,
    rows: Arc<[Row]>,
    end: u32,
}

impl Sequence {
    /// The row that `offset` belongs to.
    pub(crate) fn row(&self, offset: u32) -> Option<Row> {
        let after = self.rows.partition_point(|row| row.address <= offset);
        (offset < self.end).then(|| self.rows.get(after.checked_sub(1)?).copied()).flatten()
    }
}

/// What a unit's line program came to.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) sequences: Vec<(usize, Sequence)>,
    /// How sequences fit: a linker's end where a body ends. They need not begin with it, as its local variables have no line.
    pub(crate) fit: UnitFit,
    /// The file table.
    pub(crate) header: Option<gimli::LineProgramHeader<Reader>>,
}

/// Runs the line program at `offset`, which `unit` names. Sequences before a broken instruction are kept.
pub(crate) fn lines(
    units: &Units,
    unit: usize,
    offset: DebugLineOffset,
    bodies: &Bodies,
    budget: &mut Budget,
    out: &mut Lines,
) -> Result<(), Fault> {
    let dies = &units.all[unit].dies;
    pay_for_header(units, offset, budget)?;
    let program = units.dwarf.debug_line.program(offset, dies.address_size(), None, None)?;
    budget.spend(program.header().unit_length())?;
    let is_tombstone = |address| dies.header.is_tombstone_address(address);
    let mut rows = program.rows();
    let mut sequence: Vec<Row> = Vec::new();
    let result = loop {
        match rows.next_row() {
            Ok(Some((_, row))) if row.end_sequence() => {
                let rows = std::mem::take(&mut sequence);
                if rows.first().is_some_and(|row| row.address != 0 && !is_tombstone(row.address.into())) {
                    let ends = bodies.ends_at(row.address());
                    *(if ends { &mut out.fit.fitting } else { &mut out.fit.stray }) += 1;
                }
                if let Err(fault) = keep(unit, rows, row.address(), bodies, budget, out) {
                    break Err(fault);
                }
            }
            Ok(Some((_, row))) => {
                if let Err(spent) = budget.spend(size_of::<Row>()) {
                    break Err(spent.into());
                }
                push(&mut sequence, row);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    out.header = Some(rows.header().clone());
    result
}

/// A header is read in one go, and an entry of its tables may be a single byte.
fn pay_for_header(units: &Units, offset: DebugLineOffset, budget: &mut Budget) -> Result<(), Fault> {
    let program = units.dwarf.debug_line.reader().bytes().get(offset.0..).ok_or(Fault::Broken)?;
    let (word, start) = if program.starts_with(&[0xff; 4]) { (8, 12) } else { (4, 4) };
    let rest = program.get(start..).ok_or(Fault::Broken)?;
    // What follows the length: the version, from 5 on two sizes, and the header's length.
    let at = if rest.starts_with(&[5, 0]) { 4 } else { 2 };
    let length = rest.get(at..at + word).ok_or(Fault::Broken)?;
    let length = length.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
    Ok(budget.spend(length.saturating_mul(HEADER_COST))?)
}

/// Adds a row; of several at one address the last is valid.
fn push(sequence: &mut Vec<Row>, row: &gimli::LineRow) {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let row = Row {
        // Out of range is in no body, like everything that `keep` drops.
        address: narrow(row.address()),
        file: narrow(row.file_index()),
        line: row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0)),
        column: match row.column() {
            ColumnType::LeftEdge => 0,
            ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
        },
    };
    match sequence.last_mut() {
        Some(last) if last.address == row.address => *last = row,
        _ => sequence.push(row),
    }
}

/// Gives a sequence to the bodies it fits.
fn keep(
    unit: usize,
    rows: Vec<Row>,
    end: u64,
    bodies: &Bodies,
    budget: &mut Budget,
    out: &mut Lines,
) -> Result<(), Fault> {
    let (Some(start), Ok(narrow_end)) = (rows.first().map(|row| u64::from(row.address)), u32::try_from(end)) else {
        return Ok(());
    };
    let sequence = |fit, rows: &Arc<[Row]>| Sequence { unit, fit, rows: Arc::clone(rows), end: narrow_end };
    if let Some((body, range)) = bodies.enclosing(start, end) {
        budget.spend(size_of::<Sequence>())?;
        let fit = if range == bodies.range(body) { Fit::Exact } else { Fit::Inside };
        out.sequences.push((body, sequence(fit, &rows.into())));
    } else if let Some(covered) = bodies.exactly_covered(start, end) {
        budget.spend(covered.len().saturating_mul(size_of::<Sequence>()))?;
        let rows: Arc<[Row]> = rows.into();
        out.sequences.extend(covered.map(|body| (body, sequence(Fit::Whole, &rows))));
    }
    Ok(())
}

/// The path of file `index` of `unit`, joined with its directory and the unit's.
pub(crate) fn path(
    units: &Units,
    unit: usize,
    header: &gimli::LineProgramHeader<Reader>,
    index: u64,
    budget: &mut Budget,
) -> Option<String> {
    let dies = &units.all.get(unit)?.dies;
    let file = header.file(index)?;
    let mut path = dies.comp_dir.as_ref().map(|directory| text(directory.bytes()));
    budget.spend(path.as_ref().map_or(0, String::len)).ok()?;
    // Directory 0 is the unit's own, which DWARF 5 writes out again.
    let directory = if file.directory_index() == 0 { None } else { file.directory(header) };
    for piece in [directory, Some(file.path_name())].into_iter().flatten() {
        // Half a path would be a wrong one.
        if let Some(piece) = units.string(dies, piece, budget).ok()? {
            join(path.get_or_insert_default(), &piece);
        }
    }
    path.filter(|path| !path.is_empty()).map(|path| shorten(&path))
}

fn join(path: &mut String, piece: &str) {
    // As in `wasisdk://v33.0/…`, which stands for a folder that the debug information is not to name.
    let has_scheme = |path: &str| {
        let is_scheme = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        path.split_once("://").is_some_and(|(before, _)| is_scheme(before))
    };
    let is_drive = |path: &str| path.get(1..3).is_some_and(|root| root == ":\\" || root == ":/");
    let absolute = |path: &str| path.starts_with(['/', '\\']) || is_drive(path) || has_scheme(path);
    if absolute(piece) {
        path.clear();
    } else if !path.is_empty() && !path.ends_with(['/', '\\']) {
        path.push(if absolute(path) && path.contains('\\') { '\\' } else { '/' });
    }
    path.push_str(piece);
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn an_absolute_piece_takes_the_place_of_what_is_before_it() {
        let joined = |pieces: &[&str]| {
            let mut path = String::new();
            pieces.iter().for_each(|piece| join(&mut path, piece));
            path
        };
        assert_eq!(joined(&["/src", "lib", "a.c"]), "/src/lib/a.c");
        assert_eq!(joined(&["/src", "/usr/include", "a.h"]), "/usr/include/a.h");
        assert_eq!(joined(&["C:\\src", "lib", "a.c"]), "C:\\src\\lib\\a.c");
        assert_eq!(joined(&["/src", "C:/lib", "a.c"]), "C:/lib/a.c");
        // wasi-sdk 33 names its own sources so, folder and file.
        assert_eq!(joined(&["wasisdk://v33.0", "build", "wasisdk://v33.0/libc/a.c"]), "wasisdk://v33.0/libc/a.c");
        assert_eq!(joined(&["wasisdk://v33.0", "libc", "a.c"]), "wasisdk://v33.0/libc/a.c");
        assert_eq!(joined(&["/src", "://a.c"]), "/src/://a.c");
    }
}
