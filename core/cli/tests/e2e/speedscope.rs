//! speedscope's own importer reads what wlprof writes for it, and says of it what wlprof's own recording says.

use crate::guest::{Place, fixture, tool};
use crate::tested::wlprof;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use wlprof::recording::{Recording, View};

/// What speedscope makes of a file.
#[derive(Deserialize)]
struct Group {
    name: String,
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    name: String,
    unit: String,
    total: u64,
    frames: Vec<Frame>,
    /// Beginnings and ends, in order of time.
    calls: Vec<Call>,
}

#[derive(Debug, Deserialize)]
struct Frame {
    name: String,
    file: Option<String>,
    line: Option<u32>,
    col: Option<u32>,
    #[serde(rename = "self")]
    own: u64,
    total: u64,
}

#[derive(Deserialize)]
struct Call {
    kind: String,
    name: String,
    at: u64,
}

fn read(profile: &Path) -> Group {
    let ran = Command::new(tool("speedscope-read")).arg(profile).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("Importing as speedscope json file"), "{said}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// A line of a function by its names, and its time, itself and with all that was called there.
type Times = BTreeMap<(String, Option<String>, Option<u32>), (u64, u64)>;

fn times_by_recording(recording: &Recording, thread: usize) -> Times {
    let mut times = Times::new();
    for sample in recording.threads[thread].samples.iter() {
        let place = |(function, line): (u32, Option<u32>)| {
            let function = &recording.functions[function as usize];
            (function.name.clone(), function.file.clone(), line)
        };
        let lines: Vec<_> = recording.lines_of(sample.stack).map(|line| (line.function, line.line)).collect();
        times.entry(place(lines[0])).or_default().0 += sample.period_ns;
        // Recursion counts once.
        for line in lines.into_iter().collect::<BTreeSet<_>>() {
            times.entry(place(line)).or_default().1 += sample.period_ns;
        }
    }
    times
}

fn times_by_speedscope(profile: &Profile) -> Times {
    let mut times = Times::new();
    for frame in &profile.frames {
        let sum = times.entry((frame.name.clone(), frame.file.clone(), frame.line)).or_default();
        *sum = (sum.0 + frame.own, sum.1 + frame.total);
    }
    times
}

/// The functions that are open in the middle of each sample, root first, as the calls say.
fn stacks_by_calls(profile: &Profile, weights: impl Iterator<Item = u64>) -> Vec<Vec<String>> {
    let mut open: Vec<String> = Vec::new();
    let mut calls = profile.calls.iter().peekable();
    let mut end_of_last = 0;
    weights
        .map(|weight| {
            while let Some(call) = calls.next_if(|call| call.at <= end_of_last) {
                match &*call.kind {
                    "begin" => open.push(call.name.clone()),
                    _ => assert_eq!(open.pop().as_ref(), Some(&call.name)),
                }
            }
            end_of_last += weight;
            open.clone()
        })
        .collect()
}

fn what_speedscope_says_is_what_was_recorded(folder: &Path, options: &[&str], guest: &str, arguments: &[&str]) {
    let place = Place::new();
    let profile = place.path("x.speedscope.json");
    let mut command = wlprof();
    command.current_dir(folder).args(["--rate=2000", "--max-overhead=100", "-o"]).arg(place.path("x.wlprof"));
    let ran = command.arg("-o").arg(&profile).args(options).arg(fixture(guest)).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let recording = place.recording("x.wlprof").view(View::Guest);
    let group = read(&profile);
    assert!(group.name.starts_with(guest), "{}", group.name);
    assert_eq!(group.profiles.len(), recording.threads.len());
    for (number, (profile, thread)) in group.profiles.iter().zip(&recording.threads).enumerate() {
        assert_eq!((&profile.name, &*profile.unit), (&recording.thread_name(thread), "nanoseconds"));
        let expected = times_by_recording(&recording, number);
        assert!(expected.len() > 5, "{expected:?}");
        assert_eq!(profile.total, thread.samples.iter().map(|sample| sample.period_ns).sum::<u64>());
        assert_eq!(times_by_speedscope(profile), expected);
        assert!(profile.frames.iter().any(|frame| frame.col.is_some()), "{:?}", profile.frames);
        let names = |sample: wlprof::recording::Sample| -> Vec<String> {
            let lines = recording.lines_of(sample.stack);
            let mut names: Vec<_> =
                lines.map(|line| recording.functions[line.function as usize].name.clone()).collect();
            names.reverse();
            names
        };
        let expected: Vec<_> = thread.samples.iter().map(names).collect();
        let found = stacks_by_calls(profile, thread.samples.iter().map(|sample| sample.period_ns));
        let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(first, None, "samples in order of time");
    }
}

#[test]
fn compiled_guests_are_read_with_their_lines_in_order_of_time() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    what_speedscope_says_is_what_was_recorded(&testdata, &[], "cpp-inlined.wasm", &[]);
    what_speedscope_says_is_what_was_recorded(&testdata, &[], "rust-mix.wasm", &[]);
}

#[test]
fn scripts_of_interpreters_are_read_too() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python");
    let library = format!("--dir={}::/usr/local/lib", fixture("python-3.11-lib").display());
    what_speedscope_says_is_what_was_recorded(
        &scripts,
        &["--dir=.", &library],
        "python-3.11.wasm",
        &["shares.py", "1"],
    );
}

#[test]
fn what_a_guest_calls_its_functions_stays_text() {
    let group = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../export/src/golden/example.speedscope.json"));
    assert_eq!(group.profiles.len(), 2);
    let frames = || group.profiles.iter().flat_map(|profile| &profile.frames);
    assert!(frames().any(|frame| frame.name.contains("</script> 99")));
    assert!(frames().all(|frame| !frame.name.contains(char::is_control) && !frame.name.is_empty()));
}
