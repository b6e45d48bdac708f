//! Processes attached to that others wrote: Wasmtime's Python package as it is published, of releases from the first that is supported to the
//! newest, programs that use it, and the `wasmtime` command.

use crate::attach::{self, Host};
use crate::guest::{Place, fixture, output, tool};
use crate::library;
use crate::quickjs;
use crate::sampled::{Shares, innermost_functions};
use crate::stacks::check_process;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use wlprof::recording::Recording;

/// The releases that `cargo xtask test-tools` provides.
fn releases() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(tool("wasmtime-packages")).unwrap();
    let releases: Vec<PathBuf> = folders.map(|folder| folder.unwrap().path()).collect();
    assert!(releases.len() >= 7, "{releases:?}");
    releases
}

/// A host of `testdata` on the package in that folder.
fn python(host: &str, package: &Path) -> Command {
    let mut command = Command::new("python3");
    let hosts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/python"));
    command.arg(hosts.join(host)).env("PYTHONPATH", package);
    command
}

/// Runs the guest on each release, and has `check` look at a recording of it.
fn on_each_release(guest: &str, arguments: &[&str], check: impl Fn(&Place, &Host)) {
    for release in releases() {
        println!("{}", release.display());
        let place = Place::new();
        place.file("script.py", attach::SCRIPT);
        let folder = format!("--dir={}::/", place.path("").display());
        let mut command = python("host.py", &release);
        command.args([&folder, &crate::python::library("3.11")]).arg(fixture(guest)).args(arguments);
        check(&place, &Host::start(&mut command));
    }
}

#[test]
fn shares_of_c_are_right_and_stacks_whole() {
    on_each_release("c-shares.wasm", &["1000000"], |place, host| {
        attach::check_shares(&attach::recording(place, host, &[]));
    });
}

#[test]
fn frames_of_hosts_are_around_those_of_guests() {
    on_each_release("c-shares.wasm", &["1000000"], |place, host| {
        let recording = attach::recording(place, host, &["--host-frames"]);
        // Of 24.0.0, which was compiled to abort at panics, a function that calls guests has no unwind table.
        let is_cut = recording.functions.iter().any(|function| function.name == "wasmtime_setjmp_24_0_0");
        let (entry, root) = match is_cut {
            true => ("wasmtime::runtime::func::invoke_wasm_and_catch_traps", "[truncated]"),
            false => ("wasmtime_func_call", "_start"),
        };
        attach::check_host_frames(&recording, entry, is_cut);
        let roots = recording.samples().map(|sample| recording.lines_of(sample.stack).last().unwrap().function);
        let roots: BTreeSet<&str> = roots.map(|function| &*recording.functions[function as usize].name).collect();
        assert!(roots.contains(root), "{roots:?}");
    });
}

#[test]
fn every_caller_stands_at_a_call_of_its_callee() {
    on_each_release("c-calls.wasm", &["1000000"], |place, host| check_process(&fixture("c-calls.wasm"), place, host));
}

#[test]
fn host_calls_are_under_the_wasm_that_called() {
    on_each_release("c-hosty.wasm", &["1000000"], |place, host| {
        attach::check_host_calls(&attach::recording(place, host, &[]));
    });
}

#[test]
fn stores_of_the_wasmtime_command_that_wait_are_seen() {
    let place = Place::new();
    place.file("async.wat", attach::endless_async_component());
    let mut command = Command::new(tool("wasmtime"));
    command.args(["run", "-Wcomponent-model-async", "-Sp3", "async.wat"]).current_dir(place.path(""));
    attach::check_suspended_store(&place, &Host::start(&mut command));
}

#[test]
fn go_stacks_are_read() {
    on_each_release("go-work-1.27.wasm", &["channels", "1000000"], |place, host| {
        attach::check_go(&attach::recording(place, host, &[]));
    });
}

/// Has each release's process profile itself, with samples of `guest` enough, and `check` look at what it has written.
fn inside_each_release(guest: &str, arguments: &[&str], check: impl Fn(&Recording)) {
    let library = library::with_cargo(&["wlprof-inside", "--example", "from_c"], "examples/libfrom_c.so");
    for release in releases() {
        println!("{}", release.display());
        let place = Place::new();
        let mut command = python("profiling_host.py", &release);
        command.arg(&library).arg("500").arg(fixture(guest)).args(arguments);
        let ran = output(command.env("GUEST", fixture(guest)).env("PROFILE", place.path("x.wlprof")));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        check(&place.recording("x.wlprof"));
    }
}

#[test]
fn shares_of_c_are_right_from_inside() {
    inside_each_release("c-shares.wasm", &["1000000"], attach::check_shares);
}

#[test]
fn go_stacks_are_read_from_inside() {
    inside_each_release("go-work-1.27.wasm", &["channels", "1000000"], attach::check_go);
}

#[test]
fn python_stacks_are_read() {
    on_each_release("python-3.11.wasm", &["script.py"], |place, host| {
        // Its start takes a while, and so did compiling.
        let compiled = host.cpu_ticks();
        crate::running::wait_until("the script runs", || host.cpu_ticks() > compiled + 300);
        attach::check_python(&attach::recording(place, host, &[]));
    });
}

/// ITK's filters, in C++ without names or lines.
#[test]
fn every_caller_in_itk_stands_at_a_call_of_its_callee() {
    let place = Place::new();
    let packages = tool("itk-packages");
    let host = Host::start(&mut python("itk_host.py", &packages));
    let filter = packages.join("itkwasm_downsample_wasi/wasm_modules/downsample-bin-shrink.wasi.wasm");
    check_process(&filter, &place, &host);
}

/// A host that runs a script in the sandbox, once the script itself runs.
fn sandbox(place: &Place, language: &str, script: &str) -> Host {
    let mut command = python("sandbox_host.py", &tool("sandbox-packages"));
    let host = Host::start(command.args([language, script]).current_dir(place.path("")));
    let begun = host.cpu_ticks();
    crate::running::wait_until("the script runs", || host.cpu_ticks() > begun + 300);
    host
}

#[test]
fn python_in_a_sandbox_is_read() {
    let place = Place::new();
    place.file("script.py", attach::SCRIPT);
    let host = sandbox(&place, "python", "script.py");
    let interpreter = tool("sandbox-packages").join("bin/python.wasm");
    attach::check_python(&attach::recording(&place, &host, &["--guest", interpreter.to_str().unwrap()]));
}

/// QuickJS of a release whose stacks no plugin reads: those of the interpreter are right.
#[test]
fn every_caller_in_a_sandboxs_quickjs_stands_at_a_call_of_its_callee() {
    let place = Place::new();
    place.file("script.js", quickjs::SCRIPT);
    let host = sandbox(&place, "javascript", "script.js");
    check_process(&tool("sandbox-packages").join("bin/quickjs.wasm"), &place, &host);
}

#[test]
fn forged_images_and_stacks_have_an_end_and_hide_no_guest() {
    let place = Place::new();
    let mut command = python("forging_host.py", &tool("wasmtime-packages").join("48.0.0"));
    let host = Host::start(command.arg(fixture("c-shares.wasm")).arg("1000000"));
    let recording = attach::recording(&place, &host, &[]);
    let notes = &recording.meta.notes;
    assert!(notes.iter().any(|note| note.contains(" images of compiled code were not sampled")), "{notes:?}");
    let deepest = recording.samples().map(|sample| recording.frames_of(sample.stack).count()).max();
    assert!(deepest > Some(100) && deepest < Some(10_000), "{deepest:?}");
    let shares = Shares::of(innermost_functions(&recording).filter(|(name, _)| ["heavy", "light"].contains(name)));
    shares.near("heavy", 75.0, attach::POINTS).unwrap();
}
