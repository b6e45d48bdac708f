//! The table of waiting: at which lines, in which calls of the host.

use super::TableOptions;
use super::rows::{Row, Shares, Table, place_of};
use crate::escape::single_line;
use std::fmt::{self, Write};
use wlprof_recording::{Recording, Totals, WaitTotal};

/// Writes the table.
pub(super) fn write(recording: &Recording, totals: &Totals, options: &TableOptions, text: &mut String) -> fmt::Result {
    let shares = Shares::of(recording, totals);
    let waits = WaitTotal::of(recording);
    let coverage = shares.coverage(options.rows, ["place", "places"], waits.iter().map(|wait| &wait.time));
    writeln!(text, "\nwaiting: where, and in which call of the host; {coverage}")?;
    let mut table = Table::new(&["waiting"], "function");
    for wait in waits.into_iter().take(options.rows) {
        let function = &recording.functions[wait.function as usize];
        let name = |call| single_line(&recording.functions[call as usize].name);
        let call = wait.call.map_or_else(String::new, |call| format!("  in {}", name(call)));
        table.rows.push(Row {
            cells: vec![shares.with_amount(&shares.own(wait.time), wait.time)],
            bar: shares.bar(wait.time),
            name: single_line(&function.name),
            after: format!("{}{call}", place_of(function, wait.line)),
            ..Row::default()
        });
    }
    table.write(options.width, text)
}
