//! Python guests at arbitrary instructions: whole stacks of calls that Python made, known shares of lines, and C code under
//! the lines that called it.

use crate::guest::{Place, fixture_bytes, output};
use crate::running::{first_of_dump, start};
use crate::sampled::{
    Luck, Shares, are_few, fixture, measure_again_if_off, percent_of_time, profile_command, profile_until,
    with_ever_more_work,
};
use crate::tested::wlprof;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use wlprof::recording::{Category, Frame, LanguageTruncation, Origin, Recording, Truncation};

/// The luck of measurements for shares of time.
const LUCK: Luck =
    Luck { why: "other programs share the processor's caches, so that equal work takes unequal time", off: 0, of: 32 };

/// The oldest release and the newest. Those of [`COMPONENTS`] are components, which have their library in them.
pub(crate) const RELEASES: [&str; 2] = ["3.11", "3.14"];
/// Those between.
pub(crate) const OTHER_RELEASES: [&str; 2] = ["3.12", "3.13"];
pub(crate) const COMPONENTS: [&str; 2] = ["3.12", "3.14"];
/// A component that runs the script in a task of WASI 0.3.
pub(crate) const IN_TASK: &str = "async";

pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python")
}

/// The option that gives an interpreter its library. What is beside a fixture is a link, which wlprof does not follow unasked.
pub(crate) fn library(release: &str) -> String {
    let folder = fixture(&format!("python-{}-lib", release.trim_end_matches("-stripped")));
    format!("--dir={}::/usr/local/lib", folder.display())
}

/// `wlprof` with the scripts as the guest's current folder.
pub(crate) fn command(options: &[&str], release: &str, arguments: &[&str]) -> Command {
    let mut command = wlprof();
    command.current_dir(scripts()).args(options).arg("--dir=.");
    if release == IN_TASK {
        // It could answer requests as well.
        command.arg("-Shttp");
    } else if !COMPONENTS.contains(&release) {
        command.arg(library(release));
    }
    command.arg(fixture(&guest(release))).args(arguments);
    command
}

/// The fixture with that release.
pub(crate) fn guest(release: &str) -> String {
    let kind = if release == IN_TASK || COMPONENTS.contains(&release) { "component-" } else { "" };
    format!("{kind}python-{release}.wasm")
}

/// Profiles a script at 10 kHz.
fn profile(release: &str, frames: &str, arguments: &[&str]) -> Recording {
    let options = ["--lang", "python", "--frames", frames, "--rate", "10000", "--max-overhead", "100"];
    profile_command(command(&options, release, arguments), release)
}

#[test]
fn the_epoch_sampler_shows_pythons_frames_too() {
    RELEASES.into_iter().for_each(check_epoch_sampler);
}

#[test]
fn the_epoch_sampler_shows_pythons_frames_too_in_every_other_release() {
    OTHER_RELEASES.into_iter().for_each(check_epoch_sampler);
}

fn check_epoch_sampler(release: &str) {
    let options = ["--sampler=epoch", "--rate=2000"];
    let recording = profile_command(command(&options, release, &["bench.py", "1"]), release);
    let in_python = |frame: &Frame| matches!(frame.origin, Origin::Language { .. });
    let (mut of_python, mut all) = (0, 0);
    for sample in recording.samples() {
        all += 1;
        of_python += u64::from(recording.frames_of(sample.stack).any(in_python));
    }
    println!("{release}: {of_python} of {all}, {:?}", recording.truncated);
    // Before its first frame and after its last the interpreter begins and ends.
    assert!(of_python > 0 && 2 * of_python > all, "{release}: {of_python} of {all}");
    let cut: u64 = recording.truncated.iter().map(|(_, count)| *count).sum();
    assert!(are_few(cut, all, 0.01), "{release}: {:?} of {all}", recording.truncated);
}

/// Every call between Python functions that a script made: caller, line, callee, by Python's own account.
pub(crate) fn calls(release: &str, arguments: &[&str]) -> BTreeSet<(String, u32, String)> {
    let arguments: Vec<&str> = ["calls.py"].into_iter().chain(arguments.iter().copied()).collect();
    let text = output(&mut command(&["--sampler=off"], release, &arguments)).stdout;
    let calls = text.lines().filter_map(|line| {
        let parts: Vec<&str> = line.strip_prefix("@\t")?.split('\t').collect();
        Some((parts[0].to_owned(), parts[1].parse().unwrap(), parts[2].to_owned()))
    });
    calls.collect()
}

/// A Python frame: its function, the function's file and the line.
pub(crate) fn python<'a>(recording: &'a Recording, frame: &Frame) -> Option<(&'a str, &'a str, u32)> {
    let (Origin::Language { .. }, [line]) = (frame.origin, frame.lines.as_slice()) else { return None };
    let function = &recording.functions[line.function as usize];
    Some((&function.name, function.file.as_deref().unwrap_or(""), line.line.unwrap_or(0)))
}

/// Name and category of a wasm frame's function.
fn wasm<'a>(recording: &'a Recording, frame: &Frame) -> Option<(&'a str, Category)> {
    let Origin::Wasm { .. } = frame.origin else { return None };
    let function = &recording.functions[frame.lines.last()?.function as usize];
    Some((&function.name, function.category))
}

#[test]
fn stacks_are_whole_and_made_of_calls_that_happened() {
    for release in RELEASES.into_iter().chain([IN_TASK]) {
        check_calls(release, &["--rate", "10000", "--max-overhead", "100"]);
    }
}

#[test]
fn stacks_are_whole_and_made_of_calls_that_happened_in_every_other_release() {
    for release in OTHER_RELEASES {
        check_calls(release, &["--rate", "10000", "--max-overhead", "100"]);
    }
}

#[test]
fn the_epoch_samplers_stacks_are_made_of_calls_that_happened() {
    for release in RELEASES.into_iter().chain([IN_TASK]) {
        check_calls(release, &["--sampler=epoch", "--rate=10000"]);
    }
}

#[test]
fn the_epoch_samplers_stacks_are_made_of_calls_that_happened_in_every_other_release() {
    for release in OTHER_RELEASES {
        check_calls(release, &["--sampler=epoch", "--rate=10000"]);
    }
}

/// Profiles a script with these `options`, and compares its stacks with the calls that Python itself tells of.
fn check_calls(release: &str, options: &[&str]) {
    let script = std::fs::read_to_string(scripts().join("bench.py")).unwrap();
    let lines: Vec<&str> = script.lines().collect();
    let calls = calls(release, &["bench.py", "30"]);
    assert!(calls.len() > 100, "{}", calls.len());
    let options = [&["--lang", "python", "--frames", "merged"], options].concat();
    let recording = profile_until(3000, |times| {
        profile_command(command(&options, release, &["bench.py", &(1000 * times).to_string()]), release)
    });
    let incomplete: u64 = recording.truncated.iter().map(|(_, count)| *count).sum();
    let mut pairs = 0;
    for sample in recording.samples() {
        let frames: Vec<_> = recording.frames_of(sample.stack).filter_map(|frame| python(&recording, frame)).collect();
        for pair in frames.windows(2) {
            let [callee, caller] = pair else { unreachable!("windows of two") };
            let is_ours = |(_, file, _): &(&str, &str, u32)| file.ends_with("bench.py");
            if !is_ours(callee) || !is_ours(caller) {
                continue;
            }
            let call = (caller.0.to_owned(), caller.2, callee.0.to_owned());
            // Python tells of no call when a generator or coroutine is only made.
            let text = lines[caller.2 as usize - 1];
            let makes = || text.contains(&format!("{}(", callee.0.rsplit('.').next().unwrap()));
            assert!(calls.contains(&call) || makes(), "{release}: {call:?} in {frames:?}");
            pairs += 1;
        }
    }
    let sampled = recording.ticks.sampled;
    println!("{release}: {sampled} samples, {pairs} pairs, {incomplete} incomplete: {:?}", recording.truncated);
    assert!(pairs > sampled / 10, "{release}: {pairs} pairs");
    assert!(are_few(incomplete, sampled, 0.005), "{release}: {incomplete} of {sampled}: {:?}", recording.truncated);
    // What a frame that is being made has left of one before leads to another frame's middle, or out of memory.
    let is_counted = |reason: &Truncation| {
        matches!(
            reason,
            Truncation::Language(
                LanguageTruncation::NoStack
                    | LanguageTruncation::InHostCode
                    | LanguageTruncation::Inconsistent
                    | LanguageTruncation::BadPointer
            )
        )
    };
    assert!(recording.truncated.iter().all(|(reason, _)| is_counted(reason)), "{:?}", recording.truncated);
}

#[test]
fn lines_have_their_shares() {
    RELEASES.into_iter().for_each(check_shares);
}

#[test]
fn lines_have_their_shares_in_every_other_release() {
    OTHER_RELEASES.into_iter().for_each(check_shares);
}

fn check_shares(release: &str) {
    let script = std::fs::read_to_string(scripts().join("shares.py")).unwrap();
    let line_of = |text: &str| script.lines().position(|line| line.contains(text)).unwrap() as u32 + 1;
    measure_again_if_off(LUCK, || {
        let recording =
            profile_until(4000, |times| profile(release, "guest", &["shares.py", &(6000 * times).to_string()]));
        let innermost = recording.samples().filter_map(|sample| {
            let frame = recording.frames_of(sample.stack).find_map(|frame| python(&recording, frame))?;
            Some((frame, sample.period_ns))
        });
        let in_work = innermost.filter(|((name, ..), _)| *name == "work");
        let shares = Shares::of(in_work.map(|((_, _, line), time)| (line, time)));
        // Besides its sums, each line has some work of its own.
        let truths = [("* 15", 75.0), ("* 4", 20.0), ("* 1)", 5.0)];
        truths.into_iter().try_for_each(|(text, truth)| shares.near(&line_of(text), truth, 1.0))
    });
}

#[test]
fn c_code_stands_under_the_line_that_called_it() {
    RELEASES.into_iter().for_each(check_callers_of_c_code);
}

#[test]
fn c_code_stands_under_the_line_that_called_it_in_every_other_release() {
    OTHER_RELEASES.into_iter().for_each(check_callers_of_c_code);
}

fn check_callers_of_c_code(release: &str) {
    let script = std::fs::read_to_string(scripts().join("bench.py")).unwrap();
    let lines: Vec<&str> = script.lines().collect();
    // C functions, and what is on the lines of the script that call them.
    let cases: [(&str, &[&str]); 4] = [
        ("builtin_sorted", &["sorted("]),
        ("binascii_crc32", &["crc32("]),
        ("long_pow", &["pow(", "**"]),
        ("functools_reduce", &["reduce("]),
    ];
    let recording = profile_until(3000, |times| profile(release, "merged", &["bench.py", &(1500 * times).to_string()]));
    for (c, calls) in cases {
        let mut seen = 0;
        for sample in recording.samples() {
            let frames: Vec<&Frame> = recording.frames_of(sample.stack).collect();
            if frames.iter().all(|frame| python(&recording, frame).is_none())
                || frames.last().is_some_and(|root| root.origin == Origin::Truncated)
            {
                // Python's frames could not be read, or not all of them: counted, and checked above.
                continue;
            }
            // 3.14 has it with a stroke before it.
            let is_it = |name: &str| name.strip_prefix('_').unwrap_or(name) == c;
            let Some(at) =
                frames.iter().rposition(|frame| wasm(&recording, frame).is_some_and(|(name, _)| is_it(name)))
            else {
                continue;
            };
            let caller = frames[at..].iter().find_map(|frame| python(&recording, frame));
            let (name, file, line) = caller.unwrap_or_else(|| panic!("{release}: nothing called {c}"));
            if file.ends_with("bench.py") {
                let text = lines[line as usize - 1];
                assert!(calls.iter().any(|call| text.contains(call)), "{release}: {c} at {name}:{line}: {text}");
                seen += 1;
            }
        }
        println!("{release}: {seen} samples under {c}");
        assert!(seen > 0, "{release}: no sample in {c}");
    }
}

#[test]
fn frames_tells_whose_are_shown() {
    let of = |frames: &str| {
        // Not the recording itself, which keeps all: what is written from it.
        let folder = tempfile::tempdir().unwrap();
        let folded = folder.path().join("x.folded");
        let options = ["--frames", frames, "--rate", "5000", "--max-overhead", "100", "-o", folded.to_str().unwrap()];
        let mut text = String::new();
        with_ever_more_work("a Python program", |times| {
            let ran = output(&mut command(&options, "3.11", &["bench.py", &(400 * times).to_string()]));
            assert_eq!(ran.code, Some(0), "{ran:?}");
            text = std::fs::read_to_string(&folded).unwrap();
            text.lines().count() > 100
        });
        text
    };
    let (guest, merged, native) = (of("guest"), of("merged"), of("native"));
    let has = |text: &str, names: &[&str]| text.lines().any(|line| names.iter().all(|name| line.contains(name)));
    assert!(has(&guest, &["play;"]) && has(&merged, &["play;"]) && !has(&native, &["play;"]));
    assert!(has(&native, &["_PyEval_EvalFrameDefault"]));
    // The interpreter starts and ends without any frame of Python's.
    assert!(has(&merged, &["play;", "pymain_run"]) && !has(&guest, &["play;", "pymain_run"]), "{guest}");
}

#[test]
fn a_stripped_interpreter_shows_python_frames() {
    check_stripped("3.11-stripped");
}

#[test]
fn a_stripped_interpreter_shows_python_frames_in_every_other_release() {
    check_stripped("3.13-stripped");
}

fn check_stripped(release: &str) {
    let recording = profile_until(1000, |times| {
        let script = ["shares.py", &(3000 * times).to_string()];
        profile_command(command(&["--rate", "2000"], release, &script), release)
    });
    let share = percent_of_time(&recording, |sample| {
        let mut frames = recording.frames_of(sample.stack).filter_map(|frame| python(&recording, frame));
        frames.any(|(name, file, _)| name == "work" && file.ends_with("shares.py"))
    });
    assert!(share > 60.0, "{release}: {share:.1} % in work");
}

#[test]
fn samples_say_what_python_was_doing() {
    check_states("3.11");
}

#[test]
fn samples_say_what_python_was_doing_in_every_other_release() {
    check_states("3.13");
}

fn check_states(release: &str) {
    let mut states: BTreeSet<String> = BTreeSet::new();
    // Some of them are short.
    with_ever_more_work("all states", |times| {
        let recording = profile(release, "guest", &["bench.py", &(300 * times).to_string()]);
        let labels = recording.samples().filter_map(|sample| Some(&recording.label_sets[sample.labels? as usize]));
        let found = labels.flatten().filter(|(name, _)| name == "state").map(|(_, value)| value.clone());
        states.extend(found);
        println!("{states:?}");
        ["python", "c code", "gc", "importing"].iter().all(|state| states.contains(*state))
    });
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    let found = bytes.windows(old.len()).enumerate().filter(|(_, window)| *window == old);
    let places: Vec<usize> = found.map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{old:?} is not there");
    places.into_iter().for_each(|at| bytes[at..at + old.len()].copy_from_slice(new));
}

/// The version is what the interpreter says of itself; changed there, the module still runs.
#[test]
fn a_release_that_is_not_supported_is_named() {
    let bytes = std::fs::read(fixture("python-3.11-stripped.wasm")).unwrap();
    for (tag, hexadecimal, version) in
        [("cpython-310", 0x030a_0df0_u32, "3.10.13"), ("cpython-315", 0x030f_00f0, "3.15.0")]
    {
        let mut changed = bytes.clone();
        replace(&mut changed, b"cpython-311", tag.as_bytes());
        replace(&mut changed, &0x030b_02f0_u32.to_le_bytes(), &hexadecimal.to_le_bytes());
        let folder = tempfile::tempdir().unwrap();
        let guest = folder.path().join("other.wasm");
        std::fs::write(&guest, changed).unwrap();
        let mut command = wlprof();
        command.args(["-o", folder.path().join("x.folded").to_str().unwrap()]);
        let said = output(command.arg(&guest).arg("--version")).stderr;
        let expected =
            format!("unsupported CPython {version} in other.wasm (supported: 3.11–3.14); frames will be native only");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn scripts_that_only_copy_memory_have_whole_stacks() {
    RELEASES.into_iter().for_each(check_copies);
}

#[test]
fn scripts_that_only_copy_memory_have_whole_stacks_in_every_other_release() {
    OTHER_RELEASES.into_iter().for_each(check_copies);
}

fn check_copies(release: &str) {
    let recording = profile_until(4000, |times| profile(release, "guest", &["copies.py", &(1200 * times).to_string()]));
    let incomplete: u64 = recording.truncated.iter().map(|(_, count)| *count).sum();
    let sampled = recording.ticks.sampled;
    println!("{release}: {incomplete} of {sampled} incomplete: {:?}", recording.truncated);
    // Until the code has been met where it can be kept, which in such a script takes some hundred samples. If it never
    // were, half would be incomplete.
    assert!(incomplete * 10 <= sampled, "{release}: {incomplete} of {sampled}: {:?}", recording.truncated);
}

#[test]
fn code_of_another_name_at_the_same_place_is_told_apart() {
    RELEASES.into_iter().for_each(check_renamed_code);
}

#[test]
fn code_of_another_name_at_the_same_place_is_told_apart_in_every_other_release() {
    OTHER_RELEASES.into_iter().for_each(check_renamed_code);
}

fn check_renamed_code(release: &str) {
    let recording = profile_until(1000, |_| profile(release, "guest", &["renamed.py"]));
    let mut pairs = 0;
    for sample in recording.samples() {
        let frames: Vec<_> = recording.frames_of(sample.stack).filter_map(|frame| python(&recording, frame)).collect();
        for window in frames.windows(3) {
            let (made, caller) = (window[0].0, window[2].0);
            let kind = ["alpha", "betaa"].into_iter().find(|kind| made.starts_with(kind));
            if let (Some(kind), "made") = (kind, window[1].0) {
                assert_eq!(caller, format!("call_{kind}"), "{release}: {frames:?}");
                pairs += 1;
            }
        }
    }
    println!("{release}: {pairs} pairs");
    assert!(pairs > 100, "{release}: {pairs}");
}

#[test]
fn a_script_interrupted_while_it_waits_shows_where() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("nap.py"),
        "import time\ndef nap():\n    time.sleep(3600)\nprint('ready', flush=True)\nnap()\n",
    )
    .unwrap();
    let output = folder.path().join("x.folded");
    let mut command = wlprof();
    command.args(["-q", "--clock", "wall", "--dir", &format!("{}::.", folder.path().display())]);
    command.arg(library("3.11")).arg("-o").arg(&output);
    let started = start(command.arg(fixture("python-3.11.wasm")).arg("nap.py"));
    started.wait_for_rest();
    started.signal("INT");
    assert_eq!(started.end().signal, Some(2));
    let folded = std::fs::read_to_string(&output).unwrap();
    let naps = folded.lines().filter(|line| line.contains(";nap;")).count();
    assert!(naps > 0, "{folded}");
}

#[test]
fn the_library_beside_the_interpreter_is_found_and_cannot_be_written_to() {
    let place = Place::new();
    place.file("python.wasm", fixture_bytes("python-3.11.wasm"));
    place.folder("python-lib", &fixture("python-3.11-lib"));
    place.file("write.py", "open('/usr/local/lib/new', 'w')\n");
    let ran = place.run(["-q", "-o", "x.folded", "--dir=.", "python.wasm", "write.py"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("python-lib is the guest's /usr/local/lib, read-only"), "{ran:?}");
    // Python itself is there to say so.
    assert!(ran.stderr.contains("line 1, in <module>"), "{ran:?}");
    assert!(!place.path("python-lib/new").exists());
}

#[test]
fn a_dump_shows_pythons_frames() {
    let dump_at = |seconds: &str| {
        let mut command = wlprof();
        command.current_dir(scripts()).args(["dump", "--dump-at", seconds, "--dir=.", &library("3.11")]);
        command.arg(fixture("python-3.11.wasm")).args(["shares.py", "1000000000"]);
        command
    };
    let said = first_of_dump(dump_at, |said| said.contains("\nwork(...)\n"));
    assert!(said.contains("\nwork(...)\n\t//shares.py:") && said.contains("\n<module>(...)\n\t//shares.py:"), "{said}");
}
