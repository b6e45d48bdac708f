//! perf's own samples of a guest, named through a perf map or a jitdump, agree with wlprof's.

use super::{output, remove_perf_map, shell};
use crate::guest::{Place, fixture, fixture_bytes};
use crate::sampled::measure_again_if_off;
use crate::sections;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use wlprof::recording::{Recording, State};

/// Functions below this share of the time are not compared: chance has them come and go.
const SMALLEST_PERCENT: f64 = 0.5;
/// As much for lines, of which there are more.
const SMALLEST_LINE_PERCENT: f64 = 1.0;
/// How many functions are.
const COMPARED: usize = 10;
/// By how much of the last one's share a function may miss being among them, in points.
const BORDER: f64 = 0.3;
/// By how much shares may differ, in points.
const TOLERANCE: f64 = 3.0;

/// Shares in percent.
type Shares = BTreeMap<String, f64>;

/// A guest and how it is run.
struct Guest {
    /// What `sh` is to run after `wlprof` and its options.
    command: &'static str,
    /// For wlprof's own profile.
    options: &'static [&'static str],
    place: Place,
}

impl Guest {
    fn new(file: &[u8], command: &'static str, options: &'static [&'static str]) -> Self {
        let place = Place::new();
        place.file("guest.wasm", file);
        Self { command, options, place }
    }

    fn c() -> Self {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/demo/demo.wasm");
        Self::new(&std::fs::read(demo).unwrap(), "guest.wasm", &[])
    }

    fn rust() -> Self {
        Self::new(&fixture_bytes("rust-mix.wasm"), "guest.wasm 3", &[])
    }

    /// As `-ldflags="-s -w"` makes it: without names and DWARF.
    fn stripped_go() -> Self {
        Self::new(&sections::strip(&fixture_bytes("go-bench.wasm")), "guest.wasm 6", &["--lang=go"])
    }

    fn python() -> Self {
        let guest = Self::new(
            &fixture_bytes("python-3.11.wasm"),
            "--dir . --dir library::/usr/local/lib guest.wasm bench.py 500",
            // perf sees no Python, and wlprof is to see as little.
            &["--frames=native"],
        );
        std::os::unix::fs::symlink(fixture("python-3.11-lib"), guest.place.path("library")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/python/bench.py");
        std::fs::copy(script, guest.place.path("bench.py")).unwrap();
        guest
    }

    /// What wlprof itself says.
    fn recording(&self) -> Recording {
        let options = self.options.join(" ");
        output(
            &self.place,
            &format!("wlprof -q --rate 4000 --max-overhead 100 {options} -o own.wlprof {}", self.command),
        );
        self.place.recording("own.wlprof")
    }

    /// What perf samples with a perf map: names.
    fn with_perf_map(&self) -> Vec<PerfSample> {
        let ran = shell(&self.place, &format!("{RECORD} -o map.data wlprof --format=perfmap {}", self.command));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let samples = samples(&output(&self.place, "perf script -G --comms guest -i map.data -F comm,ip,sym,dso"));
        remove_perf_map(&ran.stderr);
        samples
    }

    /// What perf samples with a jitdump: names and lines.
    fn with_jitdump(&self) -> Vec<PerfSample> {
        output(&self.place, &format!("{RECORD} -k mono -o code.data wlprof --format=jitdump {}", self.command));
        output(&self.place, "perf inject --jit -i code.data -o named.data");
        samples(&output(&self.place, "perf script -G --comms guest -i named.data -F comm,ip,sym,dso,srcline"))
    }
}

const RECORD: &str = "perf record -q -e cpu-clock:u -F 4000 -g";

/// What `perf script` says of the innermost frame of a sample in the guest's code.
struct PerfSample {
    symbol: String,
    source_line: String,
}

/// Reads what `perf script -G -F comm,ip,sym,dso[,srcline]` prints, a line a sample: `COMM ADDRESS SYMBOL (DSO) [LINE]`,
/// where SYMBOL may have spaces and parentheses.
fn samples(text: &str) -> Vec<PerfSample> {
    let mut samples: Vec<PerfSample> = Vec::new();
    let mut in_guest = false;
    for line in text.lines() {
        let Some((before, dso)) = line.rsplit_once(" (").filter(|(_, dso)| dso.ends_with(')')) else {
            // perf puts the source line below.
            if let (true, Some(sample)) = (in_guest, samples.last_mut()) {
                sample.source_line = line.trim().to_owned();
            }
            continue;
        };
        let is_code = dso.contains("/jitted-") || dso.starts_with("/tmp/perf-");
        let words: Vec<&str> = before.split_whitespace().collect();
        in_guest = words[0] == "guest" && is_code;
        if in_guest {
            let is_address = |word: &&&str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let address = words.iter().skip(1).find(is_address).unwrap();
            let (_, symbol) = before.split_once(&format!(" {address} ")).unwrap();
            samples.push(PerfSample { symbol: symbol.to_owned(), source_line: "??:0".to_owned() });
        }
    }
    samples
}

fn shares(names: impl Iterator<Item = String>) -> Shares {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1.0);
    let all: f64 = counts.values().sum();
    counts.values_mut().for_each(|count| *count *= 100.0 / all);
    counts
}

/// Self time in the guest's code by function, those that are inlined counted as where they are inlined.
fn own_functions(recording: &Recording) -> Shares {
    shares(
        in_guest(recording)
            .map(|frame| recording.functions[frame.lines.last().unwrap().function as usize].name.clone()),
    )
}

/// Self time in the guest's code by line, in the form in which perf shows it.
fn own_lines(recording: &Recording) -> Shares {
    shares(in_guest(recording).map(|frame| {
        let file = recording.functions[frame.lines[0].function as usize].file.as_deref().unwrap_or("??");
        format!("{}:{}", file.rsplit('/').next().unwrap(), frame.lines[0].line.unwrap_or(0))
    }))
}

fn in_guest(recording: &Recording) -> impl Iterator<Item = &wlprof::recording::Frame> {
    let samples = recording.samples().filter(|sample| sample.state == State::Guest);
    samples.map(|sample| recording.frames_of(sample.stack).next().unwrap())
}

fn top(shares: &Shares) -> Vec<&str> {
    let mut names: Vec<_> = shares.iter().filter(|(_, share)| **share >= SMALLEST_PERCENT).collect();
    names.sort_by(|a, b| b.1.total_cmp(a.1));
    names.into_iter().take(COMPARED).map(|(name, _)| name.as_str()).collect()
}

/// Of the functions with the most self time all but one are the same, and their shares are close.
fn functions_agree(what: &str, own: &Shares, perfs: &Shares) -> Result<(), String> {
    let (own_top, perfs_top) = (top(own), top(perfs));
    let share = |shares: &Shares, name: &str| shares.get(name).copied().unwrap_or(0.0);
    // Functions at the border change places by chance: as good as the last of the others is good enough.
    let border = perfs_top.last().map_or(0.0, |last| share(perfs, last) - BORDER);
    let common = own_top.iter().filter(|name| share(perfs, name) >= border).count();
    let widest =
        own_top.iter().chain(&perfs_top).map(|name| (share(own, name) - share(perfs, name)).abs()).fold(0.0, f64::max);
    println!("{what}: {common} of the first {} the same, shares within {widest:.2}", own_top.len());
    if common + 1 >= own_top.len().max(perfs_top.len()) && widest <= TOLERANCE && common > 0 {
        return Ok(());
    }
    let both = own_top.iter().chain(&perfs_top);
    let shares: String =
        both.map(|name| format!("\n{name}: {:.2} {:.2}", share(own, name), share(perfs, name))).collect();
    Err(format!("{what}: {common} of the same, {widest:.2} apart{shares}"))
}

/// Shares of lines differ by `tolerance` points at most, and what has half of that is seen by both.
fn lines_agree(what: &str, own: &Shares, perfs: &Shares, tolerance: f64) -> Result<(), String> {
    let share = |shares: &Shares, line: &str| shares.get(line).copied().unwrap_or(0.0);
    // wlprof says where a line is unknown; in a jitdump the one before it goes on.
    let is_known = |line: &&String| !line.ends_with(":0");
    let either: BTreeSet<&String> = own.keys().chain(perfs.keys()).filter(is_known).collect();
    let mut compared = 0;
    let mut widest = (0.0, "");
    for line in either {
        let (own, perfs) = (share(own, line), share(perfs, line));
        if own.max(perfs) >= SMALLEST_LINE_PERCENT {
            compared += 1;
            let difference = (own - perfs).abs();
            if difference > widest.0 {
                widest = (difference, line);
            }
            let is_small = own.max(perfs) < tolerance / 2.0;
            if !is_small && own.min(perfs) == 0.0 {
                return Err(format!("{what}: {line}: {own:.2} {perfs:.2}"));
            }
        }
    }
    println!("{what}: {compared} lines, shares within {:.2} ({})", widest.0, widest.1);
    assert!(compared >= 5, "{what}: {compared} lines");
    if widest.0 <= tolerance { Ok(()) } else { Err(format!("{what}: {widest:?} apart")) }
}

/// Names through the perf map, names and lines through the jitdump.
fn assert_perf_agrees(name: &str, guest: &Guest, line_tolerance: f64) {
    measure_again_if_off(|| {
        let own = guest.recording();
        let functions = own_functions(&own);
        let mapped = guest.with_perf_map();
        let perfs = shares(mapped.into_iter().map(|sample| sample.symbol));
        functions_agree(&format!("{name}, perf map"), &functions, &perfs)?;
        let dumped = guest.with_jitdump();
        let perfs = shares(dumped.iter().map(|sample| sample.symbol.clone()));
        functions_agree(&format!("{name}, jitdump"), &functions, &perfs)?;
        let perfs = shares(dumped.into_iter().map(|sample| sample.source_line));
        lines_agree(name, &own_lines(&own), &perfs, line_tolerance)
    });
}

#[test]
fn c_agrees() {
    assert_perf_agrees("C", &Guest::c(), TOLERANCE);
}

#[test]
fn rust_agrees() {
    assert_perf_agrees("Rust", &Guest::rust(), TOLERANCE);
}

/// Code on its way from one block to another is on no line of either; wlprof gives it the line where the function was
/// seen last, a jitdump the one before it in the code.
#[test]
fn stripped_go_agrees() {
    assert_perf_agrees("stripped Go", &Guest::stripped_go(), 2.0 * TOLERANCE);
}

#[test]
fn the_python_interpreter_agrees() {
    assert_perf_agrees("CPython", &Guest::python(), TOLERANCE);
}
