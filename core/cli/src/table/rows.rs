//! Rows of the table: shares with their bounds, a bar, a function and where it is.

use super::head::TOLD;
use crate::escape::single_line;
use std::fmt::{self, Write};
use wlprof_export::short_path;
use wlprof_recording::{Doubt, Function, FunctionId, Recording, Share, Totals, Weight};

/// Cells of a share, as in `100.0 ±10.2 %`.
const SHARE_WIDTH: usize = 13;
/// Cells that a name has at least, however narrow the terminal is.
const MIN_NAME_WIDTH: usize = 24;

/// A share with its bound, as in `25.4 ±0.9 %`.
pub(crate) fn shown(share: Share) -> String {
    format!("{:.1} ±{:.1} %", share.percent, rounded_up(share.bound))
}

/// With one decimal, and never less than it is: nothing is sure.
fn rounded_up(bound: f64) -> f64 {
    (bound * 10.0 - 1e-6).ceil().max(0.0) / 10.0
}

/// How the rows of a table are laid out.
pub(super) struct Layout<'a> {
    recording: &'a Recording,
    all: Weight,
    columns: &'a [&'a str],
    bar_width: usize,
    /// Cells for a name and its place; `None` for as many as they have.
    name_width: Option<usize>,
    /// Totals may be too low by what no bound says.
    lacks_roots: bool,
}

impl<'a> Layout<'a> {
    /// For a table with these columns of shares of `all`, so many cells wide.
    pub(super) fn new(recording: &'a Recording, all: Weight, width: Option<usize>, columns: &'a [&'a str]) -> Self {
        let shares = columns.len() * (SHARE_WIDTH + 1) + 1;
        // What a narrow terminal has no room for is the bar, not the name.
        let bar_width = match width {
            Some(width) if width < shares + 70 => 0,
            Some(width) if width < shares + 90 => 10,
            _ => 20,
        };
        let before = shares + if bar_width == 0 { 0 } else { bar_width + 2 };
        let name_width = width.map(|width| width.saturating_sub(before).max(MIN_NAME_WIDTH));
        Self { recording, all, columns, bar_width, name_width, lacks_roots: false }
    }

    /// Leaves out the bounds of totals if stacks lack their roots, for which no bound is known.
    pub(super) fn bounded_by(self, totals: &Totals) -> Self {
        let lacks_roots = totals.rootless.share_of(totals.all).percent >= 100.0 * TOLD;
        Self { lacks_roots, ..self }
    }

    /// The heads of the columns, and what the rows are.
    pub(super) fn title(&self, what: &str, text: &mut String) -> fmt::Result {
        text.push('\n');
        self.columns.iter().try_for_each(|column| write!(text, "{column:>SHARE_WIDTH$} "))?;
        text.push(' ');
        self.write_bar(0, text)?;
        writeln!(text, "{what}")
    }

    /// A row for a function, with the [signs](signs_of) and the line to show.
    pub(super) fn row(
        &self,
        shares: &[Weight],
        bar: Weight,
        function: FunctionId,
        signs: &str,
        line: Option<u32>,
        text: &mut String,
    ) -> fmt::Result {
        let function = &self.recording.functions[function as usize];
        self.named_row(shares, bar, &function.name, &format!("{signs}{}", place_of(function, line)), text)
    }

    /// A row for what is beside a function: its share stands in the last column, its name a step to the right.
    pub(super) fn indented_row(&self, weight: Weight, function: &Function, text: &mut String) -> fmt::Result {
        let before = (self.columns.len() - 1) * (SHARE_WIDTH + 1);
        write!(text, "{:before$}", "")?;
        let place = place_of(function, function.line);
        let only_total = Layout { columns: &self.columns[..1], ..*self };
        only_total.named_row(&[weight], weight, &format!("  {}", function.name), &place, text)
    }

    /// A row for anything. `name` may be of the guest, `after` is to be harmless.
    pub(super) fn named_row(
        &self,
        shares: &[Weight],
        bar: Weight,
        name: &str,
        after: &str,
        text: &mut String,
    ) -> fmt::Result {
        for (weight, column) in shares.iter().zip(self.columns) {
            let share = weight.share_of(self.all);
            let has_bound = *column != "total" || !self.lacks_roots;
            let share = if has_bound { shown(share) } else { format!("{:.1} %", share.percent) };
            write!(text, "{share:>SHARE_WIDTH$} ")?;
        }
        text.push(' ');
        let cells = (bar.share_of(self.all).percent / 100.0 * self.bar_width as f64).round() as usize;
        self.write_bar(cells, text)?;
        let name = single_line(name);
        let room = self.name_width.map(|width| width.saturating_sub(after.chars().count()).max(MIN_NAME_WIDTH));
        writeln!(text, "{}{after}", room.map_or_else(|| name.clone(), |room| shorten(&name, room)))
    }

    fn write_bar(&self, cells: usize, text: &mut String) -> fmt::Result {
        match self.bar_width {
            0 => Ok(()),
            width => write!(text, "{:<width$}  ", "█".repeat(cells)),
        }
    }
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
pub(crate) fn place_of(function: &Function, line: Option<u32>) -> String {
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
        let mut text = String::new();
        let layout = Layout::new(&recording, totals.all, None, &["self", "total"]).bounded_by(&totals);
        layout.row(&[totals.all, totals.all], totals.all, 0, "", None, &mut text).unwrap();
        assert!(text.contains(" %       100.0 %  ") && text.matches('±').count() == 1, "{text}");
    }

    #[test]
    fn bounds_are_never_rounded_down() {
        let share = |bound| shown(Share { percent: 25.44, bound });
        assert_eq!([share(0.91), share(0.9), share(0.001)], ["25.4 ±1.0 %", "25.4 ±0.9 %", "25.4 ±0.1 %"]);
    }

    #[test]
    fn rows_fit_the_terminal_and_are_whole_where_there_is_none() {
        let mut recording = example();
        recording.functions[0].name = "n".repeat(300);
        let mut all = Weight::default();
        (0..10).for_each(|_| all.add_draw(1));
        for width in [80, 100, 120, 200] {
            let mut text = String::new();
            let layout = Layout::new(&recording, all, Some(width), &["self", "total"]);
            layout.title("what", &mut text).unwrap();
            layout.row(&[all, all], all, 0, " ‡", None, &mut text).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            assert!(text.contains(" ‡"), "{text}");
            assert!(text.contains('…') && (width < 110 || text.contains(&"█".repeat(20))), "{text}");
        }
        let mut text = String::new();
        Layout::new(&recording, all, None, &["self"]).row(&[all], all, 0, "", None, &mut text).unwrap();
        assert!(text.contains(&"n".repeat(300)), "{text}");
    }
}
