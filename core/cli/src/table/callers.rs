//! Who calls a function and whom it calls: a block for each, with callers above and callees below.

use super::TableOptions;
use super::rows::{Layout, signs_of};
use crate::escape::single_line;
use std::fmt::{self, Write};
use wlprof_recording::{FunctionId, Neighbors, Recording, Totals, Weight};

/// Blocks that are printed: a part of a name may be in many.
const BLOCKS: usize = 10;

/// Writes them for what is called `name`.
pub(super) fn write(
    recording: &Recording,
    totals: &Totals,
    name: &str,
    options: &TableOptions,
    text: &mut String,
) -> fmt::Result {
    let found = Neighbors::of(recording, name);
    if found.is_empty() {
        return writeln!(text, "\nno sample is through a function called {}", single_line(name));
    }
    let layout = Layout::new(recording, totals.all, options.width, &["self", "total"]).bounded_by(totals);
    for one in found.iter().take(BLOCKS) {
        let rows = |which: &[(FunctionId, Weight)], text: &mut String| {
            which.iter().take(options.rows).try_for_each(|(function, weight)| {
                let function = &recording.functions[*function as usize];
                layout.indented_row(*weight, function, text)
            })
        };
        layout.title("callers, the function, callees", text)?;
        rows(&one.callers, text)?;
        let line = recording.functions[one.function as usize].line;
        let signs = signs_of(one.self_time, one.doubt);
        layout.row(&[one.self_time, one.total_time], one.total_time, one.function, &signs, line, text)?;
        rows(&one.callees, text)?;
    }
    match found.len().saturating_sub(BLOCKS) {
        0 => Ok(()),
        more => writeln!(text, "\n{more} more functions have {} in their names", single_line(name)),
    }
}
