//! Source lines with the time of each beside it.
//!
//! ```
//! use wlprof_recording::LineTotals;
//! use wlprof_show::annotated::TextPart;
//!
//! let recording = wlprof_recording::example();
//! let totals = LineTotals::of(&recording);
//! for part in TextPart::chosen(&recording, &totals, Some("shop.py"))? {
//!     print!("{}", part.annotated(&totals, None));
//! }
//! # Ok::<(), String>(())
//! ```

use crate::escape::single_line;
use crate::table::shown;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use wlprof_recording::{FunctionId, LineTotal, LineTotals, Recording, Totals, Weight};

/// Lines that are shown around those with time.
const AROUND: u32 = 3;
/// Names that are proposed where none was found.
pub const PROPOSED: usize = 5;

/// A part of a source text: the lines of one function, or those of a file that have time.
#[derive(Debug, PartialEq)]
pub struct TextPart {
    title: String,
    file: String,
    lines: Vec<RangeInclusive<u32>>,
}

impl TextPart {
    /// What `what` means: a function's name or a part of it, or the end of a file's; without it the hottest file.
    ///
    /// # Errors
    /// Why there is nothing to show: nothing is called so, and what could be asked for, or the recording has no lines.
    pub fn chosen(recording: &Recording, totals: &LineTotals, what: Option<&str>) -> Result<Vec<Self>, String> {
        chosen(recording, totals, what)
    }

    /// The path of the source text, as the guest has it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Its lines with their times. `source` is the whole text of the file, if it was found.
    #[must_use]
    pub fn annotated(&self, totals: &LineTotals, source: Option<&str>) -> String {
        annotated(&self.title, &self.file, &self.lines, totals, source)
    }
}

fn chosen(recording: &Recording, totals: &LineTotals, what: Option<&str>) -> Result<Vec<TextPart>, String> {
    let whole = |file: &str| TextPart {
        title: file.to_owned(),
        file: file.to_owned(),
        lines: around(totals.of_file(file).map(|(line, _)| line)),
    };
    if recording.samples().next().is_none() {
        return Err("it has no samples".to_owned());
    }
    let no_lines = "it has no lines; compile the guest with debug information (-g)";
    let Some(what) = what else {
        let file = totals.hottest_file().ok_or(no_lines)?;
        return Ok(vec![whole(file)]);
    };
    let named = |is_it: &dyn Fn(&str) -> bool| -> Vec<FunctionId> {
        let functions = totals.of_functions.keys().copied();
        functions.filter(|id| is_it(&recording.functions[*id as usize].name)).collect()
    };
    let mut functions = named(&|name| name == what);
    let is_file =
        |file: &str| file.strip_suffix(what).is_some_and(|rest| rest.is_empty() || rest.ends_with(['/', '\\']));
    let files: BTreeSet<&str> = totals.lines.keys().map(|(file, _)| &**file).filter(|file| is_file(file)).collect();
    if functions.is_empty() && !files.is_empty() {
        return Ok(files.into_iter().map(whole).collect());
    }
    if functions.is_empty() {
        functions = named(&|name| name.contains(what));
    }
    if totals.lines.is_empty() {
        return Err(no_lines.to_owned());
    }
    if functions.is_empty() {
        let hot = Totals::of(recording).functions;
        let names = hot.iter().filter(|total| totals.of_functions.contains_key(&total.function)).take(PROPOSED);
        let names: Vec<String> =
            names.map(|total| single_line(&recording.functions[total.function as usize].name)).collect();
        return Err(format!("no function or file with lines is called {what}; hot ones are {}", names.join(", ")));
    }
    // Instances of one generic function are one text.
    let mut places = BTreeMap::<(String, String, Option<u32>), BTreeSet<u32>>::new();
    for id in functions {
        let function = &recording.functions[id as usize];
        let file = function.file.clone().unwrap_or_default();
        let lines = places.entry((function.name.clone(), file, function.line)).or_default();
        lines.extend(&totals.of_functions[&id]);
        // A declaration far from its lines is another file's, by a macro.
        lines.extend(function.line);
    }
    let of_function = |((title, file, _), lines): ((String, String, Option<u32>), BTreeSet<u32>)| {
        let (first, last) = (lines.first().copied().unwrap_or(1), lines.last().copied().unwrap_or(1));
        let is_one = last - first < 500;
        let lines = if is_one { vec![first..=last] } else { around(lines.into_iter()) };
        TextPart { title, file, lines }
    };
    Ok(places.into_iter().map(of_function).collect())
}

/// Ranges with some lines around those given, which are sorted.
pub(crate) fn around(lines: impl Iterator<Item = u32>) -> Vec<RangeInclusive<u32>> {
    let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
    for line in lines {
        let (first, last) = (line.saturating_sub(AROUND).max(1), line.saturating_add(AROUND));
        match ranges.last_mut() {
            Some(range) if first <= range.end().saturating_add(1) => *range = *range.start()..=last,
            _ => ranges.push(first..=last),
        }
    }
    ranges
}

fn annotated(
    title: &str,
    file: &str,
    ranges: &[RangeInclusive<u32>],
    totals: &LineTotals,
    source: Option<&str>,
) -> String {
    let times: BTreeMap<u32, LineTotal> = totals.of_file(file).collect();
    let mut text = format!("{}\n", single_line(title));
    if title != file {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", single_line(file));
    }
    let Some(source) = source else {
        let _ = writeln!(text, "its text was not found: name a folder that has it with --source-dir\n");
        let _ = writeln!(text, "{:>13} {:>13} {:>6}", "self", "total", "line");
        for (line, total) in times.iter().filter(|(line, _)| ranges.iter().any(|range| range.contains(line))) {
            let _ = writeln!(
                text,
                "{} {} {line:>6}",
                share(total.self_time, totals.all),
                share(total.total_time, totals.all)
            );
        }
        return text + "\n";
    };
    let _ = writeln!(text, "\n{:>13} {:>13} {:>6}", "self", "total", "line");
    let lines: Vec<&str> = source.lines().collect();
    for (number, range) in ranges.iter().enumerate() {
        if number > 0 {
            let _ = writeln!(text, "{:>34}", "…");
        }
        for line in range.clone().take_while(|line| *line as usize <= lines.len()) {
            let LineTotal { self_time, total_time } = times.get(&line).copied().unwrap_or_default();
            let code = single_line(&lines[line as usize - 1].replace('\t', "    "));
            let row = format!("{} {} {line:>6}  {code}", share(self_time, totals.all), share(total_time, totals.all));
            let _ = writeln!(text, "{}", row.trim_end());
        }
    }
    let past: Vec<u32> = times.keys().copied().filter(|line| *line as usize > lines.len()).collect();
    if !past.is_empty() {
        let _ = writeln!(
            text,
            "the file has {} lines and was sampled at line {}: it is another version",
            lines.len(),
            past[0]
        );
    }
    text + "\n"
}

/// A share of the time, with its bound, in a column; nothing for none.
#[must_use]
pub fn share(time: Weight, all: Weight) -> String {
    let text = if time.ns == 0 { String::new() } else { shown(time.share_of(all)) };
    format!("{text:>13}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    fn printed(what: Option<&str>, source: Option<&str>) -> Result<String, String> {
        let recording = example();
        let totals = LineTotals::of(&recording);
        let all = chosen(&recording, &totals, what)?;
        Ok(all.iter().map(|part| part.annotated(&totals, source)).collect())
    }

    #[test]
    fn a_function_is_shown_with_the_time_of_its_lines() {
        let source = "1\n2\n3\n4\n5\ndef price():\n\treturn \u{1b}[31m1\n8\n";
        let text = printed(Some("Shop.price.<locals>.<genexpr>"), Some(source)).unwrap();
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[..3], ["Shop.price.<locals>.<genexpr>", "/app/shop.py", ""]);
        assert_eq!(rows[3], "         self         total   line");
        let ends = [" %      6  def price():", " %      7      return \\u{1b}[31m1"];
        assert!(rows[4].contains(" 30.8 ±") && rows[4].ends_with(ends[0]), "{text}");
        assert!(rows[5].contains(" 30.8 ±") && rows[5].ends_with(ends[1]) && rows[6..] == [""], "{text}");
        assert_eq!(printed(Some("price"), Some(source)), Ok(text), "a part of the name will do");
    }

    #[test]
    fn files_are_found_by_the_ends_of_their_paths_and_shown_around_what_is_hot() {
        let source: String = (1..=20).map(|line| format!("line {line}\n")).collect();
        let text = printed(Some("shop.py"), Some(&source)).unwrap();
        assert!(text.contains("  line 3\n") && text.contains("  line 10\n"), "{text}");
        assert!(!text.contains("  line 2\n") && !text.contains("  line 11\n"), "{text}");
        assert_eq!(around([1, 9, 20].into_iter()), [1..=4, 6..=12, 17..=23]);
        assert_eq!(around([5, 6, u32::MAX].into_iter()), [2..=9, u32::MAX - 3..=u32::MAX]);
    }

    #[test]
    fn what_is_missing_is_told() {
        let text = printed(Some("shop.py"), None).unwrap();
        assert!(text.contains("--source-dir") && text.contains(" %      7\n"), "{text}");
        let error = printed(Some("nowhere"), None).unwrap_err();
        assert!(error.contains("called nowhere; hot ones are "), "{error}");
        assert!(!error.contains('\u{1b}'), "{error}");
        let mut nothing = example();
        nothing.threads.clear();
        let error = |recording: &Recording| chosen(recording, &LineTotals::of(recording), Some("shop.py")).unwrap_err();
        assert_eq!(error(&nothing), "it has no samples");
        let mut without_lines = example();
        without_lines.functions.iter_mut().for_each(|function| function.file = None);
        assert!(error(&without_lines).contains("has no lines; compile"));
        let short = printed(Some("shop.py"), Some("1\n2\n")).unwrap();
        assert!(short.contains("has 2 lines and was sampled at line 6"), "{short}");
    }
}
