//! A run under wlprof is what it is under `wasmtime run`: exit code, standard output, what the guest writes to standard error
//! and into its folder, and what it trapped with. Both commands are run, over a matrix of guests and options.
//!
//! What differs, and is meant to:
//!
//! | what | `wasmtime run` | wlprof |
//! |---|---|---|
//! | a guest that cannot be run: no module, not valid, imports missing, `--invoke` of what is not there or with wrong arguments | starts and fails, 1 | says why before it compiles anything, 126 |
//! | no such file | 1 | 127 |
//! | wrong options | 1, or 2 if they do not parse | 125 |
//! | `--invoke` with arguments or results | warns that this may change | says nothing |
//! | its own words after a trap or a failed host call | `Error: failed to run main module`, then causes, numbered | `wlprof: NAME trapped: ` or `failed: `, the cause, the place |
//! | a component that imports what there is not, or is no command | starts and fails, 1 | says why before it runs, 126 |
//! | options of `-O`, `-C`, `-D`, `-W` and `-S` that make no sense in a profiler | takes them | 125, with the reason |
//! | `.cwasm` files | runs them with `--allow-precompiled` | 126, and what to do instead |
//! | a module without a main function | 0, nothing said | 0, and a note unless `-q` |

mod functions;
mod options;
mod refusals;
mod world;

use crate::guest::{Place, Ran, fixture, run, tool};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// What both commands are to run. Files in their folder: the guest, and `data/in`.
#[derive(Default)]
struct Case<'a> {
    /// The guest's text.
    guest: &'a str,
    options: &'a [&'a str],
    arguments: &'a [&'a str],
}

/// How the two end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    /// Both with this code.
    Both(i32),
    /// `wasmtime` with the first, wlprof with the second: a row of the table above.
    Apart(i32, i32),
}

/// What a run came to, its exit code aside.
#[derive(Debug, PartialEq)]
struct Came {
    stdout: String,
    /// What the guest wrote to standard error.
    stderr: String,
    /// What Wasmtime called the trap.
    trap: Option<String>,
    /// The files in the folder that the guest may have been given.
    files: BTreeMap<String, String>,
}

/// Runs `guest`, a file in a new folder or a path, under `command`, and gives the exit code and the rest.
fn came(mut command: Command, prepare: &dyn Fn(&Place), guest: &str, case: &Case<'_>) -> (Option<i32>, Came) {
    let place = Place::new();
    std::fs::create_dir(place.path("data")).unwrap();
    place.file("data/in", "the content");
    prepare(&place);
    command.args(case.options).arg(guest).args(case.arguments).current_dir(place.path(""));
    command.env("PASSED_ON", "yes").env("KEPT_BACK", "no").env_remove("NOT_SET").env_remove("RUST_BACKTRACE");
    let input = std::fs::File::open(place.path("data/in")).unwrap();
    let Ran { code, signal, stdout, stderr } = run(command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(signal, None, "{stderr}");
    let trap = stderr.lines().find_map(|line| line.split_once("wasm trap: ")).map(|(_, trap)| trap.to_owned());
    let is_message = |line: &&str| ["Error: ", "error: ", "wlprof: "].iter().any(|start| line.starts_with(start));
    let guests = stderr.lines().take_while(|line| !is_message(line));
    let guests: Vec<&str> = guests.filter(|line| !line.starts_with("warning: using `--invoke`")).collect();
    let files = std::fs::read_dir(place.path("data")).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
    });
    (code, Came { stdout, stderr: guests.join("\n"), trap, files: files.collect() })
}

/// Runs the case under both commands and says how it comes to differ from what it should.
fn compare(prepare: &dyn Fn(&Place), guest: &str, case: &Case<'_>, ends: Ends) -> Result<(), String> {
    let reference = Command::new(tool("wasmtime"));
    let (their_code, mut theirs) = came(with_arguments(reference, &["run"]), prepare, guest, case);
    let profile = Place::new();
    let wlprof = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    let path = profile.path("p.wlprof");
    let wlprof = with_arguments(wlprof, &["-q", "-o", path.to_str().unwrap()]);
    let (our_code, ours) = came(wlprof, prepare, guest, case);
    let (expected, has_run) = match ends {
        Ends::Both(code) => ((Some(code), Some(code)), true),
        Ends::Apart(theirs, ours) => ((Some(theirs), Some(ours)), false),
    };
    let mut wrong = Vec::new();
    if (their_code, our_code) != expected {
        wrong.push(format!("exit codes {their_code:?} and {our_code:?}"));
    }
    if !has_run {
        // Whether Wasmtime calls it a trap is its own affair where the guest does not begin.
        theirs.trap = None;
    }
    if theirs != ours {
        wrong.push(format!("wasmtime {theirs:?}, wlprof {ours:?}"));
    }
    if has_run != path.exists() {
        wrong.push(format!("a profile was {}written", if has_run { "not " } else { "" }));
    } else if has_run {
        profile.recording("p.wlprof");
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("{:?} {:?}: {}", case.options, case.arguments, wrong.join("; ")))
    }
}

fn with_arguments(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

/// Runs them all, each with a name, and fails if any differs.
fn compare_all(cases: &[(&str, Case<'_>, Ends)]) {
    let mut differences = Vec::new();
    for (name, case, ends) in cases {
        let prepare = |place: &Place| drop(place.file("guest.wat", case.guest));
        if let Err(difference) = compare(&prepare, "guest.wat", case, *ends) {
            differences.push(format!("{name}: {difference}"));
        }
    }
    assert!(differences.is_empty(), "{} of {} differ:\n{}", differences.len(), cases.len(), differences.join("\n"));
}

/// A guest that can say where it is, in one word a line on standard output: `$say_start`, `$say_init`, `$say_main` and
/// `$say_default`; and `$complain`, on standard error.
fn speaking(functions: &str) -> String {
    let words = [("start", 1, 64, 6), ("init", 1, 72, 5), ("main", 1, 80, 5), ("default", 1, 88, 8)];
    let mut text = String::from(
        r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (data (i32.const 64) "start\n\00\00init\n\00\00\00main\n\00\00\00default\ncomplaint\n")
        (func $write_word (param $file i32) (param $at i32) (param $length i32)
            (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $length))
            (drop (call $write (local.get $file) (i32.const 0) (i32.const 1) (i32.const 8))))
        (func $complain (call $write_word (i32.const 2) (i32.const 96) (i32.const 10)))"#,
    );
    for (word, file, at, length) in words {
        text.push_str(&format!(
            "(func $say_{word} (call $write_word (i32.const {file}) (i32.const {at}) (i32.const {length})))\n"
        ));
    }
    text.push_str(functions);
    text.push(')');
    text
}

/// Guests of real compilers, with arguments that keep the run short.
#[test]
fn programs_of_compilers() {
    let cases: [(&str, &[&str], i32); 28] = [
        ("c-calls.wasm", &[], 0),
        ("c-deep.wasm", &["5000", "300"], 0),
        ("c-hosty.wasm", &[], 0),
        ("c-traps.wasm", &[], 0),
        ("c-traps.wasm", &["exit", "3"], 3),
        ("c-traps.wasm", &["exit", "200"], 1),
        ("c-traps.wasm", &["unreachable"], 134),
        ("c-traps.wasm", &["oob"], 134),
        ("c-traps.wasm", &["overflow"], 134),
        ("c-traps.wasm", &["abort"], 134),
        ("component-async.wat", &[], 0),
        ("component-c-calls.wasm", &[], 0),
        ("component-c-hosty.wasm", &[], 0),
        ("component-c-traps.wasm", &[], 0),
        // WASI 0.2 knows of no codes but success and failure.
        ("component-c-traps.wasm", &["exit", "3"], 1),
        ("component-c-traps.wasm", &["unreachable"], 134),
        ("component-c-traps.wasm", &["oob"], 134),
        ("component-c-traps.wasm", &["overflow"], 134),
        ("component-cpp-shapes.wasm", &[], 0),
        ("component-fused.wat", &[], 0),
        ("component-js.wasm", &[], 0),
        ("component-js.wasm", &["fail"], 1),
        ("component-rust-mix.wasm", &[], 0),
        ("cpp-shapes.wasm", &[], 0),
        ("go-bench.wasm", &[], 0),
        ("rust-mix.wasm", &[], 0),
        ("wat-gc.wat", &[], 0),
        ("wat-proposals.wat", &[], 0),
    ];
    for (name, arguments, code) in cases {
        let path = fixture(name);
        let case = Case { arguments, ..Case::default() };
        let compared = compare(&|_| (), path.to_str().unwrap(), &case, Ends::Both(code));
        compared.unwrap_or_else(|difference| panic!("{name}: {difference}"));
    }
}
