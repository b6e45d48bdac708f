//! Who calls a function and whom it calls: a block for each, with callers above and callees below.

use super::TableOptions;
use super::rows::{Row, Shares, Table, signs_of};
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
    let shares = Shares::of(recording, totals);
    for one in found.iter().take(BLOCKS) {
        let total = |weight: Weight| shares.with_amount(&shares.total(weight), weight);
        let beside = |which: &[(FunctionId, Weight)]| -> Vec<Row> {
            let row = |(function, weight): &(FunctionId, Weight)| {
                let function = &recording.functions[*function as usize];
                let row = Row::of(vec![String::new(), total(*weight)], shares.bar(*weight), function, String::new());
                Row { name: format!("  {}", row.name), ..row }
            };
            which.iter().take(options.rows).map(row).collect()
        };
        let mut table = Table::new(&["self", "total"], "callers, the function, callees");
        table.rows.extend(beside(&one.callers));
        let cells = vec![shares.own(one.self_time), total(one.total_time)];
        let function = &recording.functions[one.function as usize];
        let signs = signs_of(one.self_time, one.doubt);
        table.rows.push(Row::of(cells, shares.bar(one.total_time), function, signs));
        table.rows.extend(beside(&one.callees));
        let counted = |which: &[(FunctionId, Weight)], one: &str, many: &str| match which.len() {
            1 => format!("1 {one}"),
            count if count > options.rows => format!("{} of {count} {many}", options.rows),
            count => format!("{count} {many}"),
        };
        writeln!(
            text,
            "\n{}, {} of {}",
            counted(&one.callers, "caller", "callers"),
            counted(&one.callees, "callee", "callees"),
            single_line(&function.name)
        )?;
        table.write(options.width, text)?;
    }
    match found.len().saturating_sub(BLOCKS) {
        0 => Ok(()),
        more => writeln!(text, "\n{more} more functions have {} in their names", single_line(name)),
    }
}
