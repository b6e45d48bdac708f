//! Programs that others wrote and built, as they are published: they do as under `wasmtime run`, and every stack is whole.

use crate::guest::{Place, output, sampled_stacks, tool};
use std::path::{Path, PathBuf};
use std::process::Command;
use wlprof::recording::{Function, Recording};

/// A file that `cargo xtask real-guests` provided.
fn real(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/real").join(name);
    assert!(path.exists(), "target/real/{name} is missing: run `cargo xtask real-guests`");
    path
}

/// Runs both commands with these options and arguments. They come to the same; gives the recording.
fn profiled(arguments: &[&str]) -> Recording {
    let place = Place::new();
    let expected = output(Command::new(tool("wasmtime")).arg("run").args(arguments));
    let ran = place.run([&["-q", "-o", "p.wlprof", "--rate=1000"], arguments].concat());
    assert_eq!((ran.code, &ran.stdout, &ran.stderr), (Some(0), &expected.stdout, &expected.stderr));
    assert_eq!(expected.code, Some(0));
    assert!(ran.stdout.len() + ran.stderr.len() > 20, "it says nothing to compare");
    let recording = place.recording("p.wlprof");
    assert!(recording.ticks.sampled > 20, "{:?}", recording.ticks);
    assert_eq!(recording.truncated, []);
    recording
}

/// C++ without names.
#[test]
fn nextpnr_checks_its_database() {
    let share = format!("{}::/share", real("nextpnr-ice40/share").display());
    let guest = real("nextpnr-ice40/nextpnr-ice40.wasm");
    let guest = ["--dir", &share, guest.to_str().unwrap()];
    let recording = profiled(&[&guest[..], &["--lp384", "--package", "qn32", "--test"]].concat());
    let roots = sampled_stacks(&recording).map(|stack| stack.last().copied());
    let of_start = roots.filter(|root| *root == Some("_start")).count() as u64;
    assert!(of_start * 10 > recording.ticks.sampled * 9, "{of_start} of {}", recording.ticks.sampled);
}

/// C of several hands, with lines, in a module that another one calls.
#[test]
fn ruby_runs_a_script() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/ruby");
    let folder = format!("{}::/", sources.display());
    let preload = |name: &str, path: PathBuf| format!("{name}={}", path.display());
    let host = ["rb-js-abi-host", "canonical_abi"].map(|name| preload(name, sources.join(format!("{name}.wat"))));
    let ruby = preload("ruby", real("ruby/ruby.debug+stdlib.wasm"));
    let main = sources.join("main.wat");
    let options = ["--dir", &folder, "--preload", &host[0], "--preload", &host[1], "--preload", &ruby];
    let recording = profiled(&[&options[..], &[main.to_str().unwrap()]].concat());
    let count = |wanted: fn(&[&str]) -> bool| sampled_stacks(&recording).filter(|stack| wanted(stack)).count() as u64;
    let interpreting = count(|stack| stack.contains(&"vm_exec_core") && stack.last() == Some(&"main"));
    assert!(interpreting * 2 > recording.ticks.sampled, "{interpreting} of {}", recording.ticks.sampled);
    let has_lines = |function: &Function| function.name == "vm_exec_core" && function.file.is_some();
    assert!(recording.functions.iter().any(has_lines));
}
