//! The table printed after a run, on standard error: standard output is the guest's.

use super::escape::single_line;
use crate::recording::{Clock, FunctionTotal, Recording, Totals, Truncation};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Rows of each table.
const ROWS: usize = 10;
/// Widest name shown, in characters.
const NAME_WIDTH: usize = 56;
/// Cells of a bar at 100 %.
const BAR_WIDTH: f64 = 20.0;

/// The summary of `recording`.
pub(super) fn summary(recording: &Recording) -> String {
    let totals = Totals::of(recording);
    let mut text = String::from("\n");
    // Writing to a string cannot fail.
    let _ = head(recording, &totals, &mut text);
    if totals.functions.is_empty() {
        text.push_str(
            "no samples: the guest ran for less than a sampling interval, or only waited (see --rate, --clock=wall)\n",
        );
    } else {
        let _ = tables(recording, &totals, &mut text);
    }
    for note in &recording.meta.notes {
        let _ = writeln!(text, "note: {}", single_line(note));
    }
    text
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn head(recording: &Recording, totals: &Totals, text: &mut String) -> std::fmt::Result {
    let meta = &recording.meta;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let base_ns = match meta.clock {
        Clock::Cpu => meta.cpu_ns,
        Clock::Wall => meta.duration_ns,
    };
    let clock = format!("{:?}", meta.clock).to_lowercase();
    let reached = recording.ticks.sampled as f64 / seconds(base_ns).max(1e-9);
    writeln!(
        text,
        "{}: {} samples in {:.2} s ({:.2} s CPU), {reached:.0} a second of {clock} time ({} sampler at {:.0} Hz)",
        single_line(&meta.guest),
        recording.ticks.sampled,
        seconds(meta.duration_ns),
        seconds(meta.cpu_ns),
        single_line(&meta.sampler),
        meta.allowed_hz,
    )?;
    write!(text, "host {:.1} %", percent(totals.host_ns, totals.all_ns))?;
    if totals.blocked_ns > 0 {
        write!(text, " ({:.1} % waiting)", percent(totals.blocked_ns, totals.all_ns))?;
    }
    // A few periods are no news: sampling begins and ends somewhere between two samples.
    if meta.unsampled_ns as f64 > 0.005 * base_ns as f64 + 4e9 / meta.allowed_hz.max(1.0) {
        write!(text, ", {:.1} % not sampled", percent(meta.unsampled_ns, base_ns))?;
    }
    let ticks = &recording.ticks;
    write!(text, ", {} ticks lost", ticks.lost())?;
    let reasons = [
        (ticks.coalesced, "the signal was delayed"),
        (ticks.ring_full, "buffer full"),
        (ticks.unrecorded, "could not be recorded"),
        (ticks.woke, "the guest woke while being read"),
    ];
    list(text, counted(&reasons))?;
    let without_sample = [
        (ticks.idle, "waiting"),
        (ticks.preempted, "without a processor"),
        (ticks.at_end, "at the end"),
        (ticks.late, "that came too late to fire"),
    ];
    let without_sample: Vec<String> = counted(&without_sample).collect();
    if !without_sample.is_empty() {
        write!(text, ", ticks without a sample: {}", without_sample.join(", "))?;
    }
    if !ticks.balanced() {
        // A defect of wlprof's; better seen than hidden.
        write!(text, ", {} ticks not accounted for", ticks.fired.abs_diff(ticks.accounted()))?;
    }
    let truncated: u64 = recording.truncated.iter().map(|(_, count)| count).sum();
    write!(text, ", {truncated} stacks truncated")?;
    list(text, recording.truncated.iter().map(|(reason, count)| format!("{count} {}", describe(*reason))))?;
    if meta.pause.handler_p50_ns > 0 {
        let micros = |ns: u64| ns as f64 / 1e3;
        let pause = meta.pause;
        write!(text, ", pause p50 {:.1} µs p99 {:.1} µs", micros(pause.handler_p50_ns), micros(pause.handler_p99_ns))?;
    }
    text.push('\n');
    labels(recording, totals, text)
}

/// What samples belong to by the language's account, as in `state: python 61.0 %, gc 3.0 %`: a line for each of the first
/// few labels. Numbers of goroutines are left out: there are too many.
fn labels(recording: &Recording, totals: &Totals, text: &mut String) -> std::fmt::Result {
    const NAMES: usize = 4;
    const VALUES: usize = 6;
    let mut sums = BTreeMap::<&str, BTreeMap<&str, u64>>::new();
    for sample in recording.samples() {
        let labels = sample.labels.and_then(|set| recording.label_sets.get(set as usize));
        for (name, value) in labels.into_iter().flatten().filter(|(name, _)| name != "goroutine") {
            *sums.entry(name).or_default().entry(value).or_default() += sample.period_ns;
        }
    }
    for (name, values) in sums.into_iter().take(NAMES) {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let share = |(value, ns): &(&str, u64)| format!("{} {:.1} %", single_line(value), percent(*ns, totals.all_ns));
        let shares: Vec<String> = values.iter().take(VALUES).map(share).collect();
        let more = values.len().saturating_sub(VALUES);
        let more = if more == 0 { String::new() } else { format!(", {more} more") };
        writeln!(text, "{}: {}{more}", single_line(name), shares.join(", "))?;
    }
    Ok(())
}

fn counted<'a>(reasons: &'a [(u64, &str)]) -> impl Iterator<Item = String> + 'a {
    reasons.iter().filter(|(count, _)| *count > 0).map(|(count, reason)| format!("{count} {reason}"))
}

fn list(text: &mut String, items: impl Iterator<Item = String>) -> std::fmt::Result {
    let items: Vec<String> = items.collect();
    if items.is_empty() { Ok(()) } else { write!(text, " ({})", items.join(", ")) }
}

fn describe(reason: Truncation) -> String {
    match reason {
        Truncation::TooDeep => "deeper than a sample holds".into(),
        Truncation::BrokenChain => "with a broken chain of frames".into(),
        Truncation::TooMany => "beyond the distinct stacks that a recording holds".into(),
        Truncation::Language(reason) => format!("language: {reason}"),
    }
}

fn tables(recording: &Recording, totals: &Totals, text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n{:>7} {:>7}  {:<20}  where the time itself went", "self", "total", "")?;
    for total in totals.functions.iter().filter(|total| total.self_ns > 0).take(ROWS) {
        row(recording, totals, total, total.self_ns, total.hottest_line, text)?;
    }
    let mut by_total: Vec<&FunctionTotal> = totals.functions.iter().collect();
    by_total.sort_by_key(|total| (std::cmp::Reverse(total.total_ns), total.function));
    writeln!(text, "\n{:>7} {:>7}  {:<20}  with all that was called from there", "self", "total", "")?;
    for total in by_total.into_iter().take(ROWS) {
        let line = recording.functions[total.function as usize].line;
        row(recording, totals, total, total.total_ns, line, text)?;
    }
    text.push('\n');
    Ok(())
}

fn row(
    recording: &Recording,
    totals: &Totals,
    total: &FunctionTotal,
    bar_ns: u64,
    line: Option<u32>,
    text: &mut String,
) -> std::fmt::Result {
    let function = &recording.functions[total.function as usize];
    let share = percent(bar_ns, totals.all_ns);
    let cells = (share / 100.0 * BAR_WIDTH).round() as usize;
    let name = shorten(&single_line(&function.name));
    let place = match (&function.file, line) {
        (Some(file), Some(line)) => format!("  {}:{line}", short_path(file)),
        (Some(file), None) => format!("  {}", short_path(file)),
        (None, _) => String::new(),
    };
    writeln!(
        text,
        "{:>6.1}% {:>6.1}%  {:<20}  {name}{place}",
        percent(total.self_ns, totals.all_ns),
        percent(total.total_ns, totals.all_ns),
        "█".repeat(cells),
    )
}

/// Keeps the beginning and the end of a long name: generics grow in the middle.
fn shorten(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME_WIDTH {
        return name.to_owned();
    }
    let head = NAME_WIDTH * 2 / 3;
    let tail = NAME_WIDTH - head - 1;
    let begin: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(length - tail).collect();
    format!("{begin}…{end}")
}

/// The last two parts of a path.
fn short_path(path: &str) -> String {
    let mut parts = path.rsplit(['/', '\\']);
    match (parts.next(), parts.next()) {
        (Some(file), Some(folder)) if !folder.is_empty() => single_line(&format!("{folder}/{file}")),
        _ => single_line(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Meta, Module, Origin, Sample, State, testing};
    use wlprof_plugin::SourceFrame;

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
        let printed = summary(&recording);
        assert!(printed.contains("(a\\u{1b}[31m\\u{61c}\\u{a}b sampler"), "{printed}");
        let is_raw = |c: char| c != '\n' && c.is_control() || c == '\u{61c}';
        assert!(!printed.contains(is_raw) && !printed.contains("\nb"), "{printed:?}");
    }

    #[test]
    fn long_names_keep_both_ends() {
        let name = format!("begin{}end", "x".repeat(200));
        let short = shorten(&name);
        assert_eq!(short.chars().count(), NAME_WIDTH);
        assert!(short.starts_with("begin") && short.ends_with("end"));
    }

    #[test]
    fn paths_keep_two_parts() {
        assert_eq!(short_path("/home/me/src/main.c"), "src/main.c");
        assert_eq!(short_path("/main.c"), "/main.c");
        assert_eq!(short_path("main.c"), "main.c");
    }
}
