//! Rows of the tables: shares with their bounds and what they are of, a bar, a function and where it is.

use super::head::TOLD;
use crate::escape::single_line;
use std::fmt::{self, Write};
use wlprof_export::short_path;
use wlprof_recording::{Doubt, Function, Recording, Share, Totals, Unit, Weight, bytes};

/// Cells that a name has at least, however narrow the terminal is.
const MIN_NAME_WIDTH: usize = 16;

/// A share with its bound, as in `25.4 ±0.9 %`.
#[must_use]
pub fn shown(share: Share) -> String {
    format!("{:.1} ±{:.1} %", share.percent, rounded_up(share.bound))
}

/// With one decimal, and never less than it is: nothing is sure.
fn rounded_up(bound: f64) -> f64 {
    (bound * 10.0 - 1e-6).ceil().max(0.0) / 10.0
}

/// Shares of the time, or of the bytes, of a recording.
pub(super) struct Shares {
    unit: Unit,
    all: Weight,
    /// Totals may be too low by what no bound says.
    lacks_roots: bool,
}

impl Shares {
    /// For a recording that comes to `totals`.
    pub(super) fn of(recording: &Recording, totals: &Totals) -> Self {
        // Of totals of stacks that lack their roots no bound is known.
        let lacks_roots = totals.rootless.share_of(totals.all).percent >= 100.0 * TOLD;
        Self { unit: recording.unit(), all: totals.all, lacks_roots }
    }

    /// The share of a function's own time.
    pub(super) fn own(&self, weight: Weight) -> String {
        shown(weight.share_of(self.all))
    }

    /// The share of time with all that was called.
    pub(super) fn total(&self, weight: Weight) -> String {
        let share = weight.share_of(self.all);
        if self.lacks_roots { format!("{:.1} %", share.percent) } else { shown(share) }
    }

    /// A share with its amount beside it, as in `25.4 ±0.9 %  0.61 s`.
    pub(super) fn with_amount(&self, share: &str, weight: Weight) -> String {
        let amount = match self.unit {
            Unit::Time(_) => seconds(weight.ns),
            Unit::Memory(_) => bytes(weight.ns as f64),
        };
        format!("{share} {amount:>8}")
    }

    /// How much of the bar's length a weight has.
    pub(super) fn bar(&self, weight: Weight) -> f64 {
        weight.share_of(self.all).percent / 100.0
    }

    /// How much some rows of all have, as in `10 of 34 functions, 97.4 ±1.0 % of 2.38 s`.
    pub(super) fn coverage<'w>(
        &self,
        shown: usize,
        what: [&str; 2],
        weights: impl ExactSizeIterator<Item = &'w Weight>,
    ) -> String {
        let count = weights.len();
        let mut covered = Weight::default();
        weights.take(shown).for_each(|weight| covered.add(*weight));
        let all = match self.unit {
            Unit::Time(_) => seconds(self.all.ns),
            Unit::Memory(_) => bytes(self.all.ns as f64),
        };
        format!("{}, {} of {all}", counted(shown, count, what), self.own(covered))
    }
}

/// Time with two decimals.
#[must_use]
pub fn seconds(ns: u64) -> String {
    format!("{:.2} s", ns as f64 / 1e9)
}

/// How many of all there are, as in `10 of 34 functions` and `1 of 1 function`.
pub(super) fn counted(shown: usize, all: usize, [one, many]: [&str; 2]) -> String {
    format!("{} of {all} {}", shown.min(all), if all == 1 { one } else { many })
}

/// One function and several.
pub(super) const FUNCTIONS: [&str; 2] = ["function", "functions"];

/// A row of a table. Its texts are safe to print.
#[derive(Default)]
pub(crate) struct Row {
    /// One for each column.
    pub(crate) cells: Vec<String>,
    /// How long its bar is, from 0 to 1.
    pub(crate) bar: f64,
    pub(crate) name: String,
    /// What stands behind the name. It is shown in full, however long the name is.
    pub(crate) signs: String,
    /// Where that is, with two spaces before. Of what is too long the end is shown.
    pub(crate) after: String,
}

impl Row {
    /// A row of a function, with the [signs](signs_of) behind its name and where it is defined.
    pub(super) fn of(cells: Vec<String>, bar: f64, function: &Function, signs: String) -> Self {
        Self { cells, bar, name: single_line(&function.name), signs, after: place_of(function, function.line) }
    }
}

/// Rows in columns that are as wide as their widest cells.
pub(crate) struct Table<'a> {
    heads: Vec<&'a str>,
    name_head: &'a str,
    has_bars: bool,
    pub(crate) rows: Vec<Row>,
}

impl<'a> Table<'a> {
    /// A table with these columns, whose rows are of `name_head`.
    pub(crate) fn new(heads: &[&'a str], name_head: &'a str) -> Self {
        Self { heads: heads.to_vec(), name_head, has_bars: true, rows: Vec::new() }
    }

    /// The same without bars.
    #[must_use]
    pub(crate) fn without_bars(self) -> Self {
        Self { has_bars: false, ..self }
    }

    /// Writes it into so many cells; `None` for names in full.
    pub(crate) fn write(&self, width: Option<usize>, text: &mut String) -> fmt::Result {
        let cells = |cell: &str| cell.chars().count();
        let of_column = |(column, head): (usize, &&str)| {
            let widths = self.rows.iter().filter_map(|row| Some(cells(row.cells.get(column)?)));
            widths.chain([cells(head)]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = self.heads.iter().enumerate().map(of_column).collect();
        let before: usize = widths.iter().map(|width| width + 2).sum();
        // What a narrow terminal has no room for is the bar, not the name.
        let bar_width = match width {
            _ if !self.has_bars => 0,
            Some(width) if width < before + 70 => 0,
            Some(width) if width < before + 90 => 10,
            _ => 20,
        };
        let before = before + if bar_width == 0 { 0 } else { bar_width + 2 };
        let heads = self.heads.iter().zip(&widths).map(|(head, width)| format!("{head:>width$}  "));
        let mut line = heads.collect::<String>();
        let _ = write!(line, "{:1$}", "", before - cells(&line));
        writeln!(text, "{}", format!("{line}{}", self.name_head).trim_end())?;
        for row in &self.rows {
            for (column, width) in widths.iter().enumerate() {
                write!(text, "{:>width$}  ", row.cells.get(column).map_or("", |cell| cell))?;
            }
            if bar_width > 0 {
                let length = (row.bar * bar_width as f64).round() as usize;
                write!(text, "{:<bar_width$}  ", "█".repeat(length))?;
            }
            match width {
                None => writeln!(text, "{}{}{}", row.name, row.signs, row.after)?,
                Some(width) => writeln!(text, "{}", fitted(row, width.saturating_sub(before).max(MIN_NAME_WIDTH)))?,
            }
        }
        Ok(())
    }
}

/// A name and what stands behind it in so many cells. Of the latter the end is kept: a file's name and the line.
fn fitted(row: &Row, room: usize) -> String {
    let room = room.saturating_sub(row.signs.chars().count());
    let name = row.name.chars().count();
    let after = row.after.chars().count();
    // Both have half of it, or what the other leaves.
    let after_room = after.min((room / 2).max(room.saturating_sub(name)));
    let end: String = match after - after_room {
        0 => row.after.clone(),
        cut => ["  …".to_owned(), row.after.chars().skip(cut + 3).collect()].concat(),
    };
    format!("{}{}{end}", shorten(&row.name, room - after_room), row.signs)
}

/// Behind the name of a function part of whose own time was spent before it began.
pub(super) const ENTERING: char = '†';
/// Behind the name of a function part of whose own time may be of functions that it had called.
pub(super) const RETURNED: char = '‡';

/// The signs behind the name of a function: where they stand for a twentieth of its own time or more.
pub(super) fn signs_of(self_time: Weight, doubt: Doubt) -> String {
    let signs = [(doubt.entering_ns, ENTERING), (doubt.returned_ns, RETURNED)];
    let told = signs.into_iter().filter(|(ns, _)| *ns > 0 && ns.saturating_mul(20) >= self_time.ns);
    let signs: String = told.map(|(_, sign)| sign).collect();
    if signs.is_empty() { signs } else { format!(" {signs}") }
}

/// Keeps the beginning and the end of a long name: generics grow in the middle.
pub(crate) fn shorten(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let head = width * 2 / 3;
    let tail = width - head - 1;
    let begin: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(length - tail).collect();
    format!("{begin}…{end}")
}

/// Where a function is, after its name.
#[must_use]
pub fn place_of(function: &Function, line: Option<u32>) -> String {
    match (&function.file, line) {
        (Some(file), Some(line)) => format!("  {}:{line}", single_line(short_path(file))),
        (Some(file), None) => format!("  {}", single_line(short_path(file))),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    #[test]
    fn long_names_keep_both_ends() {
        let name = format!("begin{}end", "x".repeat(200));
        let short = shorten(&name, 56);
        assert_eq!(short.chars().count(), 56);
        assert!(short.starts_with("begin") && short.ends_with("end"));
    }

    #[test]
    fn totals_of_stacks_without_roots_have_no_bound() {
        let recording = example();
        let totals = Totals { rootless: Totals::of(&recording).all, ..Totals::of(&recording) };
        let shares = Shares::of(&recording, &totals);
        assert_eq!(shares.total(totals.all), "100.0 %");
        assert!(shares.own(totals.all).starts_with("100.0 ±"));
    }

    #[test]
    fn bounds_are_never_rounded_down() {
        let share = |bound| shown(Share { percent: 25.44, bound });
        assert_eq!([share(0.91), share(0.9), share(0.001)], ["25.4 ±1.0 %", "25.4 ±0.9 %", "25.4 ±0.1 %"]);
    }

    #[test]
    fn rows_fit_the_terminal_and_are_whole_where_there_is_none() {
        let row = |name: &str, signs: &str, after: &str| Row {
            cells: vec!["100.0 ±10.2 %     1.00 s".to_owned(), "8 %".to_owned()],
            bar: 1.0,
            name: name.to_owned(),
            signs: signs.to_owned(),
            after: after.to_owned(),
        };
        let name = "n".repeat(300);
        let mut table = Table::new(&["self", "total"], "function");
        table.rows.push(row(&name, " ‡", "  a/long/path/of/the/source/file.c:88"));
        table.rows.push(row(&name, "", "  f.c:88"));
        table.rows.push(row("main", "", "  a/path/of/a/source/that/is/too/long/for/it.c:1234"));
        for width in [60, 80, 100, 120, 200] {
            let mut text = String::new();
            table.write(Some(width), &mut text).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            assert!(text.contains('…') && (width < 130 || text.contains(&"█".repeat(20))), "{text}");
            assert!(
                text.contains("file.c:88\n") && text.contains("  f.c:88\n") && text.contains("t.c:1234\n"),
                "{text}"
            );
            assert!(text.contains("main  ") && text.contains(" ‡  "), "{text}");
        }
        let mut text = String::new();
        table.write(None, &mut text).unwrap();
        assert!(text.contains(&format!("{name} ‡  a/long/path/of/the/source/file.c:88\n")), "{text}");
        assert!(text.starts_with("                    self  total  "), "{text}");
    }
}
