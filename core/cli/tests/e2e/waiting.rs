//! Waiting is told apart from work, and shown alone at the line that waits: `--clock=wall` and `--off-cpu`.

use crate::guest::{Place, Ran, fixture};
use crate::python::library;
use crate::running::start;
use crate::sampled::{Luck, marked_line, measure_again_if_off};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use wlprof::recording::{Recording, State, View};

/// The luck of measurements for waits.
const LUCK: Luck =
    Luck { why: "the thread that looks where the guest waits may have to wait for a processor itself", off: 0, of: 32 };

/// How far a share of the wall time may be from what the guest measured, in points, besides time that is told to have no sample:
/// on a busy machine, whoever looks where a thread waits may have to wait for a processor itself.
const POINTS: f64 = 3.0;

struct Subject {
    options: Vec<String>,
    guest: String,
    arguments: &'static [&'static str],
    source: &'static str,
    /// How a comment begins.
    comment: &'static str,
    /// What its functions are called before their names.
    prefix: &'static str,
}

fn python(release: &str) -> Subject {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python");
    Subject {
        options: vec![format!("--dir={}::/scripts", testdata.display()), library(release)],
        guest: format!("python-{release}.wasm"),
        arguments: &["/scripts/waits.py"],
        source: "python/waits.py",
        comment: "#",
        prefix: "",
    }
}

fn compiled(guest: &str, source: &'static str, prefix: &'static str) -> Subject {
    Subject { options: Vec::new(), guest: guest.to_owned(), arguments: &[], source, comment: "//", prefix }
}

/// Runs it and lets it wait for input that does not come, for a while.
fn run(place: &Place, subject: &Subject, options: &[&str]) -> Ran {
    let mut command = place.command(options);
    command.args(&subject.options).arg(fixture(&subject.guest)).args(subject.arguments);
    let started = start(&command);
    // How long it is does not matter: the guest measures it.
    std::thread::sleep(Duration::from_millis(800));
    let ran = started.end_of_input();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

/// What the guest says that its parts took, in nanoseconds.
fn parts(ran: &Ran) -> BTreeMap<&str, f64> {
    ran.stdout
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(part, ns)| Some((part, ns.parse().ok()?)))
        .collect()
}

/// Nanoseconds of the samples that `holds` says are meant.
fn time_of(recording: &Recording, holds: impl Fn(State, &[&str]) -> bool) -> f64 {
    let samples = recording.samples().filter(|sample| {
        let lines = recording.lines_of(sample.stack).map(|line| &*recording.functions[line.function as usize].name);
        holds(sample.state, &lines.collect::<Vec<_>>())
    });
    samples.map(|sample| sample.period_ns as f64).sum()
}

fn waits_where_it_says(subject: &Subject) {
    // Whoever looks where it waits may have to wait for a processor.
    measure_again_if_off(LUCK, || measure_waits(subject));
}

fn measure_waits(subject: &Subject) -> Result<(), String> {
    let place = Place::new();
    let ran = run(&place, subject, &["--off-cpu", "-o", "x.wlprof", "-o", "x.folded"]);
    let measured = parts(&ran);
    let recording = place.recording("x.wlprof").view(View::Guest);
    let all = recording.meta.duration_ns as f64;
    let points = POINTS + 100.0 * recording.meta.unsampled_ns as f64 / all;
    let named = |part: &str| format!("{}{part}", subject.prefix);
    let check = |part: &str, found: f64, truth: f64| {
        let about = format!("{} {part}: {found:.1} %, by its own clock {truth:.1} %", subject.guest);
        println!("{about}");
        if (found - truth).abs() < points { Ok(()) } else { Err(format!("{about}\n{}", ran.stderr)) }
    };
    for part in ["take", "compute", "nap"] {
        let is_meant = |state: State, stack: &[&str]| {
            stack.contains(&&*named(part)) && (part == "compute" || state == State::Blocked)
        };
        let (found, truth) = (100.0 * time_of(&recording, is_meant) / all, 100.0 * measured[part] / all);
        check(part, found, truth)?;
    }
    let waited = 100.0 * time_of(&recording, |state, _| state == State::Blocked) / all;
    let truth = 100.0 * (measured["take"] + measured["nap"]) / all;
    check("waits", waited, truth)?;

    let row = |part: &str, mark: &str, call: &str| {
        let line = marked_line(subject.source, &format!("{} {mark}", subject.comment));
        let file = subject.source.rsplit('/').next().unwrap();
        let (name, place, call) = (named(part), format!("{file}:{line}"), format!("in wasi_snapshot_preview1.{call}"));
        let is_row =
            |line: &&str| line.contains(&format!("  {name}  ")) && line.contains(&place) && line.ends_with(&call);
        assert!(ran.stderr.lines().any(|line| is_row(&line)), "no {name} at {place} {call}: {}", ran.stderr);
    };
    row("take", "reads", "fd_read");
    row("nap", "sleeps", "poll_oneoff");
    assert!(ran.stderr.contains("shown is ") && ran.stderr.contains(" of that: waiting;"), "{}", ran.stderr);
    // Other formats have the same samples, and those alone.
    let folded = std::fs::read_to_string(place.path("x.folded")).unwrap();
    let micros: u64 = folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    let blocked = recording.samples().filter(|sample| sample.state == State::Blocked);
    let blocked = blocked.map(|sample| sample.period_ns).sum::<u64>() / 1000;
    // Each line is rounded up.
    assert!((blocked..=blocked + folded.lines().count() as u64).contains(&micros), "{micros} of {blocked} µs");
    assert!(!folded.contains(&named("compute")), "{folded}");
    let rendered = place.run(["render", "--off-cpu", "x.wlprof"]);
    assert_eq!(rendered.code, Some(0), "{rendered:?}");
    assert!(rendered.stdout.lines().all(|line| ran.stderr.contains(line)), "{}\n{}", rendered.stdout, ran.stderr);
    Ok(())
}

#[test]
fn c_guests_wait_where_they_say() {
    waits_where_it_says(&compiled("c-waits.wasm", "c/waits.c", ""));
}

/// A goroutine that sleeps is on no thread: Go's scheduler waits for it, on a stack of its own.
#[test]
fn go_guests_wait_where_they_say() {
    waits_where_it_says(&compiled("go-waits.wasm", "go/waits/waits.go", "main."));
}

/// Of several goroutines that sleep it waits for the one that wakes first. Each release says elsewhere when that is.
#[test]
fn go_waits_for_who_wakes_first() {
    [21, 27].into_iter().for_each(check_naps);
}

#[test]
fn go_waits_for_who_wakes_first_in_every_other_release() {
    (22..=26).for_each(check_naps);
}

fn check_naps(minor: u32) {
    // Whoever looks where it waits may have to wait for a processor.
    measure_again_if_off(LUCK, || {
        let place = Place::new();
        let guest = fixture(&format!("go-naps-1.{minor}.wasm"));
        let ran = place.run(["--off-cpu", "-o", "x.wlprof", guest.to_str().unwrap()]);
        assert_eq!(ran.code, Some(0), "1.{minor}: {ran:?}");
        let measured = parts(&ran);
        let recording = place.recording("x.wlprof").view(View::Guest);
        let all = recording.meta.duration_ns as f64;
        let points = POINTS + 100.0 * recording.meta.unsampled_ns as f64 / all;
        for part in ["short", "long"] {
            let is_meant =
                |state: State, stack: &[&str]| state == State::Blocked && stack.contains(&&*format!("main.{part}"));
            let (found, truth) = (100.0 * time_of(&recording, is_meant) / all, 100.0 * measured[part] / all);
            let about = format!("1.{minor} {part}: {found:.1} %, by its own clock {truth:.1} %");
            println!("{about}");
            if (found - truth).abs() >= points {
                return Err(format!("{about}\n{}", ran.stderr));
            }
        }
        Ok(())
    });
}

#[test]
fn python_guests_wait_where_they_say() {
    waits_where_it_says(&python("3.11"));
}

#[test]
fn python_guests_wait_where_they_say_in_every_other_release() {
    waits_where_it_says(&python("3.13"));
}

#[test]
fn waiting_is_not_to_be_had_of_cpu_time() {
    let place = Place::new();
    let ran = place.run(["-q", "-o", "x.wlprof", fixture("c-traps.wasm").to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (arguments, part) in [
        (&["render", "--off-cpu", "x.wlprof"][..], "run the guest with --clock=wall"),
        (&["--off-cpu", "--clock=cpu", "x.wasm"], "leave out --clock=cpu"),
        (&["--off-cpu", "--sampler=epoch", "x.wasm"], "signal sampler"),
    ] {
        let refused = place.run(arguments);
        assert!(refused.code == Some(125) && refused.stderr.contains(part), "{arguments:?}: {refused:?}");
    }
}
