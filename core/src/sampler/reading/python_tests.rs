//! Proves Python's stacks against what Python itself says of them: `testdata/python/stacks.py` prints its stack, as its own
//! frames have it, in one write, and what is read when that is about to happen has to be the same, name, file, line and
//! column.

use super::self_report_tests::{Pair, WithThreads, fixture, run};
use std::path::{Path, PathBuf};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};
use wlprof_plugin::{FrameKey, Program, SourceFrame};

/// Whether a line that Python printed says what `frame` does. The innermost frame's column is left out.
fn is(line: &str, frame: &SourceFrame) -> bool {
    let parts: Vec<&str> = line.split('\t').collect();
    let [function, file, first_line, number, column] = parts[..] else { panic!("not a frame: {line:?}") };
    frame.function == function
        && frame.file.as_deref() == Some(file)
        && frame.function_line.unwrap_or(0).to_string() == first_line
        && frame.line.map(|line| line.to_string()).as_deref() == Some(number)
        && (column.is_empty()
            || column == "None"
            || frame.column.map(|column| (column - 1).to_string()).as_deref() == Some(column))
}

/// Compares a stack. Gives the number of frames.
fn compare(pair: &Pair, program: &dyn Program, what: &str) -> usize {
    let mut said = pair.said.lines();
    let name = said.next().unwrap();
    let said: Vec<&str> = said.collect();
    assert_eq!(pair.seen.truncation, None, "{what}: {name}");
    let mut frames = Vec::new();
    for key in pair.seen.frames.iter().filter(|key| matches!(key, FrameKey::Own(_))) {
        program.symbolize(*key, &mut frames);
    }
    assert_eq!(frames.len(), said.len(), "{what}: {name}: {frames:?} {said:?}");
    for (line, frame) in said.iter().zip(&frames) {
        assert!(is(line, frame), "{what}: {name}: {line:?} is {frame:?}");
    }
    said.len()
}

/// Compares the stacks of CPython that is a command, and is given its library.
fn compare_command(release: &str) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/python");
    let library = fixture(&format!("python-{}-lib", release.trim_end_matches("-stripped")));
    compare_all(&format!("python-{release}.wasm"), &[(scripts, "."), (library, "/usr/local/lib")]);
}

/// Compares the stacks of CPython that componentize-py put into a component.
fn compare_component(made: &str) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/python");
    compare_all(&format!("component-python-{made}.wasm"), &[(scripts, ".")]);
}

#[test]
fn stacks_are_what_python_says_they_are() {
    ["3.11", "3.11-stripped"].into_iter().for_each(compare_command);
}

#[test]
fn stacks_in_components_are_what_python_says_they_are() {
    // The last one runs the script in a task.
    ["3.14", "async"].into_iter().for_each(compare_component);
}

#[test]
fn of_every_other_release_stacks_are_what_python_says_they_are() {
    ["3.13", "3.13-stripped"].into_iter().for_each(compare_command);
    ["3.12", "3.12-by-0.14", "3.14-by-0.25"].into_iter().for_each(compare_component);
}

/// Compares all stacks of `stacks.py` in a guest that is given these folders.
fn compare_all(name: &str, folders: &[(PathBuf, &str)]) {
    let mut wasi = WasiCtxBuilder::new();
    wasi.args(&["python", "stacks.py"]);
    for (folder, shown_as) in folders {
        wasi.preopened_dir(folder, shown_as, FsPerms::ReadOnly).unwrap();
    }
    let (pairs, program) = run(&fixture(name), &mut wasi, &wlprof_cpython::Python, WithThreads::No);
    let frames: usize = pairs.iter().map(|pair| compare(pair, &*program, name)).sum();
    assert!(pairs.len() > 90 && frames > 600, "{name}: {} stacks, {frames} frames", pairs.len());
    println!("{name}: {} stacks, {frames} frames", pairs.len());
}
