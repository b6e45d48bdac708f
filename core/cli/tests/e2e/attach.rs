//! `wlprof attach` and `wlprof ps`: guests of processes that run already. The host is wlprof itself without a sampler, of which nothing is
//! asked but to run a guest.

use crate::guest::{Place, Ran, fixture, send_signal};
use crate::running::{EndOnDrop, wait_until, with_default_signals};
use crate::sampled::{Shares, are_few, innermost_functions, percent_of_time};
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use wlprof::recording::{Line, Origin, Recording, Sample, State, Truncation};

/// How far a share may be off by itself, in points: equal work takes a little more time or less by where its code lies.
pub(crate) const POINTS: f64 = 1.0;

/// A process that runs a guest until the test ends.
pub(crate) struct Host(Child);

impl Host {
    /// Starts one, and waits until its guest has been compiled and runs.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut host = Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let pid = host.pid();
        wait_until("the host runs wasm", || {
            assert_eq!(host.0.try_wait().unwrap(), None, "{command:?} has ended");
            let ran = Place::new().run(["ps"]);
            ran.stdout.lines().any(|line| line.trim_start().starts_with(&format!("{pid} ")))
        });
        host
    }

    /// A host of `guest`, which never ends within a test.
    pub(crate) fn of(place: &Place, guest: &str) -> Self {
        Self::start(&mut place.command(["--sampler=off", "-q", guest, "1000000"]))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attach(place: &Place, host: &Host, options: &[&str]) -> Ran {
    let pid = host.pid().to_string();
    let arguments = ["attach", "-o", "x.wlprof"].iter().chain(options).copied().chain([&*pid]);
    place.run(arguments)
}

/// Attaches for ever longer until there are some hundred samples.
pub(crate) fn recording(place: &Place, host: &Host, options: &[&str]) -> Recording {
    // Where others have the processors, a thread may stand still while wlprof waits for one.
    recording_of(400, place, host, &[options, &["--rate=500", "--max-overhead=100"]].concat())
}

/// Attaches for ever longer until there are so many samples.
fn recording_of(samples: u64, place: &Place, host: &Host, options: &[&str]) -> Recording {
    for doubled in 0..10 {
        let duration = format!("--duration={}", 2 << doubled);
        let ran = attach(place, host, &[options, &[&duration]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let recording = place.recording("x.wlprof");
        if recording.ticks.sampled > samples {
            return recording;
        }
    }
    panic!("the host has hardly run");
}

#[test]
fn shares_are_right_and_stacks_whole() {
    let place = Place::new();
    let path = fixture("c-shares.wasm");
    let host = Host::of(&place, path.to_str().unwrap());
    let recording = recording(&place, &host, &[]);
    check_shares(&recording);
}

/// Checks that a recording of three units of work to one has those shares, lines, and whole stacks.
pub(crate) fn check_shares(recording: &Recording) {
    assert!(recording.truncated.is_empty(), "{:?}", recording.truncated);
    let shares = Shares::of(innermost_functions(recording));
    shares.near("heavy", 75.0, POINTS).unwrap();
    shares.near("light", 25.0, POINTS).unwrap();
    // The file that the command line names has lines.
    let heavy = recording.functions.iter().find(|function| function.name == "heavy").unwrap();
    assert!(heavy.file.as_deref().is_some_and(|file| file.ends_with("shares.c")), "{heavy:?}");
    let roots = recording.samples().map(|sample| recording.frames_of(sample.stack).last().unwrap());
    let names = roots.map(|frame| &*recording.functions[frame.lines[0].function as usize].name);
    assert!(names.into_iter().all(|name| name == "_start"));
    assert!(recording.samples().all(|sample| sample.state == State::Guest));
}

/// Works for some 30 ms in `long`, and then for as long in `short`, in thirty parts between sleeps.
const LONG_AND_SHORT: &str = r#"
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $sleep
    ;; One subscription to the monotonic clock, a millisecond.
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const 1000000))
    (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))))
  (func $work (param $rounds i32)
    (loop $again
      (i32.store (i32.const 256) (i32.mul (i32.add (i32.load (i32.const 256)) (i32.const 7)) (i32.const 1664525)))
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1))))))
  (func $long (call $work (i32.const 6000000)))
  (func $short (call $work (i32.const 200000)))
  (func (export "_start") (local $parts i32)
    (loop $again
      (call $long)
      (local.set $parts (i32.const 30))
      (loop $part
        (call $sleep)
        (call $short)
        (br_if $part (local.tee $parts (i32.sub (local.get $parts) (i32.const 1)))))
      (br $again))))
"#;

/// What works for long is preempted, and what sleeps again before that is not.
#[test]
fn work_between_sleeps_has_its_share_where_processors_are_scarce() {
    let place = Place::new();
    place.file("long-and-short.wat", LONG_AND_SHORT);
    let host = Host::of(&place, "long-and-short.wat");
    let is_over = AtomicBool::new(false);
    let recording = std::thread::scope(|scope| {
        for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _end = EndOnDrop(&is_over);
        recording_of(1500, &place, &host, &["--rate=1000", "--max-overhead=100"])
    });
    let part = |sample: Sample| {
        let names = recording.lines_of(sample.stack).map(|line| &*recording.functions[line.function as usize].name);
        let part = names.into_iter().find(|name| ["long", "short"].contains(name))?;
        Some((part, sample.period_ns))
    };
    // The number of samples is no share: the parts wait for a processor differently.
    let shares = Shares::of(recording.samples().filter_map(part));
    let (short, chance) = (shares.percent("short"), shares.chance(50.0));
    println!("short: {short:.2} ± {chance:.2} %");
    assert!((short - 50.0).abs() <= chance + POINTS, "short: {short:.2} ± {chance:.2} %");
}

#[test]
fn a_hosts_own_frames_are_around_those_of_its_guest() {
    let place = Place::new();
    let host = Host::of(&place, fixture("c-shares.wasm").to_str().unwrap());
    check_host_frames(&recording(&place, &host, &["--host-frames"]), "wasmtime::", false);
}

/// Checks that stacks of a guest with three units of work to one go on to the root of the host's thread, through a function of this name, or are cut
/// beyond that function.
pub(crate) fn check_host_frames(recording: &Recording, entry: &str, is_cut: bool) {
    let shares = Shares::of(innermost_functions(recording));
    shares.near("heavy", 75.0, POINTS).unwrap();
    let is_whole = |sample: &Sample| {
        let frames: Vec<_> = recording.frames_of(sample.stack).collect();
        let is_host = |origin| matches!(origin, Origin::Native { .. } | Origin::Truncated);
        let native = frames.iter().rev().take_while(|frame| is_host(frame.origin));
        if !is_cut && frames.last().is_some_and(|root| root.origin == Origin::Truncated) {
            return false;
        }
        let mut names = native.flat_map(|frame| &frame.lines).map(|line| &recording.functions[line.function as usize]);
        names.any(|function| function.name.contains(entry))
    };
    let whole = percent_of_time(recording, is_whole);
    let one: Vec<_> = recording.samples().take(1).flat_map(|sample| recording.lines_of(sample.stack)).collect();
    let one: Vec<_> = one.iter().map(|line| &*recording.functions[line.function as usize].name).collect();
    assert!(whole > 99.0, "{whole} % of {} are whole, as {one:?}", recording.ticks.sampled);
}

#[test]
fn a_guest_whose_file_is_gone_has_the_names_of_its_symbols() {
    let place = Place::new();
    place.file("gone.wasm", std::fs::read(fixture("c-shares.wasm")).unwrap());
    let host = Host::of(&place, "gone.wasm");
    std::fs::remove_file(place.path("gone.wasm")).unwrap();
    let without = recording(&place, &host, &[]);
    let shares = Shares::of(innermost_functions(&without));
    shares.near("heavy", 75.0, POINTS).unwrap();
    assert!(without.functions.iter().all(|function| function.file.is_none()));
    let has_note = |recording: &Recording, words: &str| recording.meta.notes.iter().any(|note| note.contains(words));
    assert!(has_note(&without, "give the file that it was compiled from with --guest"), "{:?}", without.meta.notes);
    // Given by the user it has lines, and another's file changes nothing.
    let (own, other) = (fixture("c-shares.wasm"), fixture("c-calls.wasm"));
    let [own, other] = [own, other].map(|path| format!("--guest={}", path.display()));
    let with = recording(&place, &host, &[&other, &own]);
    assert!(with.functions.iter().any(|function| function.name == "heavy" && function.line.is_some()));
    assert!(has_note(&with, "c-calls.wasm: nothing in the process was compiled from it"), "{:?}", with.meta.notes);
    assert!(!has_note(&with, "c-shares.wasm"), "{:?}", with.meta.notes);
}

/// A module with a function that works.
fn worker(name: &str) -> String {
    format!(
        r#"(module (func ${name} (export "f") (local $n i32)
             (local.set $n (i32.const 100000))
             (loop $again (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))"#
    )
}

#[test]
fn all_modules_of_a_host_are_found() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.file(&format!("{name}.wat"), worker(&format!("work_of_{name}")));
    }
    let imports = r#"(import "a" "f" (func $a)) (import "b" "f" (func $b)) (import "c" "f" (func $c))"#;
    let main = r#"(func (export "_start") (loop $again (call $a) (call $b) (call $c) (br $again)))"#;
    place.file("main.wat", format!("(module {imports} {main})"));
    let preloads = ["--preload", "a=a.wat", "--preload", "b=b.wat", "--preload", "c=c.wat"];
    let command = [&["--sampler=off", "-q"][..], &preloads, &["main.wat"]].concat();
    let host = Host::start(&mut place.command(command));
    let pid = host.pid().to_string();
    wait_until("all have been loaded", || {
        let ran = place.run(["ps"]);
        let row = ran.stdout.lines().map(|row| row.split_whitespace().collect::<Vec<_>>()).find(|row| row[0] == pid);
        row.is_some_and(|row| row[2] == "4")
    });
    let recording = recording(&place, &host, &[]);
    let names: BTreeSet<_> = innermost_functions(&recording).map(|(name, _)| name.to_owned()).collect();
    for name in ["work_of_a", "work_of_b", "work_of_c"] {
        assert!(names.contains(name), "{names:?}");
    }
    assert!(recording.truncated.is_empty(), "{:?}", recording.truncated);
}

#[test]
fn host_calls_are_under_the_wasm_that_called() {
    let place = Place::new();
    let path = fixture("c-hosty.wasm");
    let host = Host::of(&place, path.to_str().unwrap());
    let recording = recording(&place, &host, &[]);
    check_host_calls(&recording);
}

/// Checks that a recording of a guest that lives in host calls has them under the functions that made them.
pub(crate) fn check_host_calls(recording: &Recording) {
    assert!(recording.truncated.is_empty(), "{:?}", recording.truncated);
    let name = |frame: &wlprof::recording::Frame| &*recording.functions[frame.lines[0].function as usize].name;
    let in_host = recording.samples().filter(|sample| sample.state == State::Host);
    let stacks: Vec<Vec<&str>> = in_host.map(|sample| recording.frames_of(sample.stack).map(name).collect()).collect();
    assert!(!stacks.is_empty());
    for stack in stacks {
        assert_eq!(stack.last(), Some(&"_start"));
        // At its start the guest may call another import; and between two calls the host may run for Wasmtime itself.
        if let Some(import) = stack[1].strip_prefix("__wasi_") {
            assert!(stack[0].contains(import), "{stack:?}");
        }
    }
    let asked = innermost_functions(recording).filter(|(name, _)| name.contains("clock_time_get")).count() as u64;
    assert!(asked > recording.ticks.sampled / 10, "{asked} of {}", recording.ticks.sampled);
}

/// Sleeps and works in turns, for ever.
const SLEEPER: &str = r#"(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $nap
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const 3000000))
    (i64.store (i32.const 32) (i64.const 1))
    (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))))
  (func $work (local $n i32)
    (local.set $n (i32.const 2000000))
    (loop $again
      (i32.store (i32.const 256) (i32.mul (i32.load (i32.const 256)) (i32.const 1664525)))
      (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
  (func (export "_start") (loop $again (call $nap) (call $work) (br $again))))"#;

#[test]
fn waits_are_under_the_wasm_that_called() {
    let place = Place::new();
    place.file("sleeper.wat", SLEEPER);
    let host = Host::of(&place, "sleeper.wat");
    let wall = recording(&place, &host, &["--clock=wall"]);
    let names = |sample: &Sample| wall.lines_of(sample.stack).map(name_of(&wall)).collect::<Vec<_>>();
    let waiting: Vec<_> = wall.samples().filter(|sample| sample.state == State::Blocked).collect();
    assert!(waiting.len() > 10, "{} of {}", waiting.len(), wall.ticks.sampled);
    for sample in &waiting {
        assert!(matches!(names(sample)[..], [_, "nap", _]), "{:?}", names(sample));
    }
    assert!(wall.samples().any(|sample| sample.state == State::Guest && names(&sample)[0] == "work"));
    let ns: u64 = wall.samples().map(|sample| sample.period_ns).sum();
    assert!(ns.abs_diff(wall.meta.duration_ns) < wall.meta.duration_ns / 5, "{ns} of {:?}", wall.meta);
    // By CPU time waiting is not seen.
    let cpu = recording(&place, &host, &[]);
    assert!(cpu.samples().all(|sample| sample.state != State::Blocked));
    let shown = attach(&place, &host, &["--off-cpu", "--duration=2"]);
    assert!(shown.stderr.contains("waiting: where, and in which call of the host"), "{shown:?}");
}

/// The component of [`fixture`] that works and waits in turns, without an end.
pub(crate) fn endless_async_component() -> String {
    let text = std::fs::read_to_string(fixture("component-async.wat")).unwrap();
    let endless = text.replace("(call $turn (i32.const 20))", "(call $turn (i32.const 2000000))");
    assert_ne!(text, endless);
    endless.replace("20_000_000", "2_000_000")
}

/// Checks that a store which is suspended while it waits is seen where it waits, and that all time is its own.
pub(crate) fn check_suspended_store(place: &Place, host: &Host) {
    let wall = recording(place, host, &["--clock=wall", "--guest=async.wat"]);
    let names = |sample: &Sample| wall.lines_of(sample.stack).map(name_of(&wall)).collect::<Vec<_>>();
    let of_state = |state| wall.samples().filter(move |sample| sample.state == state);
    let waits = of_state(State::Blocked)
        .filter(|sample| names(sample) == ["wasi:clocks/monotonic-clock@0.3.0.wait-for", "rest", "turn", "run"]);
    let waited_ns: u64 = waits.map(|sample| sample.period_ns).sum();
    // Of each turn 10 ms, and some of work.
    assert!(waited_ns > wall.meta.duration_ns / 10, "{waited_ns} of {:?}", wall.meta);
    assert!(of_state(State::Guest).any(|sample| names(&sample)[0] == "work"));
    // Both parts are estimates of some hundred samples: all time is divided between them, up to chance.
    let ns: u64 = wall.samples().map(|sample| sample.period_ns).sum();
    assert!(ns <= wall.meta.duration_ns * 5 / 4, "{ns} of {:?}", wall.meta);
    wait_until("it waits", || {
        let ran = place.run(["dump", "--pid", &host.pid().to_string()]);
        ran.stdout.contains("suspended store [waiting]:\nrest(...)\nturn(...)\nrun(...)\n")
    });
}

#[test]
fn stores_that_wait_on_no_thread_are_seen() {
    let place = Place::new();
    place.file("async.wat", endless_async_component());
    check_suspended_store(&place, &Host::of(&place, "async.wat"));
}

#[test]
fn stacks_of_now_are_dumped() {
    let place = Place::new();
    let dump = |host: &Host, options: &[&str]| {
        let ran = place.run([&["dump", "--pid", &host.pid().to_string()], options].concat());
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
        ran.stdout
    };
    place.file("sleeper.wat", SLEEPER);
    let sleeper = Host::of(&place, "sleeper.wat");
    for state in ["waiting", "running"] {
        let leaf = if state == "waiting" { "nap(...)" } else { "work(...)" };
        wait_until(state, || {
            let text = dump(&sleeper, &[]);
            text.contains(&format!("[{state}]:\n")) && text.contains(leaf)
        });
    }
    let goroutines = fixture("go-goroutines-1.27.wasm");
    let guest = ["--sampler=off", "-q", goroutines.to_str().unwrap(), "1000000"];
    let host = Host::start(&mut place.command(guest));
    wait_until("goroutines run", || {
        let text = dump(&host, &["--threads"]);
        text.matches("goroutine ").count() > 3 && text.contains("goroutines.go:") && text.contains("created by ")
    });
    let refused = place.run(["dump", "--pid", "1", "--dump-at=1"]);
    assert!(refused.stderr.contains("cannot be used with"), "{refused:?}");
}

/// Three units of work to one, in Python.
pub(crate) const SCRIPT: &str = "\
def work(n):
    s = 0
    for i in range(n):
        s = s * 31 + i & 0xffff
    return s
def heavy():
    return work(30000)
def light():
    return work(10000)
while True:
    heavy()
    light()
";

/// Samples whose language's stack was not whole, among all.
fn not_whole(recording: &Recording) -> (u64, u64) {
    let of_language = recording.truncated.iter().filter(|(reason, _)| matches!(reason, Truncation::Language(_)));
    (of_language.map(|(_, count)| count).sum(), recording.ticks.sampled)
}

#[test]
fn python_stacks_are_read() {
    let place = Place::new();
    place.file("script.py", SCRIPT);
    let guest = fixture("python-3.11.wasm");
    let mut command =
        place.command(["--sampler=off", "-q", "--lang=python", "--dir=.", guest.to_str().unwrap(), "script.py"]);
    let host = Host::start(&mut command);
    // The interpreter's start takes a while, and so did compiling.
    let compiled = host.cpu_ticks();
    wait_until("the script runs", || host.cpu_ticks() > compiled + 300);
    let recording = recording(&place, &host, &[]);
    check_python(&recording);
}

/// Checks that a recording of [`SCRIPT`] has its shares.
pub(crate) fn check_python(recording: &Recording) {
    check_script(recording, "<module>");
}

/// Checks that a recording of a script has three units of work below `heavy` to one below `light`, and that it begins in `root`.
pub(crate) fn check_script(recording: &Recording, root: &str) {
    let of = |wanted: &str| {
        let is_under = |sample: &Sample| {
            recording.lines_of(sample.stack).any(|line| recording.functions[line.function as usize].name == wanted)
        };
        recording.samples().filter(is_under).map(|sample| sample.period_ns).sum::<u64>()
    };
    let samples = recording.samples().map(|sample| (recording.lines_of(sample.stack).map(name_of(recording)), sample));
    let callers = samples.filter_map(|(mut names, sample)| {
        let caller = names.find(|name| ["heavy", "light"].contains(name))?;
        Some((caller, sample.period_ns))
    });
    let shares = Shares::of(callers);
    shares.near("heavy", 75.0, POINTS).unwrap();
    assert!(of(root) > 0 && of("work") > 0);
    let (missing, all) = not_whole(recording);
    assert!(are_few(missing, all, 0.01), "{missing} of {all}: {:?}", recording.truncated);
}

#[test]
fn go_stacks_are_read() {
    let place = Place::new();
    let path = fixture("go-work-1.27.wasm");
    let guest = ["--sampler=off", "-q", path.to_str().unwrap(), "channels", "1000000"];
    let host = Host::start(&mut place.command(guest));
    let recording = recording(&place, &host, &[]);
    check_go(&recording);
}

/// Checks that a recording of Go's channels has goroutines.
pub(crate) fn check_go(recording: &Recording) {
    let mains = recording.functions.iter().filter(|function| function.name.starts_with("main."));
    assert!(mains.into_iter().any(|function| function.line.is_some()), "{:?}", recording.functions);
    let roots = recording.samples().filter_map(|sample| recording.lines_of(sample.stack).last());
    let roots = roots.map(name_of(recording));
    assert!(roots.into_iter().any(|root| root == "runtime.goexit"));
    let (missing, all) = not_whole(recording);
    assert!(are_few(missing, all, 0.01), "{missing} of {all}: {:?}", recording.truncated);
}

/// The name of the function that a line is in.
fn name_of<'r>(recording: &'r Recording) -> impl Fn(Line) -> &'r str + Copy {
    move |line| &*recording.functions[line.function as usize].name
}

#[test]
fn a_host_runs_on_whatever_happens_to_wlprof() {
    let place = Place::new();
    let path = fixture("c-spin.wasm");
    let host = Host::start(&mut place.command(["--sampler=off", "-q", path.to_str().unwrap()]));
    for _ in 0..20 {
        let pid = host.pid().to_string();
        let mut command = place.command(["attach", "--rate=1000", "-o", "x.wlprof", &pid]);
        let mut tool = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("wlprof samples", || {
            assert!(tool.try_wait().unwrap().is_none(), "wlprof has ended");
            is_sampling(tool.id())
        });
        send_signal(tool.id(), "KILL");
        tool.wait().unwrap();
        let _ = std::fs::remove_file(place.path("x.wlprof"));
        let before = host.cpu_ticks();
        wait_until("the host runs on", || host.cpu_ticks() > before + 2);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
    assert!(status.contains("TracerPid:\t0"), "{status}");
}

/// Whether `wlprof attach` has begun to sample: the thread that does has begun.
fn is_sampling(tool: u32) -> bool {
    statuses(tool, "Name:").iter().any(|name| name == "wlprof sampler")
}

/// Fields of `/proc/PID/status`, of each thread.
fn statuses(pid: u32, field: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|entry| entry.unwrap().path());
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.join("status")).ok());
    let values = texts.map(|text| text.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_owned());
    values.collect()
}

#[test]
fn a_host_runs_on_while_wlprof_is_suspended() {
    let place = Place::new();
    let path = fixture("c-spin.wasm");
    let host = Host::start(&mut place.command(["--sampler=off", "-q", path.to_str().unwrap()]));
    let pid = host.pid().to_string();
    let command = place.command(["attach", "--rate=1000", "--duration=1e19", "-o", "x.wlprof", &pid]);
    let mut command = with_default_signals(&command);
    let tool = command.current_dir(place.path("")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut tool = Host(tool);
    for _ in 0..5 {
        let length = || std::fs::metadata(place.path("x.wlprof")).map_or(0, |file| file.len());
        let before = length();
        wait_until("wlprof samples", || is_sampling(tool.pid()) && length() > before);
        send_signal(tool.pid(), "TSTP");
        wait_until("it is suspended", || statuses(tool.pid(), "State:").iter().all(|state| state.starts_with('T')));
        assert!(statuses(host.pid(), "TracerPid:").iter().all(|tracer| tracer == "0"));
        let before = host.cpu_ticks();
        wait_until("the host runs on", || host.cpu_ticks() > before + 2);
        send_signal(tool.pid(), "CONT");
    }
    send_signal(tool.pid(), "INT");
    assert!(tool.0.wait().unwrap().success());
    assert!(place.recording("x.wlprof").ticks.sampled > 0);
}

#[test]
fn what_cannot_be_attached_to_is_said() {
    let place = Place::new();
    let of = |pid: &str| place.run(["attach", "--duration=1", "-o", "x.wlprof", pid]);
    let none = of("999999999");
    assert_eq!(none.code, Some(125), "{none:?}");
    assert!(none.stderr.contains("there is no process 999999999; `wlprof ps` lists"), "{none:?}");
    let sleep = Command::new("sleep").arg("600").spawn().unwrap();
    let sleep = Host(sleep);
    let without = of(&sleep.pid().to_string());
    assert_eq!(without.code, Some(125), "{without:?}");
    assert!(without.stderr.contains("runs no code that Wasmtime 24 or later compiled"), "{without:?}");
    assert!(!place.path("x.wlprof").exists());
}
