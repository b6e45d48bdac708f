//! The tables of memory: who allocated, and what is still held.

use super::TableOptions;
use super::amounts::{Amounts, blocks, count};
use super::rows::{FUNCTIONS, Row, Table, counted, place_of};
use super::user_lines::OUTSIDE_OF_THE_SCRIPT;
use crate::escape::single_line;
use crate::wrapping::wrapped;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use wlprof_export::short_path;
use wlprof_recording::{
    Amount, Category, Frame, FunctionId, Heap, HeapPart, Line, Origin, Recording, SiteTotals, StackId, bytes, count_of,
};

/// Who allocated: a line of a function, or nobody of the program.
type Place = Option<(FunctionId, Option<u32>)>;

/// Writes what stands above the tables, and these.
pub(super) fn write(recording: &Recording, part: HeapPart, options: &TableOptions, text: &mut String) -> fmt::Result {
    head(recording, text)?;
    let mut places: BTreeMap<Place, SiteTotals> = BTreeMap::new();
    for (place, totals) in heaps(recording).flat_map(|heap| placed(recording, heap)) {
        places.entry(place).or_default().add(totals);
    }
    let mut rows: Vec<(Place, SiteTotals)> = places.into_iter().collect();
    let amounts = Amounts::of([recording]);
    let mut is_vague = false;
    if part != HeapPart::Held {
        rows.sort_by(|(_, one), (_, other)| other.part(part).bytes.total_cmp(&one.part(part).bytes));
        let other = if part == HeapPart::Allocated { HeapPart::Peak } else { HeapPart::Allocated };
        let title = match part {
            HeapPart::Peak => "who held memory when most was held",
            HeapPart::Grown => "who made linear memory grow, and how often",
            _ => "who allocated memory",
        };
        let shown: Vec<_> = rows.iter().filter(|(_, totals)| totals.part(part).bytes > 0.0).collect();
        writeln!(text, "\n{}: {title}; {}", column(part), coverage(&shown, part, amounts, options))?;
        is_vague |= shown.first().is_some_and(|(_, totals)| amounts.of_part(part).is_vague(totals.part(part)));
        let mut heads = vec![column(part), column(other)];
        heads.extend(amounts.of_part(part).is_exact().then_some("blocks"));
        let mut table = Table::new(&heads, "line").without_bars();
        for (place, totals) in shown.into_iter().take(options.rows) {
            let cell = |part| amounts.of_part(part).shown(totals.part(part));
            let mut cells = vec![cell(part), cell(other)];
            cells.extend(amounts.of_part(part).is_exact().then(|| count(totals.part(part))));
            table.rows.push(row(recording, cells, *place));
        }
        table.write(options.width, text)?;
    }
    rows.retain(|(_, totals)| totals.held.blocks > 0.0);
    rows.sort_by(|(_, one), (_, other)| other.held.bytes.total_cmp(&one.held.bytes));
    if !rows.is_empty() {
        let has_ages = rows.iter().any(|(_, totals)| totals.held_since_ns.is_some());
        let title = "still held: who still held memory at the end";
        let title = if has_ages { format!("{title}, and for how long") } else { title.to_owned() };
        let shown: Vec<_> = rows.iter().collect();
        writeln!(text, "\n{title}; {}", coverage(&shown, HeapPart::Held, amounts, options))?;
        is_vague |= shown.first().is_some_and(|(_, totals)| amounts.is_vague(totals.held));
        let mut heads = vec![column(HeapPart::Held)];
        heads.extend(has_ages.then_some("for"));
        heads.extend(amounts.is_exact().then_some("blocks"));
        let mut table = Table::new(&heads, "line").without_bars();
        for (place, totals) in rows.iter().take(options.rows) {
            let age = |since_ns: u64| recording.meta.duration_ns.saturating_sub(since_ns) as f64 / 1e9;
            let ages = totals.held_since_ns.map_or_else(String::new, |(oldest_ns, newest_ns)| {
                format!("{:.2} to {:.2} s", age(newest_ns), age(oldest_ns))
            });
            let mut cells = vec![amounts.shown(totals.held)];
            cells.extend(has_ages.then_some(ages));
            cells.extend(amounts.is_exact().then(|| count(totals.held)));
            table.rows.push(row(recording, cells, *place));
        }
        table.write(options.width, text)?;
    }
    if is_vague {
        writeln!(text, "few samples: {}", amounts.advice(total(recording, HeapPart::Allocated)))?;
    }
    text.push('\n');
    Ok(())
}

/// How much the rows that are shown have of all, as in `10 of 34 lines, 9.1 ±1.0 MiB of 9.7 ±1.1 MiB`.
fn coverage(rows: &[&(Place, SiteTotals)], part: HeapPart, amounts: Amounts, options: &TableOptions) -> String {
    let sum = |rows: &[&(Place, SiteTotals)]| {
        let mut sum = Amount::default();
        rows.iter().for_each(|(_, totals)| sum.add(totals.part(part)));
        amounts.of_part(part).shown(sum)
    };
    let counted = counted(options.rows, rows.len(), ["line", "lines"]);
    format!("{counted}, {} of {}", sum(&rows[..rows.len().min(options.rows)]), sum(rows))
}

fn heaps(recording: &Recording) -> impl Iterator<Item = &Heap> {
    recording.stores.iter().filter_map(|store| store.heap.as_ref())
}

/// That part of all heaps.
fn total(recording: &Recording, part: HeapPart) -> Amount {
    let mut total = Amount::default();
    heaps(recording).for_each(|heap| total.add(heap.total(part)));
    total
}

/// What stands above the tables: how much there is.
pub(super) fn head(recording: &Recording, text: &mut String) -> fmt::Result {
    let [peak, held, allocated] =
        [HeapPart::Peak, HeapPart::Held, HeapPart::Allocated].map(|part| total(recording, part));
    let samples = heaps(recording).flat_map(|heap| &heap.sites).map(|site| site.totals.samples);
    let samples = samples.fold(0, u64::saturating_add);
    let largest = recording.stores.iter().flat_map(|store| &store.memory).map(|size| size.bytes).max();
    let linear = largest.map_or_else(String::new, |size| format!("; linear memory came to {}", bytes(size as f64)));
    let (guest, seconds) = (single_line(&recording.meta.guest), recording.meta.duration_ns as f64 / 1e9);
    let amounts = Amounts::of([recording]);
    let each = bytes(amounts.rate as f64);
    if samples == 0 && !amounts.is_exact() {
        let (most, advice) = (amounts.shown(allocated), amounts.advice(allocated));
        return writeln!(
            text,
            "{guest}: no allocation was sampled in {seconds:.2} s, at one each {each}: there were {most}, or the allocator is unknown ({advice}){linear}"
        );
    }
    let (blocks, how) = if amounts.is_exact() {
        (format!(" in {}", blocks(allocated)), "every allocation".to_owned())
    } else {
        (String::new(), format!("at least one each {each}; ± is the 95 % bound of what sampling can tell"))
    };
    let allocated = amounts.shown(allocated);
    writeln!(
        text,
        "{guest}: {allocated}{blocks} allocated in {seconds:.2} s ({}, {how})",
        count_of(samples, "sample")
    )?;
    let when = match heaps(recording).collect::<Vec<_>>()[..] {
        [heap] if heap.peak_ns > 0 => format!(" after {:.2} s", heap.peak_ns as f64 / 1e9),
        [_] => String::new(),
        // Each at its own time.
        _ => " by the stores, added up".to_owned(),
    };
    writeln!(text, "held: {} at the peak{when}, {} at the end{linear}", amounts.shown(peak), amounts.shown(held))
}

/// What two recordings differ in, by function: bytes of `part` before and after, and how many more.
#[must_use]
pub fn differences(recordings: [&Recording; 2], part: HeapPart, rows: usize, width: Option<usize>) -> String {
    let mut functions: BTreeMap<(String, Option<String>), [Amount; 2]> = BTreeMap::new();
    for (side, recording) in recordings.into_iter().enumerate() {
        for (place, totals) in heaps(recording).flat_map(|heap| placed(recording, heap)) {
            let key = match place {
                Some((function, _)) => {
                    let function = &recording.functions[function as usize];
                    (function.name.clone(), function.file.clone())
                }
                None => (OUTSIDE_OF_THE_SCRIPT.to_owned(), None),
            };
            functions.entry(key).or_default()[side].add(totals.part(part));
        }
    }
    let more = |[before, after]: [Amount; 2]| after.bytes - before.bytes;
    let difference = |amounts: [Amount; 2]| {
        let variance = amounts[0].variance + amounts[1].variance;
        Amount { blocks: 0.0, bytes: more(amounts).abs(), variance }
    };
    let mut all = [Amount::default(); 2];
    functions.values().for_each(|amounts| (0..2).for_each(|side| all[side].add(amounts[side])));
    let mut functions: Vec<_> =
        functions.into_iter().filter(|(_, amounts)| amounts.iter().any(|one| one.bytes > 0.0)).collect();
    functions.sort_by(|(_, one), (_, other)| more(*other).abs().total_cmp(&more(*one).abs()));
    let shown = Amounts::of(recordings).of_part(part);
    let is_real = |amounts: &[Amount; 2]| more(*amounts).abs() > shown.bound(difference(*amounts));
    let cells = |amounts: [Amount; 2]| {
        let sign = if more(amounts) < 0.0 { "-" } else { "+" };
        let more = match is_real(&amounts) {
            true => format!("{sign}{}", shown.shown(difference(amounts))),
            // Less than chance makes of it.
            false => shown.shown(difference(amounts)),
        };
        let [before, after] = amounts.map(|amount| shown.shown(amount));
        vec![before, after, more]
    };
    let (total, part) = (functions.len(), part.participle());
    functions.retain(|(_, amounts)| is_real(amounts));
    let mut text = String::new();
    let counted = counted(functions.len(), total, FUNCTIONS);
    // Writing to a string cannot fail.
    let _ = match functions.len() {
        0 => writeln!(text, "\nno difference above chance: {counted} (bytes {part})"),
        real => writeln!(
            text,
            "\nbytes {part} (± is the 95 % bound of what sampling can tell)\n{counted} with a difference above chance, {} shown",
            real.min(rows)
        ),
    };
    let mut table = Table::new(&["before", "after", "more"], "function").without_bars();
    let row = |cells, name, after| Row { cells, name, after, ..Row::default() };
    table.rows.push(row(cells(all), "all together".to_owned(), String::new()));
    for ((name, file), amounts) in functions.into_iter().take(rows) {
        let file = file.as_deref().map_or_else(String::new, |file| format!("  {}", single_line(short_path(file))));
        table.rows.push(row(cells(amounts), single_line(&name), file));
    }
    let _ = table.write(width, &mut text);
    wrapped(&text, width)
}

/// What each site of a heap has allocated, and whose that is.
fn placed<'a>(recording: &'a Recording, heap: &'a Heap) -> impl Iterator<Item = (Place, &'a SiteTotals)> {
    // An interpreter's: of Go all stacks have frames of it.
    let has_language = heap.sites.iter().any(|site| recording.frames_of(site.stack).any(is_of_language));
    heap.sites.iter().map(move |site| (place(recording, has_language, site.stack), &site.totals))
}

/// The innermost line of the program's own: what it allocates by a library is its own doing. Of a stack that has none, the leaf; nobody, if
/// the program's language has stacks of its own and this one has nothing of it.
fn place(recording: &Recording, has_language: bool, stack: StackId) -> Place {
    let is_own = |line: &Line| recording.functions[line.function as usize].category == Category::User;
    let is_known = |frame: &Frame| is_of_language(frame) || frame.origin == Origin::Truncated;
    if has_language && !recording.frames_of(stack).any(is_known) {
        return None;
    }
    let mut lines = recording.lines_of(stack);
    let leaf = lines.next();
    leaf.into_iter().chain(lines).find(is_own).or(leaf).map(|line| (line.function, line.line))
}

fn is_of_language(frame: &Frame) -> bool {
    matches!(frame.origin, Origin::Language { .. })
}

fn column(part: HeapPart) -> &'static str {
    match part {
        HeapPart::Peak => "at the peak",
        HeapPart::Held => "still held",
        HeapPart::Allocated => "allocated",
        HeapPart::Grown => "grown by",
    }
}

/// A row of a place.
fn row(recording: &Recording, cells: Vec<String>, place: Place) -> Row {
    let (name, after) = match place {
        Some((function, line)) => {
            let function = &recording.functions[function as usize];
            (single_line(&function.name), place_of(function, line))
        }
        None => (OUTSIDE_OF_THE_SCRIPT.to_owned(), String::new()),
    };
    Row { cells, name, after, ..Row::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    const OPTIONS: TableOptions =
        TableOptions { rows: 10, verbose: false, callers_of: None, shows_interpreter: false, width: None };

    fn table(part: HeapPart) -> String {
        let mut text = String::new();
        write(&example().of_memory(part), part, &OPTIONS, &mut text).unwrap();
        text
    }

    #[test]
    fn it_says_who_allocated_and_who_still_holds() {
        let text = table(HeapPart::Peak);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("app.wasm: ") && lines[0].contains("(89 samples, at least one each 512.0 KiB; ±"),
            "{text}"
        );
        assert!(lines[1].starts_with("held: ") && lines[1].contains(" at the peak after 0.01 s, "), "{text}");
        assert!(lines[3].starts_with("at the peak: who held memory when most was held; "), "{text}");
        assert!(lines[4].ends_with("  allocated  line"), "blocks have no bounds: {text}");
        let first = lines[5];
        assert!(first.contains(" MiB ") && first.contains("shapes::outer  src/shapes.rs:13"), "{text}");
        let held = text.split("who still held memory").nth(1).unwrap();
        assert!(held.contains("  0.01 to 0.02 s  shapes::outer  src/shapes.rs:12\n"), "{text}");
        assert!(
            !table(HeapPart::Held).contains("when most was held")
                && table(HeapPart::Allocated).contains("who allocated")
        );
    }

    #[test]
    fn every_figure_has_its_bound_unless_it_is_exact() {
        let text = table(HeapPart::Allocated);
        let figures =
            text.split(['\n', ',', ';']).flat_map(|cell| cell.split("  ")).filter(|cell| cell.ends_with("iB"));
        let is_bounded = |figure: &str| figure.contains('±') || figure.contains("< ");
        let is_estimate = |figure: &&str| !figure.contains("one each") && !figure.contains("linear memory");
        let estimates: Vec<&str> = figures.filter(is_estimate).collect();
        assert!(estimates.len() > 5 && estimates.iter().all(|figure| is_bounded(figure)), "{estimates:?}");
        assert!(!text.contains("few samples"), "{text}");
        // Less is known than there may be without a sample.
        let mut coarse = example();
        coarse.stores.iter_mut().filter_map(|store| store.heap.as_mut()).for_each(|heap| heap.rate = 100 << 20);
        let mut text = String::new();
        write(&coarse.of_memory(HeapPart::Held), HeapPart::Held, &OPTIONS, &mut text).unwrap();
        assert!(text.contains("\nfew samples: --memory-rate=6553600 makes bounds a quarter as wide\n"), "{text}");
        let mut exact = example();
        exact.stores.iter_mut().filter_map(|store| store.heap.as_mut()).for_each(|heap| heap.rate = 1);
        let mut text = String::new();
        write(&exact.of_memory(HeapPart::Held), HeapPart::Held, &OPTIONS, &mut text).unwrap();
        assert!(!text.contains('±') && !text.contains("< ") && !text.contains("--memory-rate"), "{text}");
        assert!(text.contains("  blocks  line"), "{text}");
    }

    #[test]
    fn a_heap_without_a_sample_has_a_bound_and_advice() {
        let mut recording = example();
        recording.stores.iter_mut().filter_map(|store| store.heap.as_mut()).for_each(|heap| heap.sites.clear());
        let mut text = String::new();
        head(&recording, &mut text).unwrap();
        assert!(
            text.contains(" s, at one each 512.0 KiB: there were < 1.5 MiB, or the allocator is unknown "),
            "{text}"
        );
        assert!(text.contains(" (--memory-rate=1 samples every allocation)"), "{text}");
    }
}
