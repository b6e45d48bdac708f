//! `wlprof attach --push`: windows of a process that runs already add up to what is recorded of it, under its own name.

use super::receiver::{Message, Receiver, SCHEMES, rendered};
use super::share::{check_shares, samples_of};
use super::worker::Worker;
use super::{TIME, check_sums, pushed};
use crate::attach::{Host, SCRIPT};
use crate::guest::{Place, finish, fixture};
use crate::running::wait_until;
use std::process::Stdio;

/// What is attached with: fast, and whatever it costs.
const FAST: [&str; 3] = ["attach", "--rate=500", "--max-overhead=100"];

/// Windows of a process that runs on.
fn windows_of(scheme: &str, place: &Place, host: &Host) -> Vec<Message> {
    let pid = host.pid().to_string();
    pushed(scheme, place, |options, times| {
        let duration = format!("--duration={}", 4 * times);
        place.command([&FAST, options, &[&*duration, &*pid]].concat())
    })
}

/// Checks that messages are of the process with this number, whose environment names it.
fn check_names(messages: &[Message], pid: u32) {
    for message in messages {
        assert_eq!(message.attribute("service.name"), Some("shop"), "{message:?}");
        assert!(message.pid().is_none_or(|of| of == u64::from(pid)), "{message:?}");
        assert_eq!(message.attribute("service.instance.id"), messages[0].attribute("service.instance.id"));
    }
}

#[test]
fn windows_of_an_attached_process_add_up_to_its_recording() {
    let place = Place::new();
    let guest = fixture("c-shares.wasm").display().to_string();
    let mut command = place.command(["--sampler=off", "-q", &guest, "1000000"]);
    let host = Host::start(command.env("OTEL_SERVICE_NAME", "shop"));
    for scheme in SCHEMES {
        let messages = windows_of(scheme, &place, &host);
        check_names(&messages, host.pid());
        check_sums(&messages, &rendered(&place, "x.wlprof", &[]), TIME);
        let all: Vec<&Message> = messages.iter().collect();
        if samples_of(&all) > 400 {
            check_shares(&all);
        }
    }
}

#[test]
fn windows_of_an_attached_python_guest_add_up_to_its_recording() {
    let place = Place::new();
    place.file("script.py", SCRIPT);
    let guest = fixture("python-3.11.wasm").display().to_string();
    let options = ["--sampler=off", "-q", "--lang=python", "--dir=.", &guest, "script.py"];
    let host = Host::start(place.command(options).env("OTEL_SERVICE_NAME", "shop"));
    let compiled = host.cpu_ticks();
    wait_until("the script runs", || host.cpu_ticks() > compiled + 300);
    for scheme in SCHEMES {
        let messages = windows_of(scheme, &place, &host);
        check_names(&messages, host.pid());
        let whole = rendered(&place, "x.wlprof", &[]);
        check_sums(&messages, &whole, TIME);
        assert!(whole["functions"]["cpu/nanoseconds"]["work"].as_i64() > Some(0), "{whole}");
    }
}

#[test]
fn the_last_window_of_a_process_that_ends_is_taken() {
    for scheme in SCHEMES {
        let (place, receiver) = (Place::new(), Receiver::start(&[]));
        let mut worker = Worker::start(&place, &["--sampler=off"], &[("OTEL_SERVICE_NAME", "shop")]);
        // It is compiled.
        worker.works_until("a round", || true);
        let pid = worker.0.child.id();
        let (push, id) = (receiver.push(scheme), pid.to_string());
        let options = ["--push-interval=1s", "-o", "x.wlprof", &push, &id];
        let mut attach = place.command([&FAST[..], &options].concat());
        let attach = attach.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        worker.works_until("windows are taken", || receiver.taken() >= 2);
        worker.end();
        let ran = finish(attach, "attach");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let messages = receiver.end();
        check_names(&messages, pid);
        check_sums(&messages, &rendered(&place, "x.wlprof", &[]), TIME);
        assert!(ran.stderr.contains(&format!("pushed {} profiles to {scheme}://", messages.len())), "{ran:?}");
    }
}
