//! Known costs must come out as known shares.

use crate::guest::{Place, fixture_bytes};
use crate::sampled::{Shares, innermost_functions, profile, profile_fast, profile_until};
use crate::sections::{join, read_unsigned, split, unsigned};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use wlprof::recording::{Origin, Recording, State};

/// Samples from which a share is taken, at least. Chance takes three quarters by about two points then.
const SAMPLES: u64 = 10_000;

/// How far a share may be off by itself, in points: equal work takes a little more time or less by where its code lies.
const POINTS: f64 = 0.5;

/// Profiles with so large a multiplier that there are enough samples, however fast the machine.
fn profile_enough(name: &str, sampler: &str) -> Recording {
    profile_until(SAMPLES, |times| profile_fast(name, sampler, &[&(2 * times).to_string()]))
}

#[test]
fn three_to_one_is_75_to_25() {
    let recording = profile_enough("c-shares.wasm", "signal");
    let shares = Shares::of(innermost_functions(&recording));
    shares.near("heavy", 75.0, POINTS).unwrap();
    shares.near("light", 25.0, POINTS).unwrap();
}

/// A module whose tool has put an instruction into each body and kept the DWARF, which names functions by where they were.
fn with_stale_dwarf(module: &[u8]) -> Vec<u8> {
    const CODE: u8 = 10;
    const NOP: u8 = 1;
    let mut sections = split(module);
    for section in sections.iter_mut().filter(|section| section.id == CODE) {
        let (count, mut at) = read_unsigned(&section.payload);
        let mut code = unsigned(count);
        while at < section.payload.len() {
            let (size, length) = read_unsigned(&section.payload[at..]);
            let body = &section.payload[at + length..at + length + size];
            let (rest, end) = body.split_at(size - 1);
            code.extend([&unsigned(size + 1)[..], rest, &[NOP], end].concat());
            at += length + size;
        }
        section.payload = code;
    }
    join(&sections)
}

#[test]
fn shares_are_right_where_a_tool_left_old_dwarf_behind() {
    let place = Place::new();
    place.file("stale.wasm", with_stale_dwarf(&fixture_bytes("c-shares.wasm")));
    let mut stderr = String::new();
    let recording = profile_until(SAMPLES, |times| {
        let options = ["--rate=10000", "--max-overhead=100", "-o", "x.wlprof", "stale.wasm"];
        let ran = place.run(options.into_iter().chain([&*(2 * times).to_string()]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        stderr = ran.stderr;
        place.recording("x.wlprof")
    });
    let shares = Shares::of(innermost_functions(&recording));
    shares.near("heavy", 75.0, POINTS).unwrap();
    shares.near("light", 25.0, POINTS).unwrap();
    let is_told = |note: &String| note.contains("kept the old DWARF");
    assert_eq!(recording.meta.notes.iter().filter(|note| is_told(note)).count(), 1, "{:?}", recording.meta.notes);
    assert!(is_told(&stderr) && !stderr.contains("does not fit its code"), "{stderr}");
    let heavy = recording.functions.iter().find(|function| function.name == "heavy").unwrap();
    assert_eq!((heavy.line, &heavy.file), (None, &None));
}

#[test]
fn ten_straight_line_functions_have_a_tenth_each() {
    let recording = profile_enough("c-straight.wasm", "signal");
    let shares = Shares::of(innermost_functions(&recording));
    let names: Vec<&str> = shares.keys().copied().filter(|name| name.starts_with("straight_")).collect();
    assert_eq!(names.len(), 10, "{names:?}");
    for name in names {
        shares.near(name, 10.0, POINTS).unwrap();
    }
}

/// Between samples at first.
const PERIOD_NS: u64 = 1_000_000;

/// Samples stand for the CPU time that the guest used, however often it waits for the host or for a processor, but for what they
/// took themselves and what is told.
#[test]
fn samples_add_up_to_the_cpu_time() {
    let load = (0..2).map(|_| BusyThread::spinning()).collect::<Vec<_>>();
    for guest in ["c-hosty.wasm", "c-shares.wasm"] {
        let recording = profile(guest, &["--sampler", "signal", "--max-overhead", "100"], &["2"]);
        let stood_for: u64 = recording.samples().map(|sample| sample.period_ns).sum();
        let used = recording.meta.cpu_ns;
        println!("{guest}: samples for {stood_for} ns of {used} ns, {:?}", recording.ticks);
        assert_eq!(recording.ticks.ring_full, 0, "{guest}: samples were dropped");
        let told = recording.meta.sampling_ns + recording.meta.unsampled_ns;
        // The instants of the first and the last period are anywhere in them, and what is missing is made up for little by little.
        assert!((stood_for + told).abs_diff(used) <= 4 * PERIOD_NS, "{guest}: {stood_for} + {told} ns of {used} ns");
    }
    drop(load);
}

/// A thread that keeps a processor busy until it is dropped.
struct BusyThread(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl BusyThread {
    fn spinning() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || while !stopped.load(Ordering::Relaxed) {});
        Self(stop, Some(thread))
    }
}

impl Drop for BusyThread {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// The epoch sampler has its place, but not its rival's accuracy: it sees the functions, without loops of their own,
/// only when they are entered.
#[test]
fn the_epoch_sampler_finds_the_same_functions() {
    let recording = profile_enough("c-shares.wasm", "epoch");
    let shares = Shares::of(innermost_functions(&recording));
    let (heavy, light) = (shares.percent("heavy"), shares.percent("light"));
    println!("{} samples: {heavy:.1} % {light:.1} %", recording.ticks.sampled);
    assert!(heavy > 50.0 && light > 10.0);
    assert_eq!(recording.meta.sampler, "epoch");
    assert!(recording.meta.notes.iter().any(|note| note.contains("epoch sampler")), "{:?}", recording.meta.notes);
}

/// Calls of functions, and of the steps that they take: without loops, and each in need of the one before.
fn straight_line(functions: &[(&str, usize)], main: &[(&str, usize)]) -> String {
    let steps = |count: usize| {
        "(local.set 0 (i64.mul (i64.xor (local.get 0) (i64.shl (local.get 0) (i64.const 13))) (i64.const 7)))"
            .repeat(count)
    };
    let functions = functions
        .iter()
        .map(|(name, count)| format!("(func ${name} (param i64) (result i64) {} (local.get 0))\n", steps(*count)));
    let main =
        main.iter().map(|(callee, before)| format!("{} (local.set 0 (call ${callee} (local.get 0)))", steps(*before)));
    format!(
        r#"(module {} (memory (export "memory") 1) (func $main (export "_start") (local i64 i32)
            (loop $next {}
                (local.set 1 (i32.add (local.get 1) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get 1) (i32.const 2000000))))
            (i64.store (i32.const 0) (local.get 0))))"#,
        functions.collect::<String>(),
        main.collect::<String>(),
    )
}

/// Profiles a guest of this text by the epoch sampler.
fn profile_by_epochs(text: &str) -> Recording {
    let place = Place::new();
    place.file("guest.wat", text);
    let ran = place.run(["-q", "--sampler=epoch", "--rate=2000", "-o", "x.wlprof", "guest.wat"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.recording("x.wlprof")
}

/// How much of the time is in this state, in percent.
fn percent_in(recording: &Recording, state: State) -> f64 {
    let time = |is_meant: &dyn Fn(State) -> bool| -> u64 {
        recording.samples().filter(|sample| is_meant(sample.state)).map(|sample| sample.period_ns).sum()
    };
    100.0 * time(&|other| other == state) as f64 / time(&|_| true) as f64
}

/// At the check with which `short` begins it has not run: nothing but its caller can have, and that has the time.
#[test]
fn time_before_a_function_begins_is_its_callers_where_only_that_ran() {
    let recording = profile_by_epochs(&straight_line(&[("short", 4)], &[("short", 400)]));
    let shares = Shares::of(innermost_functions(&recording));
    let (own, entering) = (shares.percent("main"), percent_in(&recording, State::Entering));
    assert!(own > 95.0 && entering < 1.0, "{own:.1} % in main, {entering:.1} % entering");
}

/// `long` has returned when `short` is entered: whose time it was the code does not tell, and the profile says so.
#[test]
fn time_that_another_function_may_have_spent_is_marked() {
    let recording = profile_by_epochs(&straight_line(&[("long", 400), ("short", 4)], &[("long", 0), ("short", 0)]));
    let shares = Shares::of(innermost_functions(&recording));
    let (shown, entering) = (shares.percent("short"), percent_in(&recording, State::Entering));
    assert!(entering > 90.0 && shown > 90.0, "{shown:.1} % in short, {entering:.1} % entering");
}

/// Straight code and then a call of the host, both long: ticks in the one are answered where the other begins, and those in that
/// where it returns. How long each took, the guest says itself.
#[test]
fn time_before_a_call_of_the_host_is_the_guests_and_time_in_it_is_the_hosts() {
    let step =
        "(local.set $x (i64.mul (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))) (i64.const 7)))";
    let now = "(drop (call $clock (i32.const 1) (i64.const 0) (i32.const 0)))";
    let add = |to: &str, from: &str| {
        format!(
            "{now} (local.set ${to} (i64.add (local.get ${to}) (i64.sub (i64.load (i32.const 0)) (local.get ${from}))))"
        )
    };
    // The steps are stored, or the compiler would have them after the calls.
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
            (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
            (memory (export "memory") 2)
            (func (export "run") (param $rounds i32) (result i64 i64)
                (local $x i64) (local $own i64) (local $host i64) (local $began i64)
                (loop $next
                    {now} (local.set $began (i64.load (i32.const 0)))
                    {steps} (i64.store (i32.const 8) (local.get $x))
                    {own} (local.set $began (i64.load (i32.const 0)))
                    (drop (call $random (i32.const 1024) (i32.const 4096)))
                    {host}
                    (local.set $rounds (i32.sub (local.get $rounds) (i32.const 1)))
                    (br_if $next (local.get $rounds)))
                (local.get $own) (local.get $host)))"#,
        steps = step.repeat(8000),
        own = add("own", "began"),
        host = add("host", "began"),
    );
    let place = Place::new();
    place.file("guest.wat", text);
    let mut told = Vec::new();
    let recording = profile_until(1000, |times| {
        let options = ["-q", "--sampler=epoch", "--rate=2000", "-o", "x.wlprof", "--invoke=run", "guest.wat"];
        let rounds = (20_000 * times).to_string();
        let ran = place.run(options.into_iter().chain([rounds.as_str()]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        told = ran.stdout.lines().map(|line| line.parse::<f64>().unwrap()).collect();
        place.recording("x.wlprof")
    });
    let own = 100.0 * told[0] / (told[0] + told[1]);
    let shares = Shares::of(innermost_functions(&recording));
    let [guest, host] = ["run", "wasi_snapshot_preview1.random_get"].map(|name| shares.percent(name));
    println!(
        "{guest:.1} % in the guest's code, {host:.1} % in the host's; by its own account {own:.1} % in the guest's"
    );
    assert!((20.0..80.0).contains(&own), "{own:.1} %: one is too short to tell");
    assert!((guest - own).abs() < 10.0 && guest + host > 90.0, "{guest:.1} % and {host:.1} % instead of {own:.1} %");
}

/// Ticks in calls of the host are answered when these return.
#[test]
fn the_epoch_sampler_sees_calls_of_the_host() {
    let recording = profile_until(300, |times| profile_fast("c-hosty.wasm", "epoch", &[&times.to_string()]));
    let clock = Shares::of(innermost_functions(&recording)).percent("wasi_snapshot_preview1.clock_time_get");
    assert!(clock > 10.0, "{clock:.1} % in calls that the guest spends half of its time in");
    for sample in recording.samples().filter(|sample| sample.state == State::Host) {
        let frames: Vec<_> = recording.frames_of(sample.stack).map(|frame| frame.origin).collect();
        let is_call = |frame: &Origin| matches!(frame, Origin::HostCall { .. });
        // But for what runs before the guest's first instruction.
        assert!(is_call(&frames[0]) || frames == [Origin::Host], "{frames:?}");
    }
}
