//! perf's own samples of a guest, named through a perf map or a jitdump, are what wlprof's are: each address has the name
//! and the line that wlprof has for it, and of a run that both sample both see the same functions. How often is not compared:
//! shares of two samplers on a busy machine differ by more than chance.

use super::{output, remove_perf_map, shell};
use crate::guest::{Place, fixture, fixture_bytes};
use crate::sections;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use wlprof::languages::{self, BUILT_IN, Choice};
use wlprof::machine_code::{CodeName, Lines, NativeCode, for_each_function, native_code};
use wlprof::recording::{Origin, Recording, State};
use wlprof::symbols::Symbols;
use wlprof_run::guest::{Guest, LoadOptions};

const RECORD: &str = "perf record -q -e cpu-clock:u -F 4000 -g";

/// A guest and how it is run.
struct Subject {
    name: &'static str,
    /// What `sh` is to run after `wlprof` and its options.
    command: &'static str,
    /// Which language wlprof walks and names.
    language: &'static str,
    place: Place,
}

impl Subject {
    fn new(name: &'static str, file: &[u8], command: &'static str, language: &'static str) -> Self {
        let place = Place::new();
        place.file("guest.wasm", file);
        Self { name, command, language, place }
    }

    fn c() -> Self {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/demo/demo.wasm");
        Self::new("C", &std::fs::read(demo).unwrap(), "guest.wasm", "native")
    }

    fn rust() -> Self {
        Self::new("Rust", &fixture_bytes("rust-mix.wasm"), "guest.wasm 3", "native")
    }

    /// As `-ldflags="-s -w"` makes it: without names and DWARF.
    fn stripped_go() -> Self {
        Self::new("stripped Go", &sections::strip(&fixture_bytes("go-bench.wasm")), "guest.wasm 6", "go")
    }

    /// perf sees no Python, and wlprof is to see as little.
    fn python() -> Self {
        let python = fixture_bytes("python-3.11.wasm");
        let command = "--dir . --dir library::/usr/local/lib guest.wasm bench.py 500";
        let subject = Self::new("CPython", &python, command, "native");
        std::os::unix::fs::symlink(fixture("python-3.11-lib"), subject.place.path("library")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python/bench.py");
        std::fs::copy(script, subject.place.path("bench.py")).unwrap();
        subject
    }

    /// What perf samples with a perf map: names.
    fn with_perf_map(&self) -> Vec<PerfSample> {
        let command = format!("{RECORD} -o map.data wlprof --lang={} --format=perfmap {}", self.language, self.command);
        let ran = shell(&self.place, &command);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let printed = output(&self.place, "perf script -G --comms guest -i map.data -F comm,ip,sym,symoff,dso");
        let map = ran.stderr.split_whitespace().find(|word| word.starts_with("/tmp/perf-")).expect("a perf map");
        let map = std::fs::read_to_string(map.trim_end_matches(':')).unwrap();
        remove_perf_map(&ran.stderr);
        let ranges: Vec<(u64, u64)> = map.lines().map(range_of_map_line).collect();
        let place = |line: &SampleLine<'_>| {
            line.dso.starts_with("/tmp/perf-").then_some(())?;
            ranges.iter().position(|(start, size)| line.address.checked_sub(*start).is_some_and(|at| at < *size))
        };
        samples(&printed, place)
    }

    /// What perf samples with a jitdump, names and lines, and what wlprof samples in the same run.
    fn with_jitdump(&self) -> (Vec<PerfSample>, Recording) {
        let own = format!("wlprof -q --lang={} --rate 4000 --max-overhead 100 -o own.wlprof", self.language);
        output(&self.place, &format!("{RECORD} -k mono -o code.data {own} --format=jitdump {}", self.command));
        output(&self.place, "perf inject --jit -i code.data -o named.data");
        let fields = "comm,ip,sym,symoff,dso,srcline";
        let printed = output(&self.place, &format!("perf script -G --comms guest -i named.data -F {fields}"));
        // `perf inject` makes a file of each function, which ends in the function's number in the dump.
        let place = |line: &SampleLine<'_>| {
            let (_, file) = line.dso.rsplit_once("/jitted-")?;
            file.strip_suffix(".so")?.rsplit_once('-')?.1.parse().ok()
        };
        (samples(&printed, place), self.place.recording("own.wlprof"))
    }
}

/// Start and size of what a line of a perf map names.
fn range_of_map_line(line: &str) -> (u64, u64) {
    let mut words = line.split(' ');
    let mut number = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
    (number(), number())
}

/// What perf says of the innermost frame of a sample in the guest's code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PerfSample {
    /// Which piece of the guest's machine code it is in.
    piece: usize,
    /// Where in that.
    offset: u32,
    symbol: String,
    /// File and line; `None` if perf knows no line.
    line: Option<String>,
}

/// A line that `perf script` prints for a sample.
struct SampleLine<'a> {
    address: u64,
    dso: &'a str,
}

/// Reads what `perf script -G -F comm,ip,sym,symoff,dso[,srcline]` prints, a line a sample: `COMM ADDRESS SYMBOL+OFFSET (DSO)`,
/// where SYMBOL may have spaces and parentheses. The source line, if perf has one, is below. `piece` says which piece of the
/// guest's code a sample is in.
fn samples(text: &str, piece: impl Fn(&SampleLine<'_>) -> Option<usize>) -> Vec<PerfSample> {
    let mut samples: Vec<PerfSample> = Vec::new();
    let mut in_guest = false;
    for line in text.lines() {
        let Some((before, dso)) = line.strip_suffix(')').and_then(|line| line.rsplit_once(" (")) else {
            if let (true, Some(sample)) = (in_guest, samples.last_mut()) {
                let is_known = |line: &&str| line.rsplit_once(':').is_some_and(|(_, line)| line != "0");
                sample.line = Some(line.trim()).filter(is_known).map(str::to_owned);
            }
            continue;
        };
        let (_, after_comm) = before.trim_start().split_once(' ').unwrap();
        let (address, symbol) = after_comm.trim_start().split_once(' ').unwrap();
        let address = u64::from_str_radix(address, 16).unwrap();
        let found = piece(&SampleLine { address, dso });
        in_guest = found.is_some();
        if let Some(piece) = found {
            let (symbol, offset) = symbol.rsplit_once("+0x").unwrap_or_else(|| panic!("{line}"));
            let offset = u32::from_str_radix(offset, 16).unwrap();
            samples.push(PerfSample { piece, offset, symbol: symbol.to_owned(), line: None });
        }
    }
    samples
}

/// What wlprof has for a guest's machine code.
struct Own<'g> {
    code: Vec<NativeCode<'g>>,
    /// The name of each piece.
    names: Vec<String>,
    symbols: Symbols,
}

impl<'g> Own<'g> {
    fn of(guest: &'g Guest, language: &str) -> Self {
        let image = &guest.code.images[0];
        let program = languages::choose(&Choice::from(language), BUILT_IN, &**image).unwrap().program;
        let mut symbols = Symbols::new(std::slice::from_ref(image), vec![program]);
        let mut names = Vec::new();
        let add = |function: &wlprof::export::NativeFunction<'_>| {
            names.push(function.name.clone());
            Ok(())
        };
        for_each_function(&guest.code, 0, &mut symbols, Lines::Omit, |_| true, add).unwrap();
        Self { code: native_code(&guest.code), names, symbols }
    }

    /// File and line of the instruction at an offset into a piece, as wlprof's samples of it have them.
    fn line(&mut self, piece: usize, offset: u32) -> Option<String> {
        let NativeCode { name: CodeName::Function { function, .. }, code_offsets, .. } = &self.code[piece] else {
            return None;
        };
        let next = code_offsets.partition_point(|(start, _)| *start <= offset);
        let (_, code_offset) = code_offsets[next.checked_sub(1)?];
        let mut frames = Vec::new();
        self.symbols.frames(&Origin::Wasm { module: 0, function: *function, code_offset }, &mut frames);
        let file = frames[0].file.as_deref().filter(|file| !file.is_empty())?;
        Some(format!("{}:{}", file.rsplit('/').next().unwrap(), frames[0].line?))
    }
}

/// Every address that perf sampled has the name and, in a jitdump, the line that wlprof has for it.
fn assert_each_address_agrees(subject: &Subject, mapped: Vec<PerfSample>, dumped: &[PerfSample]) {
    let guest = Guest::load(&subject.place.path("guest.wasm"), &LoadOptions::default()).unwrap();
    let mut own = Own::of(&guest, subject.language);
    let (mut functions, mut lines) = (BTreeSet::new(), BTreeSet::new());
    for sample in mapped.into_iter().collect::<BTreeSet<_>>() {
        assert_eq!(sample.symbol, own.names[sample.piece], "{}: the perf map's {sample:?}", subject.name);
        functions.insert(sample.symbol);
    }
    let mapped = functions.len();
    for sample in dumped.iter().cloned().collect::<BTreeSet<_>>() {
        assert_eq!(sample.symbol, own.names[sample.piece], "{}: the jitdump's {sample:?}", subject.name);
        assert_eq!(sample.line, own.line(sample.piece, sample.offset), "{}: {sample:?}", subject.name);
        functions.insert(sample.symbol);
        lines.extend(sample.line);
    }
    println!("{}: {mapped} functions mapped, {} in all, {} lines", subject.name, functions.len(), lines.len());
    assert!(mapped >= 5 && lines.len() >= 5, "{}: {functions:?} {lines:?}", subject.name);
}

/// What has this share of many samples is among the other sampler's, however the two were disturbed.
const LARGE: f64 = 0.1;
/// What one sample in ten is of is not missed in so many: the chance is one in a hundred thousand millions.
const MANY: usize = 250;

/// How many samples each function has.
fn count(functions: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    functions.for_each(|function| *counts.entry(function).or_default() += 1);
    counts
}

/// Functions of samples in the guest's code, those that are inlined counted as where they are inlined.
fn own_functions(recording: &Recording) -> impl Iterator<Item = String> {
    let in_guest = recording.samples().filter(|sample| sample.state == State::Guest);
    in_guest.map(|sample| {
        let leaf = recording.frames_of(sample.stack).next().unwrap();
        recording.functions[leaf.lines.last().unwrap().function as usize].name.clone()
    })
}

/// Of a run that both sampled, wlprof has what perf sees often, and perf what wlprof does.
fn assert_the_same_is_seen(subject: &Subject, dumped: &[PerfSample], recording: &Recording) {
    let own = count(own_functions(recording));
    let perfs = count(dumped.iter().map(|sample| sample.symbol.clone()));
    let mut compared = 0;
    for (one, other, whose) in [(&own, &perfs, "perf's"), (&perfs, &own, "wlprof's")] {
        let [all, all_of_other] = [one, other].map(|counts| counts.values().sum::<usize>());
        println!("{}: {all} samples in {} functions", subject.name, one.len());
        assert!(all_of_other >= MANY, "{}: {whose} samples are {all_of_other}", subject.name);
        let is_large = |count: &usize| *count as f64 >= LARGE * all as f64;
        for (function, count) in one.iter().filter(|(_, count)| is_large(count)) {
            assert!(other.contains_key(function), "{}: {function}, {count} of {all}, not in {whose}", subject.name);
            compared += 1;
        }
    }
    assert!(compared >= 2, "{}: {own:?} {perfs:?}", subject.name);
}

fn assert_perf_agrees(subject: &Subject) {
    let (dumped, recording) = subject.with_jitdump();
    assert_each_address_agrees(subject, subject.with_perf_map(), &dumped);
    assert_the_same_is_seen(subject, &dumped, &recording);
}

#[test]
fn c_agrees() {
    assert_perf_agrees(&Subject::c());
}

#[test]
fn rust_agrees() {
    assert_perf_agrees(&Subject::rust());
}

#[test]
fn stripped_go_agrees() {
    assert_perf_agrees(&Subject::stripped_go());
}

#[test]
fn the_python_interpreter_agrees() {
    assert_perf_agrees(&Subject::python());
}
