//! Guests that sleep, tick and work in bursts: their shares are those of the work that they did.

use crate::guest::{Place, output};
use crate::sampled::{Shares, profile_command, with_ever_more_work};
use crate::tested::{c_compiler, samplers, wlprof};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use wasmtime::{Config, Engine, Instance, Store};
use wlprof::recording::Recording;
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof::{Attach, Profiler};

/// How far a share may be off by itself, in points.
const POINTS: f64 = 1.0;

/// The most that the host may have of a guest's time that sleeps once for each millisecond of work, in percent: a sleep takes some 30 µs of CPU
/// time, and more where other work has emptied the processor's caches.
const MOST_OF_SLEEP: f64 = 10.0;

/// The samples of `recording`, each with what it stands for and which of `parts` it is in, or else its innermost function. What the parts
/// do is one function's: equal code elsewhere took twice the time on one processor.
fn by_part<'r>(recording: &'r Recording, parts: &'static [&'static str]) -> impl Iterator<Item = (&'r str, u64)> {
    recording.samples().filter_map(move |sample| {
        let mut names = recording.lines_of(sample.stack).map(|line| &*recording.functions[line.function as usize].name);
        let innermost = names.next()?;
        let part = std::iter::once(innermost).chain(names).find(|name| parts.contains(name));
        Some((part.unwrap_or(innermost), sample.period_ns))
    })
}

/// A guest that sleeps so long, works so many rounds in `after` and then as many in `before`, and so on, so many times. The sleep's own work
/// is the kernel's.
fn guest_in_bursts(bursts: u32, sleep: Duration, rounds: u32) -> String {
    let sleep_ns = sleep.as_nanos();
    format!(
        r#"
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $sleep (param $ns i64)
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (local.get $ns))
    (i64.store (i32.const 32) (i64.const 1))
    (if (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)) (then unreachable)))
  (func $work (param $rounds i32)
    (loop $again
      (i32.store (i32.const 256) (i32.mul (i32.add (i32.load (i32.const 256)) (i32.const 7)) (i32.const 1664525)))
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1))))))
  (func $after (param $rounds i32) (call $work (local.get $rounds)))
  (func $before (param $rounds i32) (call $work (local.get $rounds)))
  (func (export "_start") (local $bursts i32)
    (local.set $bursts (i32.const {bursts}))
    (loop $again
      (call $sleep (i64.const {sleep_ns}))
      (call $after (i32.const {rounds}))
      (call $before (i32.const {rounds}))
      (br_if $again (local.tee $bursts (i32.sub (local.get $bursts) (i32.const 1)))))))
"#
    )
}

/// Shares of a run of bursts of 1 ms: the two halves are equal, and the sleep has what its system call takes.
fn bursts_are_even(what: &str, command: Command) -> Recording {
    let recording = profile_command(command, what);
    let shares = Shares::of(by_part(&recording, &["after", "before"]));
    let [after, before] = ["after", "before"].map(|name| shares.percent(name));
    let others = 100.0 - after - before;
    let chance = shares.chance(50.0);
    println!(
        "{what}: after {after:.1}, before {before:.1}, others {others:.1}, chance {chance:.1}: {:?}",
        recording.ticks
    );
    // Of what both have, each has a half.
    let half = (after + before) / 2.0;
    assert!((after - half).abs() <= chance + POINTS, "{what}: after {after:.2} %, before {before:.2} % ± {chance:.2}");
    assert!(others <= MOST_OF_SLEEP + chance, "{what}: the sleep has {others:.2} %");
    // What samples stand for is the CPU time without what sampling took: not more, and not much less, as where a machine's host takes the
    // processor away.
    let given_ns: u64 = recording.samples().map(|sample| sample.period_ns).sum();
    let used_ns = recording.meta.cpu_ns - recording.meta.sampling_ns;
    let part = given_ns as f64 / used_ns as f64;
    // A few periods, of which there are few at a low rate. A ticker needs a processor itself, and misses some.
    let few = 6.0 / recording.ticks.sampled as f64;
    println!("{what}: samples for {given_ns} ns of {used_ns} ns");
    let least = if recording.meta.sampler == "signal" { 0.9 - few } else { 0.6 };
    assert!((least..=1.0 + few.max(0.01)).contains(&part), "{what}: samples for {given_ns} ns of {used_ns} ns");
    recording
}

fn bursts(place: &Place, options: &[&str]) -> Command {
    place.file("bursts.wat", guest_in_bursts(1000, Duration::from_millis(2), 200_000));
    let mut command = wlprof();
    command.args(options).arg(place.path("bursts.wat"));
    command
}

#[test]
fn bursts_between_sleeps_have_their_shares_at_any_rate() {
    let place = Place::new();
    for options in [&[][..], &["--rate=100"], &["--rate=250"], &["--rate=300"], &["--rate=1000"]] {
        bursts_are_even(&format!("{options:?}"), bursts(&place, options));
    }
}

/// How many rounds take 25 µs, or twice as long as an interrupt takes on this machine: what runs for less time no signal may find.
fn rounds_of_a_moment(place: &Place) -> u32 {
    const ROUNDS: u32 = 20_000_000;
    place.file("work.wat", guest_in_bursts(1, Duration::from_nanos(1), ROUNDS));
    // Where no signal came in time, it is not known what one takes.
    let rounds = (0..5).map(|_| {
        let mut command = wlprof();
        command.arg(place.path("work.wat"));
        let meta = profile_command(command, "work").meta;
        let round_ns = meta.cpu_ns as f64 / f64::from(2 * ROUNDS);
        let moment_ns = 25_000.max(2 * meta.pause.tick_ns);
        println!("a round takes {round_ns:.2} ns, an interrupt {} ns", meta.pause.tick_ns);
        (moment_ns as f64 / round_ns) as u32
    });
    rounds.max().unwrap()
}

/// Bursts that take little longer than a signal may be late.
#[test]
fn bursts_of_microseconds_have_their_shares() {
    let place = Place::new();
    let rounds = rounds_of_a_moment(&place);
    for options in [&[][..], &["--rate=1000"]] {
        // Interrupts may take longer than they did.
        with_ever_more_work("bursts", |times| {
            place.file("wakes.wat", guest_in_bursts(4000, Duration::from_micros(900), rounds * times as u32));
            let mut command = wlprof();
            command.args(options).arg(place.path("wakes.wat"));
            let recording = profile_command(command, "wakes");
            let in_bursts =
                by_part(&recording, &["after", "before"]).filter(|(name, _)| ["after", "before"].contains(name));
            let in_bursts: Vec<_> = in_bursts.collect();
            if in_bursts.is_empty() {
                return false;
            }
            let shares = Shares::of(in_bursts);
            let (after, chance) = (shares.percent("after"), shares.chance(50.0));
            println!("{options:?}: after {after:.1} ± {chance:.1} % of both, {:?}", recording.ticks);
            assert!((after - 50.0).abs() <= chance + POINTS, "{options:?}: after {after:.2} ± {chance:.2} % of both");
            true
        });
    }
}

#[test]
fn the_epoch_sampler_gives_waits_no_work() {
    let place = Place::new();
    bursts_are_even("epoch", bursts(&place, &["--sampler=epoch", "--rate=1000"]));
}

#[test]
fn a_guest_in_step_with_the_clock_is_seen_evenly() {
    for sampler in samplers() {
        for (period_us, rate) in [("1000", "1000"), ("4000", "250"), ("10000", "100"), ("4000", "1000")] {
            let place = Place::new();
            let options = ["-q", "-o", "p.wlprof", "--sampler", sampler, "--rate", rate];
            let guest = crate::sampled::fixture("c-in-step.wasm");
            let ran = place.run([&options[..], &[guest.to_str().unwrap(), period_us, "2500"]].concat());
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let truth = 100.0 * ran.stdout.trim().parse::<f64>().unwrap();
            let recording = place.recording("p.wlprof");
            // The loops ask the clock themselves: whose call it was, its caller says.
            let shares = Shares::of(
                by_part(&recording, &["first", "second"]).filter(|(name, _)| ["first", "second"].contains(name)),
            );
            let (found, chance) = (shares.percent("first"), shares.chance(truth));
            let said =
                format!("{sampler}, {period_us} µs at {rate} Hz: first {found:.2} %, truth {truth:.2} ± {chance:.2} %");
            println!("{said}");
            assert!((found - truth).abs() <= chance + POINTS, "{said}");
        }
    }
}

/// A request: a quarter of its work is in `parse`, the rest in `answer`.
const REQUEST: &str = r#"
(module
  (memory 1)
  (func $work (param $rounds i32)
    (loop $again
      (i32.store (i32.const 256) (i32.mul (i32.add (i32.load (i32.const 256)) (i32.const 7)) (i32.const 1664525)))
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1))))))
  (func $parse (param $rounds i32) (call $work (local.get $rounds)))
  (func $answer (param $rounds i32) (call $work (local.get $rounds)))
  (func (export "run") (param $rounds i32)
    (call $parse (local.get $rounds))
    (call $answer (i32.mul (local.get $rounds) (i32.const 3)))))
"#;

/// Requests that take a part of a period, some periods, or about one: each in a store of its own, one after another and after pauses.
#[test]
fn requests_of_about_a_period_have_their_shares() {
    const AT_LEAST: Duration = Duration::from_secs(2);
    for kind in [SamplerKind::Signal, SamplerKind::Epoch] {
        for (rounds, pause) in [
            (10_000, Duration::ZERO),
            (40_000, Duration::ZERO),
            (150_000, Duration::ZERO),
            (40_000, Duration::from_millis(1)),
        ] {
            let mut config = Config::new();
            config.epoch_interruption(kind == SamplerKind::Epoch);
            wlprof::configure(&mut config);
            let engine = Engine::new(&config).unwrap();
            let options = SamplerOptions { kind, keep: Some(10 * AT_LEAST), ..SamplerOptions::default() };
            let profiler = Profiler::builder().sampler_options(options).start(&engine).unwrap();
            let module = profiler.load("request.wasm", REQUEST.as_bytes()).unwrap();
            let (began, mut requests) = (Instant::now(), 0);
            while began.elapsed() < AT_LEAST {
                let mut store = Store::new(&engine, ());
                let attached = profiler.attach(&mut store, Attach::named("request")).unwrap();
                let instance = Instance::new(&mut store, &module, &[]).unwrap();
                attached.instantiated(&mut store, &instance).unwrap();
                instance.get_typed_func::<i32, ()>(&mut store, "run").unwrap().call(&mut store, rounds).unwrap();
                requests += 1;
                std::thread::sleep(pause);
            }
            profiler.pause();
            let snapshot = profiler.snapshot().unwrap();
            let recording = snapshot.recording();
            let in_guest =
                by_part(recording, &["parse", "answer"]).filter(|(name, _)| ["parse", "answer"].contains(name));
            let shares = Shares::of(in_guest);
            let (found, chance) = (shares.percent("parse"), shares.chance(25.0));
            let said = format!(
                "{kind:?}, {requests} requests of {rounds} rounds, {pause:?} apart: parse {found:.2} ± {chance:.2} %, {:?}",
                recording.ticks
            );
            println!("{said}");
            assert!((found - 25.0).abs() <= chance + POINTS, "{said}");
        }
    }
}

/// Where events are refused, as in containers, another thread asks for samples.
#[test]
fn without_events_shares_are_right_as_well() {
    let place = Place::new();
    let without_events = compiled_without_events(&place);
    for options in [&["--rate=1000"][..], &["--rate=1000", "--clock=wall"]] {
        let path = place.path("p.wlprof");
        let profiled = bursts(&place, &[options, &["-o", path.to_str().unwrap()]].concat());
        let ran = output(Command::new(&without_events).arg(profiled.get_program()).args(profiled.get_args()));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let recording = place.recording("p.wlprof");
        assert_eq!(recording.meta.sampler, "signal, asked for by a ticker");
        let shares = Shares::of(by_part(&recording, &["after", "before"]));
        let [after, before] = ["after", "before"].map(|name| shares.percent(name));
        let chance = shares.chance(50.0);
        println!("{options:?}: after {after:.1}, before {before:.1}, chance {chance:.1}: {:?}", recording.ticks);
        assert!((after - before).abs() / 2.0 <= chance + POINTS, "{options:?}: after {after}, before {before}");
    }
}

/// Makes a program that runs others with the kernel refusing them `perf_event_open`.
fn compiled_without_events(place: &Place) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/native/without_events.c");
    let program = place.path("without_events");
    let status = c_compiler().arg("-o").arg(&program).arg(source).status().unwrap();
    assert!(status.success(), "the C compiler failed");
    program
}
