//! Host calls are not disturbed, and what the profile says of them.

use crate::guest::{Place, fixture, sampled_stacks};
use crate::sampled::with_ever_more_work;
use crate::world;
use wlprof::recording::{Origin, Recording, State};

const POLL: &str = "wasi_snapshot_preview1.poll_oneoff";

fn name_of_frame(recording: &Recording, frame: u32) -> &str {
    let leaf = recording.frames[frame as usize].lines[0];
    &recording.functions[leaf.function as usize].name
}

fn record_sleep(options: &[&str]) -> Recording {
    let place = Place::new();
    place.file("sleep.wat", world::SLEEP);
    let ran = place.run([&["-q", "-o", "p.wlprof"], options, &["sleep.wat"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "a sleep failed or was too short");
    place.recording("p.wlprof")
}

#[test]
fn sleeps_last_their_time_and_succeed_at_the_highest_rates() {
    for clock in ["cpu", "wall"] {
        for rate in ["10000", "100000"] {
            let options = [&format!("--clock={clock}"), &format!("--rate={rate}"), "--max-overhead=100"];
            let place = Place::new();
            place.file("sleep.wat", world::SLEEP);
            let ran = place
                .run([&["-q", "-o", "p.wlprof"], &options.map(|option: &str| option)[..], &["sleep.wat"]].concat());
            assert_eq!(ran.code, Some(0), "{clock} {rate}");
            place.recording("p.wlprof");
        }
    }
}

#[test]
fn the_cpu_clock_leaves_out_sleep_and_counts_it() {
    let recording = record_sleep(&["--clock=cpu"]);
    assert!(recording.ticks.idle > 0, "{:?}", recording.ticks);
    assert!(recording.samples().all(|sample| sample.state != State::Blocked));
    assert!(recording.ticks.sampled < recording.ticks.idle, "{:?}", recording.ticks);
}

#[test]
fn the_wall_clock_shows_sleep_under_the_call_that_sleeps() {
    let recording = record_sleep(&["--clock=wall"]);
    let mut blocked = 0;
    for sample in recording.samples().filter(|sample| sample.state == State::Blocked) {
        let frames: Vec<_> = recording.frames_of(sample.stack).collect();
        if !frames.iter().any(|frame| matches!(frame.origin, Origin::Wasm { .. })) {
            continue; // Before the guest's first instruction.
        }
        blocked += 1;
        assert_eq!(recording.functions[frames[0].lines[0].function as usize].name, POLL);
        let callers: Vec<_> = frames[1..]
            .iter()
            .map(|frame| recording.functions[frame.lines[0].function as usize].name.as_str())
            .collect();
        assert_eq!(callers, ["sleep_once", "_start"]);
    }
    assert!(blocked > 0, "{:?}", recording.ticks);
}

#[test]
fn each_sleep_is_one_span_in_either_clock() {
    for clock in ["--clock=cpu", "--clock=wall"] {
        let recording = record_sleep(&[clock]);
        let spans: Vec<_> = recording.threads[0]
            .host_calls
            .iter()
            .filter(|span| name_of_frame(&recording, span.frame) == POLL && span.blocked)
            .collect();
        assert!((1..=10).contains(&spans.len()), "{clock}: {spans:?}");
        assert!(spans.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns), "{clock}: they overlap: {spans:?}");
        assert!(spans.iter().all(|span| span.start_ns < span.end_ns && span.end_ns <= recording.meta.duration_ns));
    }
}

#[test]
fn host_time_is_under_the_function_that_called() {
    let hosty = fixture("c-hosty.wasm");
    // What each function of the guest calls, of the calls long enough to be hit.
    let mut unseen = vec![
        ("ask_the_clock", "wasi_snapshot_preview1.clock_time_get"),
        ("draw_random", "wasi_snapshot_preview1.random_get"),
        ("copy_blocks", "wasm.memory.copy"),
        ("fill_blocks", "wasm.memory.fill"),
    ];
    with_ever_more_work("all host calls", |times| {
        let place = Place::new();
        let options = ["-q", "-o", "p.wlprof", "--rate=5000", "--max-overhead=100"];
        let ran = place.run([&options, &[hosty.to_str().unwrap(), &(2 * times).to_string()][..]].concat());
        assert_eq!(ran.code, Some(0));
        let recording = place.recording("p.wlprof");
        unseen.retain(|(caller, call)| {
            !sampled_stacks(&recording).any(|stack| stack.contains(caller) && stack[0] == *call)
        });
        println!("{times}: not seen: {unseen:?}");
        unseen.is_empty()
    });
}
