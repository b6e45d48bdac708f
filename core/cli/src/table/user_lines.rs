//! The tables of an interpreter's guest: the script's functions and lines, and what of their time was in native code.

use super::TableOptions;
use super::rows::{Layout, signs_of};
use std::fmt;
use wlprof_recording::{Native, Recording, Totals, UserFunction, UserLines};

/// What time is called that no function of the script has a part in.
pub(crate) const OUTSIDE_OF_THE_SCRIPT: &str = "[outside of the script: starting, ending]";

/// Writes them.
pub(super) fn write(
    recording: &Recording,
    totals: &Totals,
    lines: &UserLines,
    options: &TableOptions,
    text: &mut String,
) -> fmt::Result {
    let layout = Layout::new(recording, totals.all, options.width, &["self", "of it in C", "total"]).bounded_by(totals);
    let columns = |row: &UserFunction| [row.self_time, row.native_time, row.total_time];
    layout.title("where the time itself went, what was called in C included", text)?;
    for row in lines.functions.iter().filter(|row| row.self_time.ns > 0).take(options.rows) {
        let signs = signs_of(row.self_time, row.doubt);
        layout.row(&columns(row), row.self_time, row.function, &signs, row.hottest_line, text)?;
    }
    if lines.outside.ns > 0 {
        layout.named_row(
            &[lines.outside, lines.outside, lines.outside],
            lines.outside,
            OUTSIDE_OF_THE_SCRIPT,
            "",
            text,
        )?;
    }
    let mut by_total: Vec<&UserFunction> = lines.functions.iter().collect();
    by_total.sort_by_key(|row| (std::cmp::Reverse(row.total_time.ns), row.function));
    layout.title("with all that was called from there", text)?;
    for row in by_total.into_iter().take(options.rows) {
        let line = recording.functions[row.function as usize].line;
        let signs = signs_of(row.self_time, row.doubt);
        layout.row(&columns(row), row.total_time, row.function, &signs, line, text)?;
    }
    let layout = Layout::new(recording, totals.all, options.width, &["self", "total"]).bounded_by(totals);
    layout.title("what was called in C", text)?;
    for row in lines.native.iter().filter(|row| row.self_time.ns > 0).take(options.rows) {
        let shares = [row.self_time, row.total_time];
        let signs = signs_of(row.self_time, row.doubt);
        let named = |name, text: &mut String| layout.named_row(&shares, row.self_time, name, &signs, text);
        match row.what {
            Native::Function(function) => {
                let line = recording.functions[function as usize].line;
                layout.row(&shares, row.self_time, function, &signs, line, text)?;
            }
            Native::Memory => named("[memory management]", text)?,
            Native::Collector => named("[garbage collection]", text)?,
        }
    }
    text.push('\n');
    Ok(())
}
