//! The tables of memory: who allocated, and what is still held.

use super::TableOptions;
use super::rows::{FUNCTIONS, Row, Table, counted, place_of};
use super::user_lines::OUTSIDE_OF_THE_SCRIPT;
use crate::escape::single_line;
use crate::wrapping::wrapped;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use wlprof_export::short_path;
use wlprof_recording::{
    Amount, Category, Frame, FunctionId, Heap, HeapPart, Line, Origin, Recording, SiteTotals, StackId, bytes, scaled,
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
    if part != HeapPart::Held {
        rows.sort_by(|(_, one), (_, other)| other.part(part).bytes.total_cmp(&one.part(part).bytes));
        let other = if part == HeapPart::Allocated { HeapPart::Peak } else { HeapPart::Allocated };
        let title = match part {
            HeapPart::Peak => "who held memory when most was held",
            HeapPart::Grown => "who made linear memory grow, and how often",
            _ => "who allocated memory",
        };
        let shown: Vec<_> = rows.iter().filter(|(_, totals)| totals.part(part).bytes > 0.0).collect();
        writeln!(text, "\n{}: {title}; {}", column(part), coverage(&shown, part, options))?;
        let mut table = Table::new(&[column(part), column(other), "blocks"], "line").without_bars();
        for (place, totals) in shown.into_iter().take(options.rows) {
            let cells = vec![amount(totals.part(part)), amount(totals.part(other)), count(totals.part(part))];
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
        writeln!(text, "\n{title}; {}", coverage(&shown, HeapPart::Held, options))?;
        let heads = [column(HeapPart::Held), "blocks", "for"];
        let mut table = Table::new(&heads[..if has_ages { 3 } else { 2 }], "line").without_bars();
        for (place, totals) in rows.iter().take(options.rows) {
            let age = |since_ns: u64| recording.meta.duration_ns.saturating_sub(since_ns) as f64 / 1e9;
            let ages = totals.held_since_ns.map_or_else(String::new, |(oldest_ns, newest_ns)| {
                format!("{:.2} to {:.2} s", age(newest_ns), age(oldest_ns))
            });
            table.rows.push(row(recording, vec![amount(totals.held), count(totals.held), ages], *place));
        }
        table.write(options.width, text)?;
    }
    text.push('\n');
    Ok(())
}

/// How much the rows that are shown have of all, as in `10 of 34 lines, 9.1 ±1.0 MiB of 9.7 ±1.1 MiB`.
fn coverage(rows: &[&(Place, SiteTotals)], part: HeapPart, options: &TableOptions) -> String {
    let sum = |rows: &[&(Place, SiteTotals)]| {
        let mut sum = Amount::default();
        rows.iter().for_each(|(_, totals)| sum.add(totals.part(part)));
        amount(sum)
    };
    let counted = counted(options.rows, rows.len(), ["line", "lines"]);
    format!("{counted}, {} of {}", sum(&rows[..rows.len().min(options.rows)]), sum(rows))
}

fn heaps(recording: &Recording) -> impl Iterator<Item = &Heap> {
    recording.stores.iter().filter_map(|store| store.heap.as_ref())
}

/// What stands above the tables: how much there is.
pub(super) fn head(recording: &Recording, text: &mut String) -> fmt::Result {
    let total = |part: HeapPart| {
        let mut total = Amount::default();
        heaps(recording).for_each(|heap| total.add(heap.total(part)));
        total
    };
    let [peak, held, allocated] = [HeapPart::Peak, HeapPart::Held, HeapPart::Allocated].map(total);
    let samples = heaps(recording).flat_map(|heap| &heap.sites).map(|site| site.totals.samples);
    let samples = samples.fold(0, u64::saturating_add);
    let rate = heaps(recording).map(|heap| heap.rate).max().unwrap_or_default();
    let each = if rate == 1 { "every allocation".to_owned() } else { format!("one each {}", bytes(rate as f64)) };
    let bound = if rate == 1 { "" } else { "; ± is the 95 % bound of what sampling can tell" };
    let largest = recording.stores.iter().flat_map(|store| &store.memory).map(|size| size.bytes).max();
    let linear = largest.map_or_else(String::new, |size| format!("; linear memory came to {}", bytes(size as f64)));
    writeln!(
        text,
        "{}: {} in {} blocks allocated in {:.2} s ({samples} samples, {each}{bound})",
        single_line(&recording.meta.guest),
        amount(allocated),
        count(allocated),
        recording.meta.duration_ns as f64 / 1e9,
    )?;
    let most = match heaps(recording).collect::<Vec<_>>()[..] {
        [heap] if heap.peak_ns > 0 => {
            format!("at most {} held after {:.2} s", amount(peak), heap.peak_ns as f64 / 1e9)
        }
        [_] => format!("at most {} held", amount(peak)),
        // Each at its own time.
        _ => format!("at most {} held by the stores, added up", amount(peak)),
    };
    writeln!(text, "{most}, {} at the end{linear}", amount(held))
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
    let is_real = |amounts: &[Amount; 2]| more(*amounts).abs() > difference(*amounts).bound();
    let cells = |amounts: [Amount; 2]| {
        let sign = if more(amounts) < 0.0 { "-" } else { "+" };
        let [before, after] = amounts.map(amount);
        vec![before, after, format!("{sign}{}", amount(difference(amounts)))]
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

/// An estimate with its bound, both in one unit, as in `25.4 ±0.9 MiB`; without one where it is exact.
fn amount(amount: Amount) -> String {
    let bound = amount.bound();
    // What is smaller is an error of adding up.
    if bound < 0.5 {
        return bytes(amount.bytes);
    }
    let (value, unit) = scaled(amount.bytes);
    let bound = if value == 0.0 { bound } else { bound * value / amount.bytes };
    // With one decimal, and never less than it is.
    format!("{value:.1} ±{:.1} {unit}", (bound * 10.0 - 1e-6).ceil() / 10.0)
}

/// A number of blocks, with its thousands apart.
fn count(amount: Amount) -> String {
    let digits = format!("{:.0}", amount.blocks);
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
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
            lines[0].starts_with("app.wasm: ") && lines[0].contains("(89 samples, one each 512.0 KiB; ±"),
            "{text}"
        );
        assert!(lines[1].starts_with("at most ") && lines[1].contains(" held after 0.01 s, "), "{text}");
        assert!(lines[3].starts_with("at the peak: who held memory when most was held; "), "{text}");
        assert!(lines[4].ends_with("blocks  line"), "{text}");
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
    fn amounts_have_one_unit_and_bounds_that_are_never_too_small() {
        let shown = |bytes, variance| amount(Amount { blocks: 1.0, bytes, variance });
        assert_eq!(shown(3.0 * 1048576.0, 0.0), "3.0 MiB");
        let deviation = 0.51 * 1048576.0 / 1.959_964;
        assert_eq!(shown(3.0 * 1048576.0, deviation * deviation), "3.0 ±0.6 MiB");
        let blocks = |blocks| count(Amount { blocks, ..Amount::default() });
        assert_eq!([blocks(0.2), blocks(999.0), blocks(1000.4), blocks(1234567.0)], ["0", "999", "1,000", "1,234,567"]);
    }
}
