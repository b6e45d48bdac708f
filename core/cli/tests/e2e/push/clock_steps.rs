//! The system's clock is set while windows wait for their server: they are delivered, or counted as too old where servers would say so.

use super::receiver::{Receiver, file, rendered};
use super::worker::Worker;
use super::{TIME, check_sums};
use crate::guest::{Place, Ran, output};
use crate::tested::c_compiler;
use std::collections::BTreeSet;

/// Has a guest work under a clock that is so many seconds off, until windows of it have been refused, and then under the right one until
/// others were taken.
fn stepped(place: &Place, scheme: &str, seconds_off: i64) -> (Receiver, Ran) {
    let set = |seconds: i64| {
        // At once, for whoever reads it.
        place.file("next", seconds.to_ne_bytes());
        std::fs::rename(place.path("next"), place.path("clock")).unwrap();
    };
    set(seconds_off);
    let library = place.path("stepped_clock.so").display().to_string();
    output(c_compiler().args(["-shared", "-fPIC", "-O2", "-o", &*library]).arg(file("stepped_clock.c")));

    let receiver = Receiver::answering("always unavailable");
    let clock = place.path("clock").display().to_string();
    let variables = [("LD_PRELOAD", &*library), ("STEPPED_CLOCK", &*clock)];
    let mut worker = Worker::start(place, &[&receiver.push(scheme), "-o", "x.wlprof"], &variables);
    worker.works_until("it has been refused", || receiver.messages().len() > 2);
    set(0);
    receiver.answers("");
    worker.works_until("windows are taken", || receiver.taken() >= 3);
    let ran = worker.end();
    (receiver, ran)
}

#[test]
fn windows_are_taken_when_the_clock_is_set() {
    // Pyroscope takes what is an hour old at most, and ten minutes of the future.
    for (scheme, minutes_off) in [("pyroscope", -20), ("pyroscope", 5), ("otlp+grpc", -20), ("otlp+grpc", 5)] {
        let place = Place::new();
        let (receiver, ran) = stepped(&place, scheme, minutes_off * 60);
        let messages = receiver.end();
        let begins: Vec<u64> = messages.iter().map(|message| message.begin()).collect();
        assert!(begins[0].abs_diff(*begins.last().unwrap()) > 4 * 60 * 1_000_000_000, "it was not set: {begins:?}");
        assert!(!ran.stderr.contains("lost"), "{ran:?}");
        check_sums(&messages, &rendered(&place, "x.wlprof", &[]), TIME);
    }
}

#[test]
fn windows_of_a_clock_that_was_hours_behind_are_too_old_when_it_is_set() {
    let place = Place::new();
    let (receiver, ran) = stepped(&place, "otlp+grpc", -2 * 60 * 60);
    let messages = receiver.end();
    let begins = |is_taken: bool| -> BTreeSet<u64> {
        messages.iter().filter(|message| message.is_taken() == is_taken).map(|message| message.begin()).collect()
    };
    let (taken, refused) = (begins(true), begins(false));
    assert!(taken.is_disjoint(&refused), "{messages:?}");
    let hour = 60 * 60 * 1_000_000_000;
    assert!(refused.last().unwrap() + hour < *taken.first().unwrap(), "{messages:?}");
    let lost = ran.stderr.split("lost ").nth(1).unwrap_or_else(|| panic!("{ran:?}"));
    let count: usize = lost.split(' ').next().unwrap().parse().unwrap();
    assert!(count >= refused.len() && lost.contains("older than servers take"), "{ran:?}");
}
