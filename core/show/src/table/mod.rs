//! The table of a recording, for a terminal or for other tools.

mod amounts;
mod callers;
mod head;
pub(crate) mod heap;
mod internals;
mod requests;
mod rows;
mod user_lines;
mod waits;

pub(crate) use rows::{Row, Table};
pub use rows::{place_of, seconds, shown};
pub use user_lines::OUTSIDE_OF_THE_SCRIPT;

use crate::escape::single_line;
use crate::wrapping::wrapped;
use rows::{FUNCTIONS, Shares, counted, shorten, signs_of};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use wlprof_recording::{FunctionTotal, Recording, SelectionShare, Totals, UserLines};

/// What the table shows, and how wide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableOptions {
    /// Rows of each table.
    pub rows: usize,
    /// Whether to tell of the sampler as well.
    pub verbose: bool,
    /// Whose callers and callees to print.
    pub callers_of: Option<String>,
    /// Whether frames of an interpreter are shown, or wasm's alone: then the table is of frames, and not of a script's lines.
    pub shows_interpreter: bool,
    /// Columns of the terminal; `None` for names in full.
    pub width: Option<usize>,
}

impl Default for TableOptions {
    /// Ten rows with names in full, of the guest's language.
    fn default() -> Self {
        Self { rows: 10, verbose: false, callers_of: None, shows_interpreter: false, width: None }
    }
}

/// The table of `recording`, which is what was `selected`, if not all is shown.
#[must_use]
pub fn table(recording: &Recording, selected: Option<&SelectionShare>, options: &TableOptions) -> String {
    let mut text = String::from("\n");
    let totals = Totals::of(recording);
    if let Some(part) = recording.part {
        // Writing to a string cannot fail.
        let _ = match &options.callers_of {
            Some(name) => heap::head(recording, &mut text)
                .and_then(|()| callers::write(recording, &totals, name, options, &mut text)),
            None => heap::write(recording, part, options, &mut text),
        };
        notes(recording, &mut text);
        return wrapped(&text, options.width);
    }
    let _ = head::write(recording, &totals, selected, &mut text);
    let _ = requests::write(recording, options.width.unwrap_or(usize::MAX), &mut text);
    if options.verbose {
        let _ = internals::write(recording, &mut text);
    }
    if totals.functions.is_empty() && selected.is_some() {
        text.push_str("no samples are left of those that were taken\n");
    } else if totals.functions.is_empty() {
        text.push_str(
            "no samples: the guest ran for less than a sampling interval, or only waited (see --rate, --clock=wall)\n",
        );
    } else {
        let _ = tables(recording, &totals, selected, options, &mut text);
    }
    notes(recording, &mut text);
    // The rows fit as they are.
    wrapped(&text, options.width)
}

fn notes(recording: &Recording, text: &mut String) {
    for note in &recording.meta.notes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "note: {}", single_line(note));
    }
}

fn tables(
    recording: &Recording,
    totals: &Totals,
    selected: Option<&SelectionShare>,
    options: &TableOptions,
    text: &mut String,
) -> std::fmt::Result {
    if let Some(name) = &options.callers_of {
        callers::write(recording, totals, name, options, text)?;
        text.push('\n');
        return Ok(());
    }
    let is_waiting = selected.is_some() && totals.blocked == totals.all;
    if is_waiting {
        waits::write(recording, totals, options, text)?;
    } else if !options.shows_interpreter
        && let Some(lines) = UserLines::of(recording)
    {
        return user_lines::write(recording, totals, &lines, options, text);
    }
    let shares = Shares::of(recording, totals);
    let function = |total: &FunctionTotal| &recording.functions[total.function as usize];
    if !is_waiting {
        let own: Vec<&FunctionTotal> = totals.functions.iter().filter(|total| total.self_time.ns > 0).collect();
        let coverage = shares.coverage(options.rows, FUNCTIONS, own.iter().map(|total| &total.self_time));
        writeln!(text, "\nself: the function's own code; {coverage}")?;
        let mut table = Table::new(&["self", "total", "hottest"], "function");
        for total in own.into_iter().take(options.rows) {
            let own = shares.with_amount(&shares.own(total.self_time), total.self_time);
            let cells = vec![own, shares.total(total.total_time), hottest(total.hottest_line)];
            let signs = signs_of(total.self_time, total.doubt);
            table.rows.push(Row::of(cells, shares.bar(total.self_time), function(total), signs));
        }
        table.write(options.width, text)?;
    }
    let mut by_total: Vec<&FunctionTotal> = totals.functions.iter().collect();
    by_total.sort_by_key(|total| (std::cmp::Reverse(total.total_time.ns), total.function));
    let count = counted(options.rows, by_total.len(), FUNCTIONS);
    writeln!(text, "\ntotal: the function and all that it called; {count}")?;
    let mut table = Table::new(&["self", "total"], "function");
    for total in by_total.into_iter().take(options.rows) {
        let all = shares.with_amount(&shares.total(total.total_time), total.total_time);
        let cells = vec![shares.own(total.self_time), all];
        let signs = signs_of(total.self_time, total.doubt);
        table.rows.push(Row::of(cells, shares.bar(total.total_time), function(total), signs));
    }
    table.write(options.width, text)?;
    text.push('\n');
    Ok(())
}

/// The line that has most of a function's own time, as in `:88`: the function's name stands with its first.
fn hottest(line: Option<u32>) -> String {
    line.map_or_else(String::new, |line| format!(":{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_plugin::SourceFrame;
    use wlprof_recording::{Doubt, Meta, Module, Origin, RequestTotal, Sample, State, example, testing};

    fn verbose() -> TableOptions {
        TableOptions { verbose: true, ..TableOptions::default() }
    }

    #[test]
    fn functions_whose_time_may_be_anothers_have_signs() {
        let recording = example();
        let signed: Vec<FunctionTotal> =
            Totals::of(&recording).functions.into_iter().filter(|total| total.doubt != Doubt::default()).collect();
        assert!(!signed.is_empty());
        for total in signed {
            let sign = if total.doubt.entering_ns > 0 { '†' } else { '‡' };
            let name = &recording.functions[total.function as usize].name;
            let row = format!("{name} {sign}");
            let of_callers = TableOptions { callers_of: Some(name.clone()), ..verbose() };
            let of_frames = TableOptions { shows_interpreter: true, ..verbose() };
            for options in [of_callers, of_frames] {
                let text = table(&recording, None, &options);
                assert!(text.contains(&row), "{row}: {text}");
            }
        }
    }

    #[test]
    fn no_text_of_a_recording_reaches_the_terminal_as_it_is() {
        const TEXT: &str = "a\u{1b}[31m\u{61c}\nb";
        let text = || TEXT.to_owned();
        let meta = Meta {
            wlprof_version: text(),
            guest: text(),
            arguments: vec![text()],
            sampler: text(),
            notes: vec![text()],
            requests: vec![RequestTotal { request: text(), ..RequestTotal::default() }],
            ..Meta::default()
        };
        let mut recorder = testing::with_modules(1);
        let origin = Origin::Wasm { module: 0, function: 0, code_offset: 0 };
        let frame = recorder.frame(origin);
        let stack = recorder.stack([frame]).unwrap();
        let labels = Some(recorder.labels(0, &[0]));
        recorder.sample(
            testing::TRACK,
            0,
            Sample { time_ns: 0, cpu_delta_ns: 0, period_ns: 1, stack, state: State::Guest, labels },
        );
        let mut recording = testing::finish(recorder, &mut |_: &Origin, out: &mut Vec<SourceFrame>| {
            out.push(SourceFrame { function: text(), file: Some(text()), line: Some(1), ..SourceFrame::default() });
        });
        recording.meta = meta;
        recording.modules = vec![Module { name: text(), build_id: text() }];
        recording.threads[0].name = text();
        recording.label_sets = vec![vec![(text(), text())]];
        let printed = table(&recording, None, &verbose());
        assert!(printed.contains("sampler: a\\u{1b}[31m\\u{61c}\\u{a}b"), "{printed}");
        let is_raw = |c: char| c != '\n' && c.is_control() || c == '\u{61c}';
        assert!(!printed.contains(is_raw) && !printed.contains("\nb"), "{printed:?}");
    }
}
