//! `wlprof annotate`: source lines with the time of each beside it.

use super::arguments::Annotate;
use super::escape::single_line;
use super::{FAILED, Failure, limits, render, source_folders};
use crate::recording::{FunctionId, LineTotal, LineTotals, RawRecording, Recording, Totals};
use crate::symbols::name;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::ops::RangeInclusive;

/// Lines that are shown around those with time.
const AROUND: u32 = 3;
/// Names that are proposed where none was found.
const PROPOSED: usize = 5;

/// Prints the lines that the user asks for.
pub(super) fn run(annotate: &Annotate) -> Result<(), Failure> {
    let path = &annotate.recording;
    let failed = |error: &dyn std::fmt::Display| Failure::new(FAILED, format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let folders = source_folders::of_dirs(&annotate.source_dirs)?;
    limits::set(file.metadata().map_or(0, |metadata| metadata.len())).map_err(|error| failed(&error))?;
    let raw = RawRecording::read(&mut BufReader::new(file)).map_err(|error| failed(&error))?;
    if !raw.is_named() {
        return Err(failed(
            &"the run was cut short, and no functions are named in it; `wlprof render --guest GUEST` names them",
        ));
    }
    let recording = name(raw, &[], Vec::new(), |_| ());
    render::check_frames(&recording, annotate.frames, path)?;
    let recording = recording.bounded().view(annotate.frames.view());
    let totals = LineTotals::of(&recording);
    let chosen = chosen(&recording, &totals, annotate.what.as_deref()).map_err(|error| failed(&error))?;
    let mut text = String::new();
    for Chosen { title, file, lines } in &chosen {
        let source = folders.text(file);
        text.push_str(&annotated(title, file, lines, &totals, source.as_deref()));
    }
    match io::stdout().lock().write_all(text.as_bytes()) {
        // A pager may be closed before its end.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(&error)),
        _ => Ok(()),
    }
}

/// A file, and which of its lines to show.
#[derive(Debug, PartialEq)]
struct Chosen {
    title: String,
    file: String,
    lines: Vec<RangeInclusive<u32>>,
}

/// What `what` means: a function's name or a part of it, or the end of a file's; without it the hottest file.
fn chosen(recording: &Recording, totals: &LineTotals, what: Option<&str>) -> Result<Vec<Chosen>, String> {
    let whole = |file: &str| Chosen {
        title: file.to_owned(),
        file: file.to_owned(),
        lines: around(totals.of_file(file).map(|(line, _)| line)),
    };
    let Some(what) = what else {
        let file = totals.hottest_file().ok_or("it has no lines; compile the guest with debug information (-g)")?;
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
        Chosen { title, file, lines }
    };
    Ok(places.into_iter().map(of_function).collect())
}

/// Ranges with some lines around those given, which are sorted.
fn around(lines: impl Iterator<Item = u32>) -> Vec<RangeInclusive<u32>> {
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
        let _ = writeln!(text, "{:>7} {:>7} {:>6}", "self", "total", "line");
        for (line, total) in times.iter().filter(|(line, _)| ranges.iter().any(|range| range.contains(line))) {
            let _ = writeln!(text, "{} {} {line:>6}", share(total.self_ns, totals), share(total.total_ns, totals));
        }
        return text + "\n";
    };
    let _ = writeln!(text, "\n{:>7} {:>7} {:>6}", "self", "total", "line");
    let lines: Vec<&str> = source.lines().collect();
    for (number, range) in ranges.iter().enumerate() {
        if number > 0 {
            let _ = writeln!(text, "{:>22}", "…");
        }
        for line in range.clone().take_while(|line| *line as usize <= lines.len()) {
            let LineTotal { self_ns, total_ns } = times.get(&line).copied().unwrap_or_default();
            let code = single_line(&lines[line as usize - 1].replace('\t', "    "));
            let row = format!("{} {} {line:>6}  {code}", share(self_ns, totals), share(total_ns, totals));
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

/// A share of all time; nothing for none.
fn share(time_ns: u64, totals: &LineTotals) -> String {
    if time_ns == 0 {
        return " ".repeat(7);
    }
    format!("{:>6.1}%", 100.0 * time_ns as f64 / totals.all_ns.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::example;

    fn printed(what: Option<&str>, source: Option<&str>) -> Result<String, String> {
        let recording = example();
        let totals = LineTotals::of(&recording);
        let all = chosen(&recording, &totals, what)?;
        Ok(all.iter().map(|c| annotated(&c.title, &c.file, &c.lines, &totals, source)).collect())
    }

    #[test]
    fn a_function_is_shown_with_the_time_of_its_lines() {
        let source = "1\n2\n3\n4\n5\ndef price():\n\treturn \u{1b}[31m1\n8\n";
        let text = printed(Some("Shop.price.<locals>.<genexpr>"), Some(source)).unwrap();
        let expected = "Shop.price.<locals>.<genexpr>\n/app/shop.py\n\n   self   total   line\n          \
                        30.8%      6  def price():\n          30.8%      7      return \\u{1b}[31m1\n\n";
        assert_eq!(text, expected);
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
        assert!(text.contains("--source-dir") && text.contains("30.8%      7\n"), "{text}");
        let error = printed(Some("nowhere"), None).unwrap_err();
        assert!(error.contains("called nowhere; hot ones are "), "{error}");
        assert!(!error.contains('\u{1b}'), "{error}");
        let short = printed(Some("shop.py"), Some("1\n2\n")).unwrap();
        assert!(short.contains("has 2 lines and was sampled at line 6"), "{short}");
    }
}
