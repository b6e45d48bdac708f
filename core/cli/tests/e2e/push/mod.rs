//! `--push`: what servers are sent is right by their rules and adds up to the run. A server that fails costs the guest nothing.
//!
//! The judges are those of `testdata/push`: none of their code is wlprof's.

mod agent;
mod attached;
mod clock_steps;
mod credentials;
mod delivery;
mod embedded;
mod full_queue;
mod labels;
mod large;
mod pulled;
mod queue;
mod receiver;
mod share;
mod spans;
mod stored;
mod tls;
mod worker;

use crate::guest::{Place, Ran, fixture, run};
use crate::python;
use crate::sampled::{Luck, measure_again_if_off, with_ever_more_work};
use receiver::{Message, Receiver, SCHEMES, rendered, sums, taken_profiles};
use serde_json::Value;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a guest with a receiver, in windows of a second, until there are some of them. `command` is given options and what to multiply the
/// guest's work by.
fn pushed(scheme: &str, place: &Place, command: impl Fn(&[&str], u64) -> Command) -> Vec<Message> {
    let mut messages = Vec::new();
    with_ever_more_work("windows", |times| {
        let receiver = Receiver::start(&[]);
        let (push, recording) = (receiver.push(scheme), place.path("x.wlprof").display().to_string());
        let options = ["--push-interval=1s", &*push, "-o", &*recording];
        let ran = outcome(&mut command(&options, times));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        messages = receiver.end();
        assert!(messages.iter().all(Message::is_taken), "{messages:?}");
        println!("{scheme}: {} messages", messages.len());
        messages.len() >= 3
    });
    messages
}

/// Runs `command` to its end with empty input.
fn outcome(command: &mut Command) -> Ran {
    run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Checks that what was taken adds up to the recording of the run, function by function. Samples are the same, so nothing may be off.
fn check_sums(messages: &[Message], whole: &Value, sample_types: &[&str]) {
    let mut compared = 0;
    for sample_type in sample_types {
        let of_type = |profile: &&Value| profile["total"].get(sample_type).is_some();
        let profiles: Vec<&Value> = taken_profiles(messages).filter(of_type).collect();
        if profiles.is_empty() {
            continue;
        }
        compared += 1;
        for by in ["functions", "leaves"] {
            let (found, expected) = (sums(profiles.iter().copied(), sample_type, by), sums([whole], sample_type, by));
            assert!(!expected.is_empty(), "{sample_type}: {whole}");
            if *sample_type == "samples/count" {
                let is_within = |(function, count): (&String, &i64)| expected.get(function) >= Some(count);
                assert!(found.iter().all(is_within), "{sample_type} by {by}: {found:?}, {expected:?}");
            } else {
                assert_eq!(found, expected, "{sample_type} by {by}");
            }
        }
        if *sample_type == "samples/count" {
            let found: i64 = profiles.iter().map(|profile| profile["total"][sample_type].as_i64().unwrap()).sum();
            assert_eq!(whole["samples_in_windows"], found, "{sample_type}");
        }
    }
    // OTLP has one type in a profile, so a message may leave one out.
    assert!(compared > 0, "none of {sample_types:?}: {messages:?}");
}

const TIME: &[&str] = &["cpu/nanoseconds", "samples/count"];

#[test]
fn windows_of_a_c_guest_add_up_to_its_run() {
    for scheme in SCHEMES {
        let place = Place::new();
        let messages = pushed(scheme, &place, |options, times| {
            let (guest, times) = (fixture("c-shares.wasm").display().to_string(), times.to_string());
            place.command([options, &[&*guest, &*times]].concat())
        });
        let whole = rendered(&place, "x.wlprof", &[]);
        check_sums(&messages, &whole, TIME);
        assert!(sums([&whole], "cpu/nanoseconds", "leaves").contains_key("heavy"), "{whole}");
    }
}

#[test]
fn windows_of_a_python_guest_add_up_to_its_run() {
    for scheme in SCHEMES {
        let place = Place::new();
        let messages = pushed(scheme, &place, |options, times| {
            python::command(options, "3.11", &["shares.py", &(500 * times).to_string()])
        });
        let whole = rendered(&place, "x.wlprof", &[]);
        check_sums(&messages, &whole, TIME);
        assert!(sums([&whole], "cpu/nanoseconds", "functions").contains_key("work"), "{whole}");
    }
}

#[test]
fn windows_of_wall_time_are_called_so() {
    let place = Place::new();
    let messages = pushed("pyroscope", &place, |options, times| {
        let (guest, times) = (fixture("c-shares.wasm").display().to_string(), times.to_string());
        place.command([&["--clock=wall"], options, &[&*guest, &*times]].concat())
    });
    assert!(taken_profiles(&messages).all(|profile| profile["labels"]["__name__"] == "wall"), "{messages:?}");
    check_sums(&messages, &rendered(&place, "x.wlprof", &[]), &["wall/nanoseconds", "samples/count"]);
}

#[test]
fn allocations_of_windows_add_up_to_the_run() {
    for scheme in ["pyroscope", "parca"] {
        let place = Place::new();
        let messages = pushed(scheme, &place, |options, times| {
            let (guest, rounds) = (fixture("c-heap.wasm").display().to_string(), (50_000 * times).to_string());
            place.command([&["--memory", "--memory-rate=1"], options, &[&*guest, &*rounds]].concat())
        });
        let whole = rendered(&place, "x.wlprof", &["--show=allocated"]);
        let is_memory = |profile: &&Value| profile["labels"]["__name__"] == "memory";
        let memory: Vec<&Value> = taken_profiles(&messages).filter(is_memory).collect();
        let last = *memory.last().expect("memory is pushed");
        for sample_type in ["alloc_objects/count", "alloc_space/bytes"] {
            let found = sums(memory.iter().copied(), sample_type, "functions");
            assert_eq!(found, sums([&whole], sample_type, "functions"), "{sample_type}");
            assert!(!found.is_empty());
        }
        // What is held is as it is at the end of the window, so that of the last is the run's.
        for sample_type in ["inuse_objects/count", "inuse_space/bytes"] {
            let found = sums([last], sample_type, "functions");
            assert_eq!(found, sums([&whole], sample_type, "functions"), "{sample_type}");
        }
    }
}

/// Works for a second or more, prints a line, and ends with the code 7.
const ENDS_WITH_7: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 32) "\30\00\00\00\05\00\00\00")
    (data (i32.const 48) "done\n")
    (func $count (param $times i64)
        (loop $again (br_if $again (i64.ne (i64.const 0) (local.tee $times (i64.sub (local.get $times) (i64.const 1)))))))
    (func (export "_start")
        (call $count (i64.const 3000000000))
        (drop (call $write (i32.const 1) (i32.const 32) (i32.const 1) (i32.const 24)))
        (call $exit (i32.const 7))))"#;

/// What the last windows may take after the guest's end.
const LAST: Duration = Duration::from_secs(2);

/// What ending a run may take besides, where other programs have the processors.
const RESERVE: Duration = Duration::from_secs(3);

#[test]
fn servers_that_fail_change_nothing_of_a_run() {
    let place = Place::new();
    place.file("seven.wat", ENDS_WITH_7);
    let timed = |options: &[&str]| {
        let begin = Instant::now();
        let ran = outcome(&mut place.command([&["-o", "x.wlprof"], options, &["seven.wat"]].concat()));
        assert_eq!((ran.code, &*ran.stdout), (Some(7), "done\n"), "{ran:?}");
        (begin.elapsed(), ran)
    };
    let luck = Luck { why: "other programs take the processors from one run and not from the other", off: 0, of: 24 };
    // One by HTTP/1.1 and one by HTTP/2.
    for scheme in ["pyroscope", "otlp+grpc"] {
        for failure in ["hang", "slow", "status 503", "status 401", "reset", "close", "not there"] {
            measure_again_if_off(luck, || {
                let receiver = (failure != "not there").then(|| Receiver::answering(&format!("always {failure}")));
                let push = match &receiver {
                    Some(receiver) => receiver.push(scheme),
                    None => format!("--push={scheme}://{}", closed_port()),
                };
                let (without, _) = timed(&[]);
                let (with, ran) = timed(&[&*push, "--push-interval=1s"]);
                assert!(ran.stderr.contains("push") || ran.stderr.contains("window"), "{failure}: {}", ran.stderr);
                let messages = receiver.map_or_else(Vec::new, Receiver::end);
                assert!(messages.iter().all(|message| !message.is_taken()), "{messages:?}");
                let said = format!("{scheme}, {failure}: {with:?}, without {without:?}");
                println!("{said}");
                // The run itself may take twice as long on a busy machine.
                if with > 2 * without + LAST + RESERVE { Err(said) } else { Ok(()) }
            });
        }
    }
}

/// An address that nothing listens at.
fn closed_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
