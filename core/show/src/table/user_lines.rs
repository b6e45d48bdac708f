//! The tables of an interpreter's guest: the script's functions and lines, and what of their time was in native code.

use super::rows::{FUNCTIONS, Row, Shares, Table, counted, signs_of};
use super::{TableOptions, hottest};
use std::fmt::{self, Write};
use wlprof_recording::{Native, Recording, Totals, UserFunction, UserLines};

/// What time is called that no function of the script has a part in.
pub const OUTSIDE_OF_THE_SCRIPT: &str = "[outside of the script: starting, ending]";

/// Writes them.
pub(super) fn write(
    recording: &Recording,
    totals: &Totals,
    lines: &UserLines,
    options: &TableOptions,
    text: &mut String,
) -> fmt::Result {
    let shares = Shares::of(recording, totals);
    let function = |function: u32| &recording.functions[function as usize];

    let own: Vec<&UserFunction> = lines.functions.iter().filter(|row| row.self_time.ns > 0).collect();
    let coverage = shares.coverage(options.rows, FUNCTIONS, own.iter().map(|row| &row.self_time));
    writeln!(text, "\nself: the function and the C code that it called; {coverage}")?;
    let mut table = Table::new(&["self", "in C", "hottest"], "function");
    let cells = |own, native, line| vec![shares.with_amount(&shares.own(own), own), shares.own(native), hottest(line)];
    for row in own.into_iter().take(options.rows) {
        let cells = cells(row.self_time, row.native_time, row.hottest_line);
        let signs = signs_of(row.self_time, row.doubt);
        table.rows.push(Row::of(cells, shares.bar(row.self_time), function(row.function), signs));
    }
    if lines.outside.ns > 0 {
        table.rows.push(Row {
            cells: cells(lines.outside, lines.outside, None),
            bar: shares.bar(lines.outside),
            name: OUTSIDE_OF_THE_SCRIPT.to_owned(),
            ..Row::default()
        });
    }
    table.write(options.width, text)?;

    let mut by_total: Vec<&UserFunction> = lines.functions.iter().collect();
    by_total.sort_by_key(|row| (std::cmp::Reverse(row.total_time.ns), row.function));
    let count = counted(options.rows, by_total.len(), FUNCTIONS);
    writeln!(text, "\ntotal: the function and all that it called; {count}")?;
    let mut table = Table::new(&["self", "total"], "function");
    for row in by_total.into_iter().take(options.rows) {
        let total = shares.with_amount(&shares.total(row.total_time), row.total_time);
        let cells = vec![shares.own(row.self_time), total];
        let signs = signs_of(row.self_time, row.doubt);
        table.rows.push(Row::of(cells, shares.bar(row.total_time), function(row.function), signs));
    }
    table.write(options.width, text)?;

    let native: Vec<_> = lines.native.iter().filter(|row| row.self_time.ns > 0).collect();
    let coverage = shares.coverage(options.rows, FUNCTIONS, native.iter().map(|row| &row.self_time));
    writeln!(text, "\nin C: what the script called; {coverage}")?;
    let mut table = Table::new(&["self", "total"], "function");
    for row in native.into_iter().take(options.rows) {
        let own = shares.with_amount(&shares.own(row.self_time), row.self_time);
        let (cells, bar) = (vec![own, shares.total(row.total_time)], shares.bar(row.self_time));
        let signs = signs_of(row.self_time, row.doubt);
        let name = match row.what {
            Native::Function(id) => {
                table.rows.push(Row::of(cells, bar, function(id), signs));
                continue;
            }
            Native::Memory => "[memory management]",
            Native::Collector => "[garbage collection]",
        };
        table.rows.push(Row { cells, bar, name: name.to_owned(), signs, ..Row::default() });
    }
    table.write(options.width, text)?;
    text.push('\n');
    Ok(())
}
