//! `pprof`, the program that `go tool pprof` runs, reads what wlprof writes for it, and says of it what wlprof's own recording
//! says.

use crate::guest::{Place, fixture, tool};
use crate::quickjs;
use crate::tested::wlprof;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use wlprof::recording::{Recording, View};

/// What `pprof` prints. With no limit of what is worth printing.
fn pprof(arguments: &[&str], profile: &Path) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(tool("pprof"));
    command.env("HOME", home.path()).env("PPROF_TMPDIR", home.path());
    command.args(["-nodefraction=0", "-edgefraction=0", "-nodecount=1000000", "-unit=ns"]).args(arguments).arg(profile);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// Nanoseconds of each function, itself and with all that it called, by name, which is all that pprof goes by.
pub(crate) type Times = BTreeMap<String, (u64, u64)>;

/// Nanoseconds of each function, itself and with all that it called, as pprof says.
pub(crate) fn times_by_pprof(profile: &Path) -> Times {
    sums_by_pprof(profile, &[], "ns")
}

/// What pprof says of each function, itself and with all that it called, in `unit`.
pub(crate) fn sums_by_pprof(profile: &Path, arguments: &[&str], unit: &str) -> Times {
    let printed = pprof(&[&["-top"], arguments].concat(), profile);
    let rows = printed.lines().skip_while(|line| !line.trim_start().starts_with("flat ")).skip(1);
    let row = |line: &str| {
        let mut rest = line.trim_start();
        let columns = [(); 5].map(|()| {
            let (column, after) = rest.split_once(char::is_whitespace).unwrap();
            rest = after.trim_start();
            column
        });
        let sum = |column: &str| match column {
            "0" => 0,
            column => column.strip_suffix(unit).and_then(|sum| sum.parse().ok()).unwrap_or_else(|| panic!("{line}")),
        };
        let name = ["(inline)", "(partial-inline)"].iter().find_map(|mark| rest.strip_suffix(mark)).unwrap_or(rest);
        (name.trim_end().to_owned(), (sum(columns[0]), sum(columns[3])))
    };
    rows.map(row).collect()
}

/// The part of `profile.proto` that rows are of.
mod proto {
    #[derive(prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "2")]
        pub(super) sample: Vec<Sample>,
        #[prost(string, repeated, tag = "6")]
        pub(super) string_table: Vec<String>,
    }

    #[derive(prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) label: Vec<Label>,
    }

    #[derive(prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) text: i64,
        #[prost(int64, tag = "3")]
        pub(super) number: i64,
    }
}

/// The locations of a sample, its labels that are texts, and those that are numbers.
pub(crate) type Row = (Vec<u64>, BTreeMap<String, String>, BTreeMap<String, i64>);

/// The first value of each sample of a profile as it is in the file: `pprof` adds up those that are equal. That is not left to it.
pub(crate) fn rows(profile: &[u8]) -> BTreeMap<Row, i64> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(profile).read_to_end(&mut bytes).unwrap();
    let profile = <proto::Profile as prost::Message>::decode(&*bytes).unwrap();
    let text = |place: i64| profile.string_table[place as usize].clone();
    let mut rows = BTreeMap::new();
    for sample in &profile.sample {
        let (texts, numbers): (Vec<_>, Vec<_>) = sample.label.iter().partition(|label| label.text != 0);
        let texts = texts.into_iter().map(|label| (text(label.key), text(label.text))).collect();
        let numbers = numbers.into_iter().map(|label| (text(label.key), label.number)).collect();
        let is_new = rows.insert((sample.location_id.clone(), texts, numbers), sample.value[0]).is_none();
        assert!(is_new, "two samples are equal: {sample:?}");
    }
    rows
}

fn times_by_recording(recording: &Recording) -> Times {
    let mut times = Times::new();
    for sample in recording.samples() {
        let names: Vec<&str> =
            recording.lines_of(sample.stack).map(|line| &*recording.functions[line.function as usize].name).collect();
        times.entry(names[0].to_owned()).or_default().0 += sample.period_ns;
        for name in names.into_iter().collect::<BTreeSet<_>>() {
            times.entry(name.to_owned()).or_default().1 += sample.period_ns;
        }
    }
    times
}

/// Samples in all.
fn count_by_pprof(profile: &Path) -> usize {
    let printed = pprof(&["-top", "-sample_index=samples", "-unit=auto"], profile);
    let (_, total) = printed.split_once("Showing nodes accounting for ").unwrap_or_else(|| panic!("{printed}"));
    total.split_once(',').and_then(|(count, _)| count.parse().ok()).unwrap_or_else(|| panic!("{printed}"))
}

/// Runs a guest, in the folder at `folder`, and compares all numbers. Gives the place with `x.pb.gz`.
fn numbers_are_equal(folder: &Path, options: &[&str], guest: &str, arguments: &[&str]) -> Place {
    let place = Place::new();
    let (recording, profile) = (place.path("x.wlprof"), place.path("x.pb.gz"));
    let mut command = wlprof();
    command
        .current_dir(folder)
        .args(["--rate=5000", "--max-overhead=100", "-o"])
        .arg(recording)
        .arg("-o")
        .arg(&profile);
    let ran = command.args(options).arg(fixture(guest)).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let recording = place.recording("x.wlprof").view(View::Guest);
    assert_eq!(count_by_pprof(&profile), recording.samples().count());
    let (found, expected) = (times_by_pprof(&profile), times_by_recording(&recording));
    assert!(expected.len() > 5, "{expected:?}");
    let all: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let different = all.into_iter().filter(|name| found.get(*name) != expected.get(*name));
    let different: Vec<_> = different.map(|name| (name, found.get(name), expected.get(name))).collect();
    assert!(different.is_empty(), "{guest}: by pprof and by the recording: {different:#?}");
    place
}

fn testdata(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder)
}

#[test]
fn numbers_are_equal_for_compiled_languages() {
    for (guest, arguments) in
        [("c-shares.wasm", &["1"][..]), ("cpp-inlined.wasm", &[]), ("rust-mix.wasm", &[]), ("c-hosty.wasm", &[])]
    {
        numbers_are_equal(&testdata(""), &[], guest, arguments);
    }
}

#[test]
fn numbers_are_equal_for_goroutines_which_are_labels() {
    let place = numbers_are_equal(&testdata(""), &[], "go-work-1.27.wasm", &["channels", "2"]);
    let recording = place.recording("x.wlprof");
    let mut of_goroutines = BTreeMap::<&str, u64>::new();
    for sample in recording.samples() {
        let labels = sample.labels.map_or(&[][..], |set| &recording.label_sets[set as usize]);
        let goroutine = labels.iter().find(|(name, _)| name == "goroutine");
        *of_goroutines.entry(goroutine.map_or("", |(_, value)| value)).or_default() += sample.period_ns;
    }
    assert!(of_goroutines.len() > 3, "{of_goroutines:?}");
    let focused = |goroutine: &str| {
        // Numbers are numeric labels, which are no text: Pyroscope makes a series of each set of texts.
        let is_number = goroutine.parse::<u64>().is_ok();
        let focus = if is_number { format!("goroutine={goroutine}") } else { format!("goroutine=^{goroutine}$") };
        let printed = pprof(&["-top", &format!("-tagfocus={focus}")], &place.path("x.pb.gz"));
        let (_, total) = printed.split_once("Showing nodes accounting for ").unwrap_or_else(|| panic!("{printed}"));
        total.split_once("ns,").and_then(|(ns, _)| ns.parse::<u64>().ok()).unwrap_or_else(|| panic!("{printed}"))
    };
    let texts = rows(&std::fs::read(place.path("x.pb.gz")).unwrap()).into_keys().flat_map(|(_, texts, _)| texts);
    let goroutines: BTreeSet<String> = texts.filter(|(key, _)| key == "goroutine").map(|(_, value)| value).collect();
    assert!(goroutines.iter().all(|goroutine| goroutine == "scheduler"), "{goroutines:?}");
    for (goroutine, time_ns) in of_goroutines.into_iter().filter(|(goroutine, _)| !goroutine.is_empty()) {
        assert_eq!(focused(goroutine), time_ns, "goroutine {goroutine}");
    }
}

#[test]
fn waiting_is_told_and_so_is_the_clock() {
    let place = Place::new();
    let guest = r#"(module
        (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 16) "\01")
        (data (i32.const 24) "\00\c2\eb\0b")
        (func (export "_start") (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"#;
    place.file("sleeps.wat", guest);
    let ran = place.run(["--clock=wall", "-o", "x.pb.gz", "sleeps.wat"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let waiting = pprof(&["-top", "-tagfocus=where=waiting"], &place.path("x.pb.gz"));
    assert!(waiting.contains("Type: wall") && waiting.contains("wasi_snapshot_preview1.poll_oneoff"), "{waiting}");
    let counts = pprof(&["-tags", "-sample_index=samples", "-unit=auto"], &place.path("x.pb.gz"));
    assert!(counts.contains(": waiting"), "{counts}");
}

#[test]
fn numbers_are_equal_for_interpreters_and_their_scripts() {
    let library = format!("--dir={}::/usr/local/lib", fixture("python-3.11-lib").display());
    numbers_are_equal(&testdata("python"), &["--dir=.", &library], "python-3.11.wasm", &["shares.py", "1"]);
    let javascript = ["--plugin", quickjs::plugin(), "--lang=javascript", "--dir=."];
    numbers_are_equal(&testdata("quickjs"), &javascript, "quickjs-0.16.wasm", &["shares.js", "loops", "20"]);
}

#[test]
fn listings_show_the_source_with_the_time_of_each_line() {
    let place = numbers_are_equal(&testdata(""), &[], "c-shares.wasm", &["1"]);
    let path = format!("-source_path={}", testdata("").display());
    let listing = pprof(&["-list=^main$", &path], &place.path("x.pb.gz"));
    let hot = |line: &&str| line.contains("state = heavy(state);") && line.contains("ns ");
    assert!(listing.lines().any(|line| hot(&line)), "{listing}");
}

#[test]
fn what_a_guest_calls_its_functions_and_labels_stays_text() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../export/src/golden/example.pb.gz");
    for view in ["-top", "-traces", "-tags", "-raw", "-peek=.", "-tree", "-comments", "-dot"] {
        let printed = pprof(&[view], &example);
        let odd = printed.chars().find(|c| c.is_control() && !"\n\t".contains(*c));
        assert!(odd.is_none() && !printed.is_empty(), "{view}: {odd:?} in {printed}");
        // In graphs, texts stand between quotation marks.
        let is_closed =
            |line: &str| line.replace("\\\\", "").replace("\\\"", "").matches('"').count().is_multiple_of(2);
        assert!(view != "-dot" || printed.lines().all(is_closed), "{printed}");
    }
    assert!(pprof(&["-comments"], &example).contains("the rate was lowered"));
}
