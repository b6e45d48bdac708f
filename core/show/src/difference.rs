//! The table of two recordings: which functions took another share of the time, by more than chance.

use crate::escape::single_line;
use crate::table::{Row, Table, seconds, shown};
use crate::wrapping::wrapped;
use std::fmt::Write as _;
use wlprof_export::short_path;
use wlprof_recording::{Difference, Recording, count_of};

pub use crate::table::heap::differences as of_memory;

/// The functions whose shares of the time differ, at most `rows`, in so many columns. Both recordings are of one clock
/// ([`Recording::check_clocks`]).
///
/// ```
/// let run = wlprof_recording::example();
/// let text = wlprof_show::difference::of_time(&run, &run, 20, None);
/// assert!(text.contains("no difference above chance"));
/// ```
#[must_use]
pub fn of_time(before: &Recording, after: &Recording, rows: usize, width: Option<usize>) -> String {
    let differences = Difference::of(before, after);
    let count = |count: usize| count_of(count as u64, "function");
    let all = count(differences.len());
    let real: Vec<&Difference> = differences.iter().filter(|row| row.is_real).collect();
    let mut text = String::new();
    // Writing to a string cannot fail.
    if real.is_empty() {
        let _ = writeln!(text, "\nno difference above chance in the own time of {all} (5 % level, all together)");
        return wrapped(&text, width);
    }
    let _ = writeln!(
        text,
        "\nself: the function's own code; {} of {all} with a difference above chance (5 % level, all together), {} shown; ± is \
         the 95 % bound",
        real.len(),
        real.len().min(rows),
    );
    let mut table = Table::new(&["before", "after", "more"], "function").without_bars();
    for row in real.into_iter().take(rows) {
        let [one, other] = [0, 1].map(|side| format!("{} {:>8}", shown(row.shares[side]), seconds(row.times_ns[side])));
        let file = row.file.as_deref().map_or_else(String::new, |file| format!("  {}", single_line(short_path(file))));
        table.rows.push(Row {
            cells: vec![one, other, More(row).to_string()],
            name: single_line(&row.name),
            after: file,
            ..Row::default()
        });
    }
    let _ = table.write(width, &mut text);
    wrapped(&text, width)
}

/// A difference with its sign and bound.
struct More<'a>(&'a Difference);

impl std::fmt::Display for More<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0.more.percent < 0.0 { "" } else { "+" };
        write!(f, "{sign}{}", shown(self.0.more))
    }
}
