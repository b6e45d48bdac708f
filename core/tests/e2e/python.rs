//! Python guests at arbitrary instructions: whole stacks of calls that Python made, known shares of lines, and C code under
//! the lines that called it.

use crate::sampled::{fixture, measure_again_if_off, near, profile_command};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wlprof::recording::{Category, Frame, LanguageTruncation, Origin, Recording, Truncation};

const RELEASES: [&str; 2] = ["3.11", "3.13"];

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/python")
}

/// `wlprof` with the scripts as the guest's current folder.
fn command(options: &[&str], release: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    command.current_dir(scripts()).args(options).args(["--dir", "."]);
    command.arg(fixture(&format!("python-{release}.wasm"))).args(arguments);
    command
}

/// Profiles a script at 10 kHz.
fn profile(release: &str, frames: &str, arguments: &[&str]) -> Recording {
    let options = ["--lang", "python", "--frames", frames, "--rate", "10000", "--max-overhead", "100"];
    profile_command(command(&options, release, arguments), release)
}

/// Every call between Python functions that a script made: caller, line, callee, by Python's own account.
fn calls(release: &str, arguments: &[&str]) -> BTreeSet<(String, u32, String)> {
    let arguments: Vec<&str> = ["calls.py"].into_iter().chain(arguments.iter().copied()).collect();
    let output = command(&["--sampler=off", "--lang=python"], release, &arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let calls = text.lines().filter_map(|line| {
        let parts: Vec<&str> = line.strip_prefix("@\t")?.split('\t').collect();
        Some((parts[0].to_owned(), parts[1].parse().unwrap(), parts[2].to_owned()))
    });
    calls.collect()
}

/// A Python frame: its function, the function's file and the line.
fn python<'a>(recording: &'a Recording, frame: &Frame) -> Option<(&'a str, &'a str, u32)> {
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
    let script = std::fs::read_to_string(scripts().join("bench.py")).unwrap();
    let lines: Vec<&str> = script.lines().collect();
    for release in RELEASES {
        let calls = calls(release, &["bench.py", "30"]);
        assert!(calls.len() > 100, "{}", calls.len());
        let recording = profile(release, "merged", &["bench.py", "1500"]);
        let incomplete: u64 = recording.truncated.iter().map(|(_, count)| *count).sum();
        let mut pairs = 0;
        for sample in recording.samples() {
            let frames: Vec<_> =
                recording.frames_of(sample.stack).filter_map(|frame| python(&recording, frame)).collect();
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
        assert!(pairs > 2000, "{release}: {pairs} pairs");
        assert!(incomplete * 1000 <= sampled * 5, "{release}: {incomplete} of {sampled}: {:?}", recording.truncated);
        let is_counted = |reason: &Truncation| {
            matches!(
                reason,
                Truncation::Language(
                    LanguageTruncation::NoStack | LanguageTruncation::InHostCode | LanguageTruncation::Inconsistent
                )
            )
        };
        assert!(recording.truncated.iter().all(|(reason, _)| is_counted(reason)), "{:?}", recording.truncated);
    }
}

#[test]
fn lines_have_their_shares() {
    let script = std::fs::read_to_string(scripts().join("shares.py")).unwrap();
    let line_of = |text: &str| script.lines().position(|line| line.contains(text)).unwrap() as u32 + 1;
    for release in RELEASES {
        measure_again_if_off(|| {
            let recording = profile(release, "guest", &["shares.py", "9000"]);
            let innermost = recording
                .samples()
                .filter_map(|sample| recording.frames_of(sample.stack).find_map(|frame| python(&recording, frame)));
            let in_work: Vec<u32> = innermost.filter(|(name, ..)| *name == "work").map(|(_, _, line)| line).collect();
            let share = |text: &str| {
                100.0 * in_work.iter().filter(|line| **line == line_of(text)).count() as f64 / in_work.len() as f64
            };
            let truths = [("* 15", 75.0), ("* 4", 20.0), ("* 1)", 5.0)];
            println!("{release}: {} samples in work, {:.1?}", in_work.len(), truths.map(|(text, _)| share(text)));
            truths.into_iter().try_for_each(|(text, truth)| near(text, share(text), truth, 2.0))
        });
    }
}

#[test]
fn c_code_stands_under_the_line_that_called_it() {
    let script = std::fs::read_to_string(scripts().join("bench.py")).unwrap();
    let lines: Vec<&str> = script.lines().collect();
    // C functions, and what is on the lines of the script that call them.
    let cases: [(&str, &[&str]); 4] = [
        ("builtin_sorted", &["sorted("]),
        ("binascii_crc32", &["crc32("]),
        ("long_pow", &["pow(", "**"]),
        ("functools_reduce", &["reduce("]),
    ];
    for release in RELEASES {
        let recording = profile(release, "merged", &["bench.py", "2500"]);
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
                let Some(at) =
                    frames.iter().rposition(|frame| wasm(&recording, frame).is_some_and(|(name, _)| name == c))
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
}

#[test]
fn frames_tells_whose_are_shown() {
    let of = |frames: &str| {
        // Not the recording itself, which keeps all: what is written from it.
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("x.folded");
        let sampling = ["--lang=python", "--rate=5000", "--max-overhead=100"];
        let options = [&["--frames", frames, "-o", output.to_str().unwrap()][..], &sampling].concat();
        assert!(command(&options, "3.11", &["bench.py", "400"]).output().unwrap().status.success());
        std::fs::read_to_string(&output).unwrap()
    };
    let (guest, merged, native) = (of("guest"), of("merged"), of("native"));
    let lines = |text: &str, with: &str| text.lines().filter(|line| line.contains(with)).count();
    assert!(lines(&guest, "play;") > 10 && lines(&merged, "play;") > 10 && lines(&native, "play;") == 0);
    assert!(lines(&native, "_PyEval_EvalFrameDefault") > 10);
    // The interpreter starts and ends without any frame of Python's.
    let interpreter =
        |text: &str| text.lines().filter(|line| line.contains("play;") && line.contains("pymain_run")).count();
    assert!(interpreter(&merged) > 10 && interpreter(&guest) == 0, "{guest}");
}

#[test]
fn a_stripped_interpreter_shows_python_frames() {
    for release in ["3.11-stripped", "3.13-stripped"] {
        // Found by itself beside the interpreter only under the interpreter's own name.
        let library = fixture(&format!("python-{}-lib", release.trim_end_matches("-stripped")));
        let library = format!("{}::/usr/local/lib", library.display());
        let command = command(&["--rate", "2000", "--dir", &library], release, &["shares.py", "3000"]);
        let recording = profile_command(command, release);
        let in_work = recording.samples().filter(|sample| {
            let mut frames = recording.frames_of(sample.stack).filter_map(|frame| python(&recording, frame));
            frames.any(|(name, file, _)| name == "work" && file.ends_with("shares.py"))
        });
        let share = 100 * in_work.count() as u64 / recording.ticks.sampled;
        assert!(share > 60, "{release}: {share} % in work");
    }
}

#[test]
fn samples_say_what_python_was_doing() {
    let recording = profile("3.13", "guest", &["bench.py", "300"]);
    let states: BTreeSet<&str> = recording
        .samples()
        .filter_map(|sample| Some(&recording.label_sets[sample.labels? as usize]))
        .flat_map(|labels| labels.iter().filter(|(name, _)| name == "state").map(|(_, value)| value.as_str()))
        .collect();
    for state in ["python", "c code", "gc", "importing"] {
        assert!(states.contains(state), "{state} is not among {states:?}");
    }
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
        let run = Command::new(env!("CARGO_BIN_EXE_wlprof"))
            .args(["-o", folder.path().join("x.folded").to_str().unwrap()])
            .arg(&guest)
            .arg("--version")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        let expected =
            format!("unsupported CPython {version} in other.wasm (supported: 3.11–3.14); frames will be native only");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn scripts_that_only_copy_memory_have_whole_stacks() {
    for release in RELEASES {
        let recording = profile(release, "guest", &["copies.py", "1200"]);
        let incomplete: u64 = recording.truncated.iter().map(|(_, count)| *count).sum();
        let sampled = recording.ticks.sampled;
        println!("{release}: {incomplete} of {sampled} incomplete: {:?}", recording.truncated);
        // Until the code has been met where it can be kept, which in such a script takes some hundred samples. If it never
        // were, half would be incomplete.
        assert!(incomplete * 10 <= sampled, "{release}: {incomplete} of {sampled}: {:?}", recording.truncated);
    }
}

#[test]
fn code_of_another_name_at_the_same_place_is_told_apart() {
    for release in RELEASES {
        let recording = profile(release, "guest", &["renamed.py"]);
        let mut pairs = 0;
        for sample in recording.samples() {
            let frames: Vec<_> =
                recording.frames_of(sample.stack).filter_map(|frame| python(&recording, frame)).collect();
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
        assert!(pairs > 500, "{release}: {pairs}");
    }
}

#[test]
fn a_script_interrupted_while_it_waits_shows_where() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("nap.py"),
        "import time\ndef nap():\n    time.sleep(3600)\nprint(flush=True)\nnap()\n",
    )
    .unwrap();
    let output = folder.path().join("x.folded");
    let mut child = Command::new(env!("CARGO_BIN_EXE_wlprof"))
        .args(["--clock", "wall", "--dir", &format!("{}::.", folder.path().display()), "-o"])
        .arg(&output)
        .arg(fixture("python-3.11.wasm"))
        .arg("nap.py")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It says when it is about to sleep; then it takes some samples.
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap();
    let folded = std::fs::read_to_string(&output).unwrap();
    let naps = folded.lines().filter(|line| line.contains("<module>;nap;")).count();
    assert!(naps > 0, "{folded}");
}

#[test]
fn the_library_beside_the_interpreter_cannot_be_written_to() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("write.py"), "open('/usr/local/lib/new', 'w')\n").unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_wlprof"))
        .args(["--sampler=off", "--lang=python", "--dir", &format!("{}::.", folder.path().display())])
        .arg(fixture("python-3.11.wasm"))
        .arg("write.py")
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("read-only"), "{run:?}");
    assert!(!fixture("python-3.11-lib").join("new").exists());
}

#[test]
fn a_dump_shows_pythons_frames() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    command.current_dir(scripts()).args(["dump", "--dump-at", "0.3", "--dir", "."]);
    let run = command.arg(fixture("python-3.11.wasm")).args(["shares.py", "6000"]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("\nwork(...)\n\t//shares.py:") && said.contains("\n<module>(...)\n\t//shares.py:"), "{said}");
}
