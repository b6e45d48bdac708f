//! The table of waiting: at which lines, in which calls of the host.

use super::TableOptions;
use super::rows::{Layout, place_of};
use crate::escape::single_line;
use std::fmt;
use wlprof_recording::{Recording, Totals, WaitTotal};

/// Writes it.
pub(super) fn write(recording: &Recording, totals: &Totals, options: &TableOptions, text: &mut String) -> fmt::Result {
    let layout = Layout::new(recording, totals.all, options.width, &["waiting"]);
    layout.title("where it waited, and in which call of the host", text)?;
    for wait in WaitTotal::of(recording).into_iter().take(options.rows) {
        let function = &recording.functions[wait.function as usize];
        let name = |call| single_line(&recording.functions[call as usize].name);
        let call = wait.call.map_or_else(String::new, |call| format!("  in {}", name(call)));
        let after = format!("{}{call}", place_of(function, wait.line));
        layout.named_row(&[wait.time], wait.time, &function.name, &after, text)?;
    }
    Ok(())
}
