//! The tables of memory: who allocated, and what is still held.

use super::TableOptions;
use super::rows::{place_of, shorten};
use super::user_lines::OUTSIDE_OF_THE_SCRIPT;
use crate::escape::single_line;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use wlprof_export::short_path;
use wlprof_recording::{
    Amount, Category, Frame, FunctionId, Heap, HeapPart, Line, Origin, Recording, SiteTotals, StackId, bytes, scaled,
};

/// Cells of an amount, as in `1023.9 ±12.3 MiB`.
const AMOUNT_WIDTH: usize = 17;
/// Cells of a number of blocks.
const BLOCKS_WIDTH: usize = 10;
/// Cells that a name has at least.
const MIN_NAME_WIDTH: usize = 24;

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
        titles(&[column(part), column(other)], title, text)?;
        for (place, totals) in rows.iter().filter(|(_, totals)| totals.part(part).bytes > 0.0).take(options.rows) {
            let amounts = [totals.part(part), totals.part(other)];
            row(recording, &amounts, *place, "", options, text)?;
        }
    }
    rows.retain(|(_, totals)| totals.held.blocks > 0.0);
    rows.sort_by(|(_, one), (_, other)| other.held.bytes.total_cmp(&one.held.bytes));
    if !rows.is_empty() {
        let has_ages = rows.iter().any(|(_, totals)| totals.held_since_ns.is_some());
        let title = "who still held memory at the end";
        let title = if has_ages { format!("{title}, and for how long") } else { title.to_owned() };
        titles(&[column(HeapPart::Held)], &title, text)?;
        for (place, totals) in rows.iter().take(options.rows) {
            let age = |since_ns: u64| recording.meta.duration_ns.saturating_sub(since_ns) as f64 / 1e9;
            let ages = totals.held_since_ns.map_or_else(String::new, |(oldest_ns, newest_ns)| {
                format!("  ({:.2} to {:.2} s)", age(newest_ns), age(oldest_ns))
            });
            row(recording, &[totals.held], *place, &ages, options, text)?;
        }
    }
    text.push('\n');
    Ok(())
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
pub(crate) fn differences(recordings: [&Recording; 2], part: HeapPart, rows: usize) -> String {
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
    let mut text = String::new();
    let shown = |amounts: [Amount; 2]| {
        let [before, after] = amounts.map(amount);
        let sign = if more(amounts) < 0.0 { "-" } else { "+" };
        format!(
            "{before:>AMOUNT_WIDTH$} {after:>AMOUNT_WIDTH$} {:>AMOUNT_WIDTH$}",
            format!("{sign}{}", amount(difference(amounts)))
        )
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n{:>AMOUNT_WIDTH$} {:>AMOUNT_WIDTH$} {:>AMOUNT_WIDTH$}  bytes {} (± is the 95 % bound of what sampling can tell)",
        "before",
        "after",
        "more",
        part.participle(),
    );
    let _ = writeln!(text, "{}  all together", shown(all));
    for ((name, file), amounts) in functions.into_iter().take(rows) {
        let file = file.as_deref().map_or_else(String::new, |file| format!("  {}", single_line(short_path(file))));
        let noise = if more(amounts).abs() > difference(amounts).bound() { "" } else { "  (noise)" };
        let _ = writeln!(text, "{}  {}{file}{noise}", shown(amounts), single_line(&name));
    }
    text
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

fn titles(columns: &[&str], title: &str, text: &mut String) -> fmt::Result {
    text.push('\n');
    columns.iter().try_for_each(|column| write!(text, "{column:>AMOUNT_WIDTH$} "))?;
    writeln!(text, "{:>BLOCKS_WIDTH$}  {title}", "blocks")
}

/// A row: amounts, of which the first is what blocks are counted of, and whose they are.
fn row(
    recording: &Recording,
    amounts: &[Amount],
    place: Place,
    after: &str,
    options: &TableOptions,
    text: &mut String,
) -> fmt::Result {
    for shown in amounts {
        write!(text, "{:>AMOUNT_WIDTH$} ", amount(*shown))?;
    }
    let (name, at) = match place {
        Some((function, line)) => {
            let function = &recording.functions[function as usize];
            (single_line(&function.name), place_of(function, line))
        }
        None => (OUTSIDE_OF_THE_SCRIPT.to_owned(), String::new()),
    };
    let after = format!("{at}{after}");
    let room = options.width.map(|width| {
        let before = amounts.len() * (AMOUNT_WIDTH + 1) + BLOCKS_WIDTH + 2;
        width.saturating_sub(before + after.chars().count()).max(MIN_NAME_WIDTH)
    });
    let name = room.map_or_else(|| name.clone(), |room| shorten(&name, room));
    writeln!(text, "{:>BLOCKS_WIDTH$}  {name}{after}", count(amounts[0]))
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
        assert!(lines[3].ends_with("blocks  who held memory when most was held"), "{text}");
        let first = lines[4];
        assert!(first.contains(" MiB ") && first.contains("shapes::outer  src/shapes.rs:13"), "{text}");
        let held = text.split("who still held memory").nth(1).unwrap();
        assert!(held.contains("  shapes::outer  src/shapes.rs:12  (0.01 to 0.02 s)"), "{text}");
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
