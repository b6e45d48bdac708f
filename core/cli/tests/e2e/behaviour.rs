//! What the guest does is what it does without the profiler: exit code, output, ends of every kind. And every end
//! leaves a whole profile.

use crate::guest::{Place, Ran, fixture, run, was_seen};
use crate::tested::samplers;
use crate::world;
use std::io::Write;
use std::process::Stdio;

/// Runs a guest without sampling, and again with these options and the recording in `p.wlprof`.
fn with_and_without(place: &Place, options: &[&str], guest: &[&str]) -> (Ran, Ran) {
    let without = place.run([&["-q", "--sampler=off"], guest].concat());
    assert_eq!(without.signal, None, "{without:?}");
    assert!(!place.files().contains(&"p.wlprof".to_owned()), "a profile of nothing");
    let with = place.run([&["-q", "-o", "p.wlprof"], options, guest].concat());
    (without, with)
}

#[test]
fn every_end_is_as_without_the_profiler_and_leaves_a_profile() {
    let traps = fixture("c-traps.wasm");
    let traps = traps.to_str().unwrap();
    let ends: [(&[&str], i32); 9] = [
        (&[], 0),
        (&["exit", "0"], 0),
        (&["exit", "3"], 3),
        (&["exit", "125"], 125),
        // Outside what WASI can pass on.
        (&["exit", "200"], 1),
        (&["unreachable"], 134),
        (&["oob"], 134),
        (&["div0"], 134),
        (&["abort"], 134),
    ];
    for (end, code) in ends {
        for sampler in samplers() {
            let place = Place::new();
            let option = format!("--sampler={sampler}");
            let (without, with) = with_and_without(&place, &[&option], &[&[traps], end].concat());
            assert_eq!((without.code, with.code), (Some(code), Some(code)), "{end:?} {sampler}: {with:?}");
            assert_eq!(without.stdout, with.stdout, "{end:?} {sampler}");
            assert_eq!(without.stdout.contains("ended normally"), end.is_empty());
            if *sampler == "signal" {
                // Other code is compiled for the epoch sampler, so that offsets in traces differ.
                assert_eq!(without.stderr, with.stderr, "{end:?}");
            }
            let recording = place.recording("p.wlprof");
            // Emulators refuse events: there a ticker asks for the signal sampler's samples.
            assert!(recording.meta.sampler.starts_with(sampler), "{}", recording.meta.sampler);
            assert!(was_seen(&recording, "work"), "{end:?} {sampler}: the work before the end is not in the profile");
        }
    }
}

#[test]
fn a_stack_overflow_is_a_trap_like_any_other() {
    let traps = fixture("c-traps.wasm");
    for sampler in samplers() {
        let place = Place::new();
        // A tick while the stack is almost used up must find room for the handler.
        let option = format!("--sampler={sampler}");
        let options = [&option, "--rate=10000", "--max-overhead=100"];
        let (without, with) = with_and_without(&place, &options, &[traps.to_str().unwrap(), "overflow"]);
        assert_eq!((without.code, with.code), (Some(134), Some(134)), "{sampler}: {with:?}");
        assert_eq!(without.stdout, with.stdout, "{sampler}");
        if *sampler == "signal" {
            assert_eq!(without.stderr, with.stderr);
        }
        assert!(with.stderr.contains("call stack exhausted"), "{}", with.stderr);
        assert!(was_seen(&place.recording("p.wlprof"), "work"));
    }
}

#[test]
fn a_trap_says_why_first_and_names_the_guests_frames() {
    let place = Place::new();
    let traps = fixture("c-traps.wasm");
    let mut command = place.command(["-q", "-o", "p.wlprof", traps.to_str().unwrap(), "div0"]);
    let ran = run(command.env("RUST_BACKTRACE", "1").stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(ran.stderr.starts_with("wlprof: c-traps.wasm trapped: wasm trap: integer divide by zero\n"), "{ran:?}");
    assert!(ran.stderr.contains("c-traps.wasm!end\n"), "{ran:?}");
    assert!(!ran.stderr.contains("wasmtime-"), "shows wlprof's own stack: {ran:?}");
}

/// As Wasmtime shows them with `WASMTIME_BACKTRACE_DETAILS=1`.
#[test]
fn a_trap_has_files_and_lines() {
    let place = Place::new();
    let traps = fixture("c-traps.wasm");
    let line = |text: &str| {
        let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/c/traps.c")).unwrap();
        1 + source.lines().position(|line| line.contains(text)).unwrap()
    };
    let division = line("__asm__ volatile");
    let load = line("0xfffffff0u");
    for (how, line) in [("div0", division), ("oob", load)] {
        for (option, details) in
            [("--sampler=signal", "0"), ("--sampler=off", "0"), ("--memory", "0"), ("--sampler=off", "1")]
        {
            let mut command = place.command(["-q", option, traps.to_str().unwrap(), how]);
            let ran =
                run(command.env("WASMTIME_BACKTRACE_DETAILS", details).stdout(Stdio::piped()).stderr(Stdio::piped()));
            let lines: Vec<&str> = ran.stderr.lines().collect();
            let frame =
                lines.iter().position(|line| line.ends_with("c-traps.wasm!end")).unwrap_or_else(|| panic!("{ran:?}"));
            let place = lines[frame + 1].trim();
            assert!(
                place.starts_with("at ") && place.contains(&format!("/c/traps.c:{line}")),
                "{option}: {}",
                ran.stderr
            );
            // Its caller stands in the file, too.
            assert!(
                lines[frame + 2].contains("!main") || lines[frame + 2].contains("!__original_main"),
                "{}",
                ran.stderr
            );
            assert!(lines[frame + 3].contains("/c/traps.c:"), "{}", ran.stderr);
        }
    }
}

/// Guests that always print the same, with arguments that keep the run short.
const DETERMINISTIC: [(&str, &[&str]); 10] = [
    ("c-calls.wasm", &[]),
    ("c-deep.wasm", &["5000", "300"]),
    ("c-frames.wasm", &[]),
    ("c-hosty.wasm", &[]),
    ("c-interp.wasm", &[]),
    ("c-shares.wasm", &[]),
    ("c-straight.wasm", &[]),
    ("cpp-shapes.wasm", &[]),
    ("go-bench.wasm", &[]),
    ("rust-mix.wasm", &[]),
];

/// The same for those whose output is the result of a function.
const INVOKED: [(&str, &[&str]); 6] = [
    ("wat-call-ref.wat", &["20000"]),
    ("wat-gc.wat", &["1000"]),
    ("wat-no-names.wat", &["80000"]),
    ("wat-proposals.wat", &["6000"]),
    ("wat-start-function.wat", &[]),
    ("wat-tail-calls.wat", &["12000"]),
];

/// The most that a sampler can disturb: ten thousand times a second, at any cost.
const HARD: [&str; 2] = ["--rate=10000", "--max-overhead=100"];

fn hard_sampling_leaves_the_output_alone(guests: &[(&str, &[&str])], options: &[&str]) {
    for (name, arguments) in guests {
        let path = fixture(name);
        let guest = [options, &[path.to_str().unwrap()], arguments].concat();
        let place = Place::new();
        let (without, with) = with_and_without(&place, &HARD, &guest);
        assert!(!without.stdout.is_empty(), "{name} prints nothing to compare");
        for ran in [with, place.run([&["-q", "-o", "p.wlprof"], &HARD[..], &guest[..]].concat())] {
            assert_eq!((ran.code, &ran.stdout, &ran.stderr), (Some(0), &without.stdout, &without.stderr), "{name}");
            assert!(place.recording("p.wlprof").ticks.sampled > 0, "{name}");
        }
    }
}

#[test]
fn hard_sampling_leaves_the_output_of_c_alone() {
    hard_sampling_leaves_the_output_alone(&DETERMINISTIC[..7], &[]);
}

#[test]
fn hard_sampling_leaves_the_output_of_other_languages_alone() {
    hard_sampling_leaves_the_output_alone(&DETERMINISTIC[7..], &[]);
}

#[test]
fn hard_sampling_leaves_the_output_of_text_modules_alone() {
    hard_sampling_leaves_the_output_alone(&INVOKED, &["--invoke=run"]);
}

#[test]
fn the_epoch_sampler_leaves_the_output_alone() {
    for (name, arguments) in &DETERMINISTIC[6..] {
        let path = fixture(name);
        let place = Place::new();
        let guest = [&[path.to_str().unwrap()], *arguments].concat();
        let (without, with) = with_and_without(&place, &["--sampler=epoch"], &guest);
        assert_eq!((with.code, with.stdout), (Some(0), without.stdout), "{name}");
        assert!(place.recording("p.wlprof").ticks.sampled > 0, "{name}");
    }
}

#[test]
fn a_start_function_is_profiled() {
    let guest = fixture("wat-start-function.wat");
    for sampler in samplers() {
        let place = Place::new();
        let option = format!("--sampler={sampler}");
        let ran = place.run(["-q", "-o", "p.wlprof", &option, guest.to_str().unwrap()]);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""));
        let recording = place.recording("p.wlprof");
        assert!(was_seen(&recording, "work_at_start"), "{sampler}");
        assert!(was_seen(&recording, "work_in_run"), "{sampler}");
    }
}

#[test]
fn a_start_function_may_trap_or_exit() {
    let place = Place::new();
    let trap = place.file("trap.wat", r#"(module (func $boom unreachable) (start $boom) (func (export "_start")))"#);
    assert_eq!(place.run([trap]).code, Some(134));
    for (code, expected) in [(7, 7), (200, 1)] {
        let exit = format!(
            r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (memory (export "memory") 1)
            (func $leave (call $exit (i32.const {code}))) (start $leave) (func (export "_start") unreachable))"#
        );
        assert_eq!(place.run([place.file("exit.wat", exit)]).code, Some(expected));
    }
}

#[test]
fn standard_input_reaches_the_guest_whole() {
    let place = Place::new();
    place.file("cat.wat", world::CAT);
    let input: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    let mut child = place
        .command(["-q", "-o", "p.wlprof", "--rate=10000", "cat.wat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(sent.as_bytes()));
    let ran = crate::guest::finish(child, "cat.wat");
    writer.join().unwrap().unwrap();
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout == format!("ready\n{input}"), "input and output differ");
    assert_eq!(ran.stderr, "");
}

#[test]
fn arguments_are_as_in_wasmtime_run() {
    let place = Place::new();
    std::fs::create_dir(place.path("sub")).unwrap();
    place.file("sub/args.wat", world::print_arguments());
    let ran = place.run(["-q", "sub/args.wat", "--rate", "x", "-o", "y", "", "--", "ü"]);
    assert_eq!(ran.stdout, "args.wat\0--rate\0x\0-o\0y\0\0--\0ü\0");
    assert_eq!(place.files(), ["profile.json", "sub"], "what follows the guest is the guest's");
}

#[test]
fn the_environment_is_what_is_given_and_nothing_else() {
    let place = Place::new();
    place.file("environ.wat", world::print_environment());
    let mut command =
        place.command(["-q", "--env", "A=1=2", "--env=PASSED_ON", "--env", "NOT_SET", "--env", "E=", "environ.wat"]);
    command.env("PASSED_ON", "yes").env("KEPT_BACK", "no").env_remove("NOT_SET");
    let ran = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ran.stdout, "A=1=2\0PASSED_ON=yes\0E=\0");
}

#[test]
fn folders_are_mapped_as_in_wasmtime_run() {
    for (option, folder_name) in [("data::/in/guest", "/in/guest"), ("data", "data")] {
        let place = Place::new();
        place.file("folder.wat", world::FOLDER);
        std::fs::create_dir(place.path("data")).unwrap();
        place.file("data/in", "the content");
        let ran = place.run(["-q", "--dir", option, "folder.wat"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), folder_name), "{ran:?}");
        assert_eq!(std::fs::read_to_string(place.path("data/out")).unwrap(), "the content");
    }
    let place = Place::new();
    place.file("folder.wat", world::FOLDER);
    assert_eq!(place.run(["-q", "folder.wat"]).code, Some(50), "no folder unless one is given");
}

#[test]
fn results_of_an_invoked_function_are_the_output() {
    let place = Place::new();
    place.file(
        "f.wat",
        r#"(module (func (export "f") (param i32 i64 f64) (result f64 i64 i32)
            (local.get 2) (local.get 1) (local.get 0)))"#,
    );
    let ran = place.run(["-q", "--invoke", "f", "f.wat", "-7", "0xff", "1.5"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "1.5\n255\n-7\n", ""));
}

#[test]
fn the_exit_code_is_the_guests_even_if_nobody_reads_standard_error() {
    let place = Place::new();
    let traps = fixture("c-traps.wasm");
    for (end, code) in [(["exit", "5"], 5), (["unreachable", ""], 134)] {
        let mut command = place.command([&["-o", "p.wlprof", traps.to_str().unwrap()], &end[..]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(crate::guest::finish(child, "wlprof 2>&-").code, Some(code));
    }
}
