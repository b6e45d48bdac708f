//! Go guests at arbitrary instructions: whole stacks of possible calls, known shares and lines.

use crate::go_calls::Calls;
use crate::guest::{finish, output};
use crate::running::first_of_dump;
use crate::sampled::{
    Shares, are_few, fixture, image, innermost_functions, marked_line, percent_of_time, profile, profile_until,
    with_ever_more_work,
};
use crate::tested::wlprof;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use wlprof::recording::{Frame, Origin, Recording};
use wlprof_plugin::{FrameKey, Language, ModuleView, WasmFrame};

/// The oldest release and the newest.
const GUESTS: [&str; 2] = ["go-work-1.21.wasm", "go-work-1.27.wasm"];
/// A release between them, with other tables.
const OTHER_GUEST: &str = "go-work-1.24.wasm";
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
    GUESTS.into_iter().for_each(check_stacks);
}

#[test]
fn stacks_are_whole_and_possible_at_any_instruction_in_every_other_release() {
    check_stacks(OTHER_GUEST);
}

fn check_stacks(guest: &str) {
    let calls = Calls::of(&image(guest));
    for (kind, times) in KINDS {
        let recording = profile_fast(guest, &[kind, times]);
        let tally = check(&recording, &calls, guest);
        let share = 100.0 * tally.rooted as f64 / tally.samples as f64;
        println!("{guest} {kind}: {share:.3} % rooted, {tally:?}, {:?}", recording.truncated);
        let cut = tally.samples - tally.rooted;
        assert!(are_few(cut, tally.samples, 0.001), "{guest} {kind}: {tally:?} {:?}", recording.truncated);
        // What is not whole says why.
        let counted: u64 = recording.truncated.iter().map(|(_, count)| *count).sum();
        assert!(cut <= counted, "{guest} {kind}: {tally:?} {:?}", recording.truncated);
    }
}

#[test]
fn the_epoch_sampler_sees_whole_goroutines_too() {
    GUESTS.into_iter().for_each(check_epoch_sampler);
}

#[test]
fn the_epoch_sampler_sees_whole_goroutines_too_in_every_other_release() {
    check_epoch_sampler(OTHER_GUEST);
}

fn check_epoch_sampler(guest: &str) {
    let calls = Calls::of(&image(guest));
    for (kind, times) in KINDS {
        let recording = profile(guest, &["--sampler=epoch", "--rate=5000"], &[kind, times]);
        let tally = check(&recording, &calls, guest);
        println!("{guest} {kind}: {tally:?}, {:?}", recording.truncated);
        assert!(tally.pairs > tally.samples && tally.samples > 0, "{guest} {kind}: {tally:?}");
        let cut = tally.samples - tally.rooted;
        assert!(are_few(cut, tally.samples, 0.001), "{guest} {kind}: {tally:?} {:?}", recording.truncated);
    }
}

/// Samples from which a share is taken, at least. Chance takes one of three quarters by about three points then.
const SAMPLES: u64 = 5_000;

#[test]
fn three_to_one_is_75_to_25_and_the_hot_line_is_hot() {
    GUESTS.into_iter().for_each(check_shares);
}

#[test]
fn three_to_one_is_75_to_25_and_the_hot_line_is_hot_in_every_other_release() {
    check_shares(OTHER_GUEST);
}

fn check_shares(guest: &str) {
    let hot = marked_line("go/work/work.go", "// hot");
    let recording = profile_until(SAMPLES, |times| profile_fast(guest, &["split", &(8 * times).to_string()]));
    // Of samples in the loop that both have, who called it.
    let callers = recording.samples().filter_map(|sample| {
        let mut lines = recording.lines_of(sample.stack);
        let mut next = || Some(recording.functions[lines.next()?.function as usize].name.as_str());
        (next()? == "main.mix").then_some((next()?, sample.period_ns))
    });
    let callers = Shares::of(callers);
    let loops = Shares::of(innermost_functions(&recording)).percent("main.mix");
    assert!(loops > 90.0, "{guest}: {loops:.2} % in the loop");
    let leaves = recording.samples().filter_map(|sample| recording.lines_of(sample.stack).next());
    // Between blocks, where a third of such a loop's time goes, there is no line.
    let lines: Vec<u32> = leaves
        .filter(|line| recording.functions[line.function as usize].name == "main.mix")
        .filter_map(|line| line.line)
        .collect();
    // Go's tables have one line for the whole block that is the loop: that of its body or, since 1.27, its head.
    let hot_lines = lines.iter().filter(|line| (hot - 1..=hot).contains(*line)).count();
    println!("{guest}: {loops:.2} % in the loop, on its line {hot_lines} of {}", lines.len());
    assert!(hot_lines > 0 && 100 * hot_lines >= 99 * lines.len(), "{guest}: {hot_lines} of {}", lines.len());
    // Each call of the loop costs a little of its own.
    callers.near("main.heavy", 75.0, 0.5).unwrap();
}

/// The table through which a function jumps is on the way from any of its lines to any other.
#[test]
fn code_between_blocks_is_on_no_line_and_all_else_is_on_one() {
    GUESTS.into_iter().for_each(check_lines);
}

#[test]
fn code_between_blocks_is_on_no_line_and_all_else_is_on_one_in_every_other_release() {
    check_lines(OTHER_GUEST);
}

fn check_lines(guest: &str) {
    let image = image(guest);
    let program = wlprof_go::Go.attach(&image).unwrap();
    let at = |function, code_offset| {
        let mut frames = Vec::new();
        program.symbolize(FrameKey::Wasm(WasmFrame::attached(function, code_offset)), &mut frames);
        frames
    };
    let bodies = (0..).skip(image.first_body() as usize).map_while(|index| Some((index, image.function_body(index)?)));
    let (mix, body) = bodies
        .into_iter()
        .find(|(index, body)| at(*index, body.end - 1).last().is_some_and(|frame| frame.function == "main.mix"))
        .unwrap();
    let places: Vec<_> = body.map(|offset| at(mix, offset)).collect();
    assert!(places.iter().all(|frames| frames.len() == 1 && frames[0].function == "main.mix"), "{guest}");
    let lines: Vec<Option<u32>> = places.iter().map(|frames| frames[0].line).collect();
    // The function begins with it.
    let entered = lines.iter().rposition(Option::is_none).unwrap();
    assert!(entered < lines.len() / 2, "{guest}: {lines:?}");
    let known: BTreeSet<u32> = lines[entered + 1..].iter().map(|line| line.unwrap()).collect();
    let hot = marked_line("go/work/work.go", "// hot");
    assert!(known.iter().all(|line| (hot - 2..=hot + 2).contains(line)) && known.len() > 1, "{guest}: {known:?}");
    assert!(places[entered][0].file.as_deref().is_some_and(|file| file.ends_with("work.go")), "{guest}");
}

#[test]
fn native_shows_wasm_frames_alone() {
    let recording = profile("go-bench.wasm", &["--lang=native"], &[]);
    assert!(recording.frames.iter().all(|frame| !matches!(frame.origin, Origin::Language { .. })));
}

/// `wlprof dump`: its standard error.
fn dump(options: &[&str], guest: &Path, arguments: &[&str]) -> String {
    let mut command = wlprof();
    let ran = output(command.arg("dump").args(options).arg(guest).args(arguments));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Lines about compiling come first, if it is not cached.
    let mut text = &*ran.stderr;
    while let Some((first, rest)) = text.split_once('\n')
        && ["compiling ", "compiled "].iter().any(|start| first.starts_with(start))
    {
        text = rest;
    }
    text.to_owned()
}

#[test]
fn a_dump_shows_every_goroutine_and_what_it_waits_for() {
    check_dump("go-goroutines-1.27.wasm");
}

#[test]
fn a_dump_shows_every_goroutine_and_what_it_waits_for_in_every_other_release() {
    check_dump("go-goroutines-1.24.wasm");
}

fn check_dump(guest: &str) {
    // Later and later, until all of them are there and most have begun; the guest goes on for much longer than that takes.
    let mut text = String::new();
    with_ever_more_work("a guest that has begun", |times| {
        let at = (0.05 * times as f64).to_string();
        text = dump(&["--goroutines", "--dump-at", &at], &fixture(guest), &["3"]);
        let of = |part: &str| goroutines(&text).filter(|goroutine| goroutine.contains(part)).count();
        // `semacquire`: it is about to begin a collection. Others help with one.
        let states = ["chan receive", "chan send", "runnable", "running", "semacquire"];
        of("created by main.main in goroutine 1") == 9
            && of("main.stage(...)") >= 5
            && of("stage=hash") == 3
            && states.map(|state| of(&format!(" [{state}]"))).iter().sum::<usize>() >= 10
    });
    let first = goroutines(&text).next().unwrap();
    assert!(first.starts_with("goroutine 1 [") && first.contains("main.main(...)"), "{text}");
    assert!(goroutines(&text).filter(|goroutine| goroutine.contains(" [running]")).count() <= 1, "{text}");
    for goroutine in goroutines(&text) {
        assert!(goroutine.contains("\nruntime.goexit(...)\n"), "{goroutine}");
    }
}

/// The goroutines of a dump.
fn goroutines(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").filter(|part| part.starts_with("goroutine "))
}

fn is_first_of_dump(guest: &Path, arguments: &[&str], is_it: impl Fn(&str) -> bool) {
    let dump_at = |seconds: &str| {
        let mut command = wlprof();
        command.args(["dump", "--goroutines", "--dump-at", seconds]).arg(guest).args(arguments);
        command
    };
    first_of_dump(dump_at, is_it);
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
    is_first_of_dump(&guest, &[], |text| text == "guest [in a host call]:\nsleep(...)\n_start(...)");
    for guest in GUESTS {
        is_first_of_dump(&fixture(guest), &["sleep"], |text| {
            let waits = ["main.sleep", "time.Sleep", "runtime.netpoll", "runtime.poll_oneoff"];
            (text.starts_with("goroutine 1 [sleep]:") || text.starts_with("scheduler [running]:"))
                && waits.iter().any(|function| text.contains(function))
        });
    }
}

#[test]
fn an_exported_function_is_a_root() {
    let options = ["--invoke", "work", "--rate", "5000", "--max-overhead", "100"];
    let recording = profile_until(500, |times| profile("go-export.wasm", &options, &[&(300 * times).to_string()]));
    let share = percent_of_time(&recording, |sample| {
        let names: Vec<&str> = recording.frames_of(sample.stack).map(|frame| name(&recording, frame)).collect();
        names.contains(&"main.work") && names.contains(&"main.hash")
    });
    println!("{share:.1} % of {} in main.hash under main.work, {:?}", recording.ticks.sampled, recording.truncated);
    assert!(share > 80.0, "{share:.1} %, {:?}", recording.truncated);
}

#[test]
fn go_for_javascript_is_told_what_to_do() {
    let ran = output(wlprof().arg(fixture("go-js.wasm")));
    let said = ran.stderr;
    assert_eq!(ran.code, Some(126), "{said}");
    assert!(
        said.contains("unsupported Go 1.27.3 for GOOS=js in go-js.wasm (supported: Go 1.21 to 1.27 for GOOS=wasip1)")
    );
    assert!(said.contains("build it with GOOS=wasip1"), "{said}");
}

#[test]
fn a_signal_asks_for_a_dump_and_the_guest_goes_on() {
    let mut command = wlprof();
    command.arg("dump").arg(fixture("go-work-1.27.wasm")).args(["split", "20"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Asked for again and again: how long compiling takes is anybody's guess.
    let pid = child.id();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asking = done.clone();
    let asker = std::thread::spawn(move || {
        while !asking.load(std::sync::atomic::Ordering::Relaxed) {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
            // Before the handler is there SIGQUIT (3) would end the process.
            if u64::from_str_radix(caught, 16).unwrap() >> 2 & 1 == 1 {
                let _ = Command::new("kill").args(["-QUIT", &pid.to_string()]).status();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    let ran = finish(child, "a guest that is dumped");
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    asker.join().unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "work 00000000\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("goroutine 1 [running]") && ran.stderr.contains("main.split(...)"), "{}", ran.stderr);
}
