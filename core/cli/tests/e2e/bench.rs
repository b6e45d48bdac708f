//! `wlprof bench`: what it runs, how often, and what it writes of it.

use crate::guest::{Place, fixture, run, tool};
use crate::sampled::with_ever_more_work;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Ends with the number of bytes that it reads, to which an instance that has been run before would add.
const READS: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\10\00\00\00\40\00\00\00")
    (func (export "_start")
        (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (i32.store (i32.const 12) (i32.add (i32.load (i32.const 12)) (i32.load (i32.const 8))))
        (call $exit (i32.load (i32.const 12))))
    (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
    (func (export "pair") (result i32 f64) (i32.const 7) (f64.const 0.5))
    (func (export "trap") unreachable))"#;

/// Works for 20 ms by its own clock.
const WORKS: &str = r#"(module
    (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
    (memory (export "memory") 1)
    (func $now (result i64)
        (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 0)))
        (i64.load (i32.const 0)))
    (func (export "_start") (local $end i64)
        (local.set $end (i64.add (call $now) (i64.const 20000000)))
        (loop (br_if 0 (i64.lt_u (call $now) (local.get $end))))))"#;

/// A run: function, return value, execution and reset in microseconds.
type Run = (String, String, f64, f64);

/// The runs in the file that was written, by Faasm's columns.
fn runs(place: &Place, name: &str) -> Vec<Run> {
    let text = std::fs::read_to_string(place.path(name)).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("User,Function,Return value,Execution (us),Reset (us)"));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let &[_, function, returned, execution, reset] = &fields[..] else { panic!("{line}") };
            (function.to_owned(), returned.to_owned(), execution.parse().unwrap(), reset.parse().unwrap())
        })
        .collect()
}

#[test]
fn each_run_has_an_instance_and_the_input_of_its_own() {
    let place = Place::new();
    place.file("reads.wat", READS);
    let spec = "reads.wat,,3,five!\nreads.wat,add 40 2,2\nreads.wat,trap,2\nreads.wat,pair,1\nreads.wat,x y,1,\n";
    place.file("spec.csv", spec);
    let ran = place.run(["bench", "spec.csv", "out.csv"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "wrote out.csv\n"), "{ran:?}");
    let came: Vec<_> =
        runs(&place, "out.csv").into_iter().map(|(function, returned, ..)| (function, returned)).collect();
    let expected = [
        ("", "5"),
        ("", "5"),
        ("", "5"),
        ("add 40 2", "42"),
        ("add 40 2", "42"),
        ("trap", "134"),
        ("trap", "134"),
        ("pair", "7 0.5"),
        ("x y", "0"),
    ];
    assert_eq!(came, expected.map(|(function, returned)| (function.to_owned(), returned.to_owned())));
    let rows: Vec<Vec<&str>> = ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["runs", "failed", "min", "median", "p95", "max", "spread", "reset", "guest"]);
    let counts: Vec<_> = rows[1..6].iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(counts, [("3", "3"), ("2", "0"), ("2", "2"), ("1", "0"), ("1", "0")], "{}", ran.stdout);
    assert_eq!(rows[2][8..], ["reads.wat", "add", "40", "2"]);
    assert_eq!(place.files(), ["out.csv", "reads.wat", "spec.csv"]);
}

#[test]
fn the_time_of_a_run_is_what_it_took() {
    let place = Place::new();
    place.file("works.wat", WORKS);
    place.file("spec.csv", "works.wat,,10\n");
    let began = Instant::now();
    assert_eq!(place.run(["bench", "spec.csv", "out.csv"]).code, Some(0));
    let all_us = began.elapsed().as_secs_f64() * 1e6;
    let runs = runs(&place, "out.csv");
    assert_eq!(runs.len(), 10);
    assert!(runs.iter().all(|(_, _, execution, _)| *execution >= 20_000.0), "{runs:?}");
    let sum: f64 = runs.iter().map(|(_, _, execution, reset)| execution + reset).sum();
    assert!(sum <= all_us, "{sum} of {all_us}: {runs:?}");
}

/// C, Rust, Go and Python, that end well and that do not.
#[test]
fn guests_return_what_they_return_to_wasmtime_run() {
    let place = Place::new();
    place.file("exit.py", "import sys\nsys.exit(int(sys.stdin.read()))\n");
    let library = fixture("python-3.11-lib");
    let folders = [format!("{}::/usr/local/lib", library.to_str().unwrap()), ".".to_owned()];
    let cases = [
        ("c-traps.wasm", "exit 7", ""),
        ("c-traps.wasm", "unreachable", ""),
        ("c-traps.wasm", "abort", ""),
        ("rust-mix.wasm", "", ""),
        ("go-stacks-1.27.wasm", "nonsense", ""),
        ("python-3.11.wasm", "exit.py", "3"),
        ("python-3.11.wasm", "exit.py", "x"),
    ];
    let mut spec = String::new();
    let mut expected = Vec::new();
    for (guest, arguments, input) in cases {
        let guest = fixture(guest);
        spec.push_str(&format!("{},{arguments},1,{input}\n", guest.to_str().unwrap()));
        let mut reference = Command::new(tool("wasmtime"));
        reference.arg("run").args(folders.iter().map(|folder| format!("--dir={folder}"))).arg(guest);
        reference.args(arguments.split_whitespace()).current_dir(place.path(""));
        let input = std::fs::File::open(place.file("input", input)).unwrap();
        let ran = run(reference.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()));
        expected.push(ran.code.unwrap().to_string());
    }
    assert_eq!(expected[0], "7");
    place.file("spec.csv", spec);
    let options = folders.map(|folder| format!("--dir={folder}"));
    let ran = place.run(["bench", &options[0], &options[1], "spec.csv", "out.csv"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let returned: Vec<_> = runs(&place, "out.csv").into_iter().map(|(_, returned, ..)| returned).collect();
    assert_eq!(returned, expected);
}

#[test]
fn what_cannot_be_run_is_told_before_anything_runs() {
    let place = Place::new();
    place.file("reads.wat", READS);
    place.file("out.csv", "what was there before");
    let refused = |spec: &str, code: i32, parts: &[&str]| {
        place.file("spec.csv", spec);
        let ran = place.run(["bench", "spec.csv", "out.csv"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
        for part in parts {
            assert!(ran.stderr.contains(part), "no {part:?} in {}", ran.stderr);
        }
        assert_eq!(std::fs::read_to_string(place.path("out.csv")).unwrap(), "what was there before");
    };
    refused("reads.wat,,1\nreads.wat,,\nx\n", 125, &["spec.csv:2: \"\" runs", "\nwlprof: spec.csv:3: 1 fields"]);
    refused("reads.wat,,1\n\nnone.wasm,,1\n", 127, &["spec.csv:3: none.wasm: "]);
    refused("spec.csv,,1\n", 126, &["spec.csv:1: spec.csv: not WebAssembly"]);
    place.file("no-main.wat", r#"(module (func (export "fib")))"#);
    refused("no-main.wat,fibb 3,1\n", 125, &["spec.csv:1: no-main.wat has no `_start`", "no function fibb either"]);
    refused("reads.wat,add 1,1\n", 126, &["spec.csv:1: reads.wat: ", "2 arguments"]);
    let ran = place.run(["bench", "none.csv", "out.csv"]);
    assert_eq!(ran.code, Some(125));
    assert!(ran.stderr.starts_with("wlprof: none.csv: "), "{ran:?}");
}

#[test]
fn a_link_at_the_results_name_is_replaced_and_a_full_disk_is_not_the_guests_fault() {
    let place = Place::new();
    place.file("reads.wat", READS);
    place.file("spec.csv", "reads.wat,,1\n");
    let other = place.file("other", "what is there");
    std::os::unix::fs::symlink(&other, place.path("out.csv")).unwrap();
    let ran = place.run(["bench", "spec.csv", "out.csv"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(std::fs::read_to_string(other).unwrap(), "what is there");
    assert_eq!(runs(&place, "out.csv").len(), 1);
    let full = place.run(["bench", "spec.csv", "/dev/full"]);
    assert!(full.code == Some(125) && full.stderr.contains("/dev/full: "), "{full:?}");
}

#[test]
fn a_profile_of_a_row_is_of_all_its_runs() {
    let place = Place::new();
    let guest = fixture("c-traps.wasm");
    with_ever_more_work("five runs", |times| {
        let spec = format!("{0},exit 7,{1}\n{0},exit,1\n", guest.to_str().unwrap(), 5 * times);
        place.file("spec.csv", spec);
        let ran = place.run(["bench", "--profile", "spec.csv", "out.csv"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(runs(&place, "out.csv").iter().take(5).all(|(_, returned, ..)| returned == "7"));
        let names = ["out.csv", "out.row1-c-traps.json", "out.row2-c-traps.json", "spec.csv"];
        assert_eq!(place.files(), names);
        let profile: Value =
            serde_json::from_slice(&std::fs::read(place.path("out.row1-c-traps.json")).unwrap()).unwrap();
        assert!(profile.to_string().contains("\"work\""), "no name in the profile");
        let threads = profile["threads"].as_array().unwrap();
        let sampled = threads.iter().filter(|thread| thread["samples"]["length"].as_u64() > Some(0)).count();
        sampled >= 5
    });
}
