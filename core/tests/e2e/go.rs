//! Go guests at arbitrary instructions: whole stacks of possible calls, known shares and lines.

use crate::go_calls::Calls;
use crate::sampled::{fixture, image, marked_line, measure_again_if_off, near, profile};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use wlprof::recording::{Frame, Origin, Recording, Sample, Totals};

/// The oldest release, the newest, and one between with other tables.
const GUESTS: [&str; 3] = ["go-work-1.21.wasm", "go-work-1.24.wasm", "go-work-1.27.wasm"];
/// Kinds of work and the multiplier that gives some thousand samples at 10 kHz.
const KINDS: [(&str, &str); 4] = [("split", "6"), ("channels", "30"), ("garbage", "60"), ("recursion", "50")];
/// Where goroutines, threads and the program begin.
const ROOTS: [&str; 6] =
    ["runtime.goexit", "runtime.mstart", "runtime.mcall", "runtime.rt0_go", "_rt0_wasm_wasip1", "wasm_pc_f_loop"];

fn profile_fast(guest: &str, arguments: &[&str]) -> Recording {
    profile(guest, &["--rate", "10000", "--max-overhead", "100"], arguments)
}

/// What the samples of one run came to.
#[derive(Debug, Default)]
struct Tally {
    samples: u64,
    rooted: u64,
    pairs: u64,
}

/// Name of a frame's function, not of one inlined into it.
fn name<'a>(recording: &'a Recording, frame: &Frame) -> &'a str {
    frame.lines.last().map_or("", |line| &recording.functions[line.function as usize].name)
}

/// Checks every distinct stack of a recording.
fn check(recording: &Recording, calls: &Calls, what: &str) -> Tally {
    let mut tally = Tally::default();
    let mut counts = BTreeMap::<u32, u64>::new();
    for sample in recording.samples() {
        *counts.entry(sample.stack).or_default() += 1;
    }
    for (stack, count) in counts {
        let frames: Vec<&Frame> = recording.frames_of(stack).collect();
        if frames.iter().all(|frame| frame.origin == Origin::Host) {
            // Before the guest began or after it ended.
            continue;
        }
        tally.samples += count;
        tally.rooted += if ROOTS.contains(&name(recording, frames[frames.len() - 1])) { count } else { 0 };
        for pair in frames.windows(2) {
            let [Origin::Language { key: callee, .. }, Origin::Language { key: caller, .. }] =
                [pair[0].origin, pair[1].origin]
            else {
                continue;
            };
            let names = [name(recording, pair[0]), name(recording, pair[1])];
            // Planted: nothing called what begins there. And what needs more stack is suspended where it began.
            let is_planted = ["runtime.goexit", "runtime.mstart"].contains(&names[1]) || names[0] == "runtime.newstack";
            assert!(
                is_planted || calls.possible(calls.function(callee), caller),
                "{what}: {callee:x} {} called by {caller:x} {} in {:?}",
                names[0],
                names[1],
                frames.iter().map(|frame| (name(recording, frame), frame.origin)).collect::<Vec<_>>()
            );
            tally.pairs += count;
        }
    }
    tally
}

#[test]
fn stacks_are_whole_and_possible_at_any_instruction() {
    for guest in GUESTS {
        let calls = Calls::of(&image(guest));
        for (kind, times) in KINDS {
            let recording = profile_fast(guest, &[kind, times]);
            let tally = check(&recording, &calls, guest);
            let share = 100.0 * tally.rooted as f64 / tally.samples as f64;
            println!("{guest} {kind}: {share:.3} % rooted, {tally:?}, {:?}", recording.truncated);
            // One in a thousand, and some for runs of few samples.
            let allowed = tally.samples / 1000 + 3;
            assert!(tally.rooted + allowed >= tally.samples, "{guest} {kind}: {tally:?} {:?}", recording.truncated);
            // What is not whole says why.
            let counted: u64 = recording.truncated.iter().map(|(_, count)| *count).sum();
            assert!(tally.samples - tally.rooted <= counted, "{guest} {kind}: {tally:?} {:?}", recording.truncated);
        }
    }
}

#[test]
fn three_to_one_is_75_to_25_and_the_hot_line_is_hot() {
    let hot = marked_line("go/work/work.go", "// hot");
    for guest in GUESTS {
        measure_again_if_off(|| {
            let recording = profile_fast(guest, &["split", "20"]);
            let totals = Totals::of(&recording);
            let share = |function: &str| {
                let is_it = |total: &&wlprof::recording::FunctionTotal| {
                    recording.functions[total.function as usize].name == function
                };
                100.0 * totals.functions.iter().find(is_it).unwrap().self_ns as f64 / totals.all_ns as f64
            };
            let (heavy, light) = (share("main.heavy"), share("main.light"));
            let split = 100.0 * heavy / (heavy + light);
            let leaves = recording.samples().filter_map(|sample| recording.lines_of(sample.stack).next());
            let in_heavy: Vec<_> = leaves
                .filter(|line| recording.functions[line.function as usize].name == "main.heavy")
                .map(|line| line.line.unwrap())
                .collect();
            // Go's tables have one line for the whole block that is the loop: that of its body or, since 1.27, its head.
            let in_loop = in_heavy.iter().filter(|line| (hot - 1..=hot).contains(*line)).count();
            println!(
                "{guest}: {} samples, heavy {heavy:.2} %, light {light:.2} %, split {split:.2}, loop {in_loop} of {}",
                recording.ticks.sampled,
                in_heavy.len()
            );
            assert!(heavy + light > 90.0, "{guest}: {heavy:.2} % and {light:.2} %");
            assert!(100 * in_loop >= 99 * in_heavy.len(), "{guest}: {in_loop} of {}", in_heavy.len());
            near(guest, split, 75.0, 1.5)
        });
    }
}

#[test]
fn native_shows_wasm_frames_alone() {
    let recording = profile("go-bench.wasm", &["--lang=native"], &[]);
    assert!(recording.frames.iter().all(|frame| !matches!(frame.origin, Origin::Language { .. })));
}

/// `wlprof dump`: its standard error.
fn dump(options: &[&str], guest: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    let output = command.arg("dump").args(options).arg(guest).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_dump_shows_every_goroutine_and_what_it_waits_for() {
    let text = dump(&["--goroutines", "--dump-at", "0.2"], &fixture("go-goroutines-1.24.wasm"), &["3"]);
    let goroutines: Vec<&str> = text.split("\n\n").filter(|part| part.starts_with("goroutine ")).collect();
    let of = |start: &str| goroutines.iter().filter(|goroutine| goroutine.contains(start)).count();
    let first = goroutines.first().unwrap_or_else(|| panic!("{text}"));
    assert!(first.starts_with("goroutine 1 [") && first.contains("main.main(...)"), "{text}");
    // Some may not have begun.
    assert!(of("main.stage(...)") >= 5 && of("created by main.main in goroutine 1") == 9, "{text}");
    assert_eq!(of("stage=hash"), 3, "{text}");
    let states = ["chan receive", "chan send", "runnable", "running"].map(|state| of(&format!(" [{state}]")));
    assert!(states.iter().sum::<usize>() >= 10 && states[3] <= 1, "{states:?} {text}");
    for goroutine in goroutines {
        assert!(goroutine.contains("\nruntime.goexit(...)\n"), "{goroutine}");
    }
}

/// What `wlprof dump` of a guest says at first, up to an empty line; the guest is ended then.
fn first_of_dump(guest: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    command.args(["dump", "--goroutines", "--dump-at", "0.3"]).arg(guest).args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let text: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    text.join("\n")
}

/// The guest waits for an hour: were it not read meanwhile, neither would this end.
#[test]
fn a_guest_that_waits_is_dumped_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let guest = folder.path().join("waits.wat");
    std::fs::write(
        &guest,
        r#"(module (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
             (memory (export "memory") 1)
             (func $sleep
               ;; One subscription to the monotonic clock, in nanoseconds.
               (i32.store (i32.const 16) (i32.const 1))
               (i64.store (i32.const 24) (i64.const 3600000000000))
               (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))))
             (func (export "_start") (call $sleep)))"#,
    )
    .unwrap();
    assert_eq!(first_of_dump(&guest, &[]), "guest [in a host call]:\nsleep(...)\n_start(...)");
    for guest in GUESTS {
        let text = first_of_dump(&fixture(guest), &["sleep"]);
        assert!(text.starts_with("goroutine 1 [sleep]:") || text.starts_with("scheduler [running]:"), "{text}");
        let waits = ["main.sleep", "time.Sleep", "runtime.netpoll", "runtime.poll_oneoff"];
        assert!(waits.iter().any(|function| text.contains(function)), "{text}");
    }
}

#[test]
fn an_exported_function_is_a_root() {
    let options = ["--invoke", "work", "--rate", "5000", "--max-overhead", "100"];
    let recording = profile("go-export.wasm", &options, &["300"]);
    let frames = |sample: &Sample| recording.frames_of(sample.stack).collect::<Vec<_>>();
    let in_work = recording.samples().filter(|sample| {
        let frames = frames(sample);
        let names: Vec<&str> = frames.iter().map(|frame| name(&recording, frame)).collect();
        names.contains(&"main.work") && names.contains(&"main.hash")
    });
    let share = 100.0 * in_work.count() as f64 / recording.ticks.sampled as f64;
    println!("{share:.1} % of {} in main.hash under main.work, {:?}", recording.ticks.sampled, recording.truncated);
    assert!(share > 80.0, "{share:.1} %, {:?}", recording.truncated);
}

#[test]
fn go_for_javascript_is_told_what_to_do() {
    let run = Command::new(env!("CARGO_BIN_EXE_wlprof")).arg(fixture("go-js.wasm")).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(126), "{said}");
    assert!(
        said.contains("unsupported Go 1.24.11 for GOOS=js in go-js.wasm (supported: Go 1.21 to 1.27 for GOOS=wasip1)")
    );
    assert!(said.contains("build it with GOOS=wasip1"), "{said}");
}

#[test]
fn a_signal_asks_for_a_dump_and_the_guest_goes_on() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    command.arg("dump").arg(fixture("go-work-1.24.wasm")).args(["split", "20"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Asked for again and again: how long compiling takes is anybody's guess.
    let pid = child.id().to_string();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asking = done.clone();
    let asker = std::thread::spawn(move || {
        while !asking.load(std::sync::atomic::Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
            // Before the handler is there SIGQUIT (3) would end the process.
            if u64::from_str_radix(caught, 16).unwrap() >> 2 & 1 == 1 {
                let _ = Command::new("kill").args(["-QUIT", &pid]).status();
            }
        }
    });
    let output = child.wait_with_output().unwrap();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    asker.join().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"work 00000000\n".as_slice()), "{text}");
    assert!(text.contains("goroutine 1 [running]") && text.contains("main.split(...)"), "{text}");
}
