//! Answers that refuse or put off: what is sent again is the same, and each window arrives once.

use super::receiver::{Message, Receiver, SCHEMES, rendered, sums, taken_profiles};
use super::worker::Worker;
use super::{TIME, check_sums, outcome};
use crate::guest::{Place, Ran, fixture};
use std::collections::BTreeSet;

/// Runs a guest until the receiver, which first answers by `script`, has taken some windows. Returns all messages, and the run.
fn answered_by(script: &str, scheme: &str, place: &Place) -> (Vec<Message>, Ran) {
    let receiver = Receiver::answering(script);
    let mut worker = Worker::start(place, &[&receiver.push(scheme), "-o", "x.wlprof"], &[]);
    worker.works_until("windows are taken", || receiver.taken() >= 3);
    let ran = worker.end();
    (receiver.end(), ran)
}

/// The places of the messages with the same contents as the first one.
fn attempts(messages: &[Message]) -> Vec<usize> {
    let first = messages[0].profiles();
    (0..messages.len()).filter(|place| messages[*place].profiles() == first).collect()
}

/// Checks that no window was taken twice, and that all that was taken is the whole run.
fn check_all_is_taken_once(messages: &[Message], place: &Place) {
    let mut taken = BTreeSet::new();
    for message in messages.iter().filter(|message| message.is_taken()) {
        assert!(taken.insert(message.text()), "taken twice: {message:?}");
    }
    let whole = rendered(place, "x.wlprof", &[]);
    check_sums(messages, &whole, TIME);
}

#[test]
fn windows_that_a_server_cannot_take_now_are_sent_again_and_taken_once() {
    for scheme in SCHEMES {
        let place = Place::new();
        let (messages, _) = answered_by("status 503\nunavailable", scheme, &place);
        let attempts = attempts(&messages);
        assert_eq!(attempts.len(), 3, "{scheme}: {messages:?}");
        let id = |message: usize| &messages[message].profiles()[0]["id"];
        assert!(attempts.iter().all(|attempt| id(*attempt) == id(0)));
        assert!(!messages[attempts[1]].is_taken() && messages[attempts[2]].is_taken(), "{scheme}: {messages:?}");
        check_all_is_taken_once(&messages, &place);
    }
}

#[test]
fn servers_are_left_in_peace_for_as_long_as_they_say() {
    const SECONDS: f64 = 3.0;
    for scheme in SCHEMES {
        let place = Place::new();
        let (messages, _) = answered_by("resource_exhausted retry-after 3", scheme, &place);
        assert!(messages[0].answer().ends_with("retry-after 3"), "{messages:?}");
        // A busy machine makes it longer, never shorter. The receiver looks at its clock before it answers.
        let waited = messages[1].seconds() - messages[0].seconds();
        println!("{scheme}: {waited} s");
        assert!(waited >= SECONDS, "{scheme}: {waited} s");
        assert_eq!(attempts(&messages).len(), 2, "{scheme}: {messages:?}");
        check_all_is_taken_once(&messages, &place);
    }
}

#[test]
fn windows_that_are_refused_for_good_are_sent_once_and_counted() {
    for scheme in SCHEMES {
        let place = Place::new();
        let (messages, ran) = answered_by("invalid_argument", scheme, &place);
        assert_eq!(attempts(&messages), [0], "{scheme}: {messages:?}");
        assert!(messages[1..].iter().all(Message::is_taken), "{scheme}: {messages:?}");
        assert!(ran.stderr.contains("lost 1 profile: refused by the server"), "{scheme}: {}", ran.stderr);
    }
}

#[test]
fn windows_that_are_too_large_come_in_parts_that_add_up() {
    for scheme in SCHEMES {
        let place = Place::new();
        let (messages, _) = answered_by("too large\ntoo large", scheme, &place);
        assert_eq!(attempts(&messages), [0], "{scheme}: {messages:?}");
        assert!(messages[2..].iter().all(Message::is_taken), "{scheme}: {messages:?}");
        check_all_is_taken_once(&messages, &place);
    }
}

#[test]
fn memory_that_is_too_large_comes_in_parts_that_add_up() {
    let place = Place::new();
    // The whole window, its heaps, and the first half of them.
    let receiver = Receiver::answering("too large\nok\ntoo large\ntoo large");
    let guest = fixture("c-heap.wasm").display().to_string();
    let push = receiver.push("pyroscope");
    let fast = ["--rate=1000", "--max-overhead=100", "--memory", "--memory-rate=1"];
    let ran = outcome(&mut place.command([&fast[..], &["-o", "x.wlprof", &push, &guest, "500000"]].concat()));
    assert_eq!((ran.code, ran.stderr.contains("lost")), (Some(0), false), "{ran:?}");
    let messages = receiver.end();
    assert_eq!(messages.iter().filter(|message| !message.is_taken()).count(), 3, "{messages:?}");
    let whole = rendered(&place, "x.wlprof", &["--show=allocated"]);
    let memory = taken_profiles(&messages).filter(|profile| profile["labels"]["__name__"] == "memory");
    let memory: Vec<_> = memory.collect();
    for sample_type in ["alloc_objects/count", "alloc_space/bytes"] {
        assert_eq!(sums(memory.iter().copied(), sample_type, "functions"), sums([&whole], sample_type, "functions"));
    }
    check_sums(&messages, &rendered(&place, "x.wlprof", &["--show=time"]), TIME);
}

#[test]
fn windows_of_before_a_server_was_up_are_taken_when_it_is() {
    let place = Place::new();
    let receiver = Receiver::answering("always unavailable");
    let mut worker = Worker::start(&place, &[&receiver.push("otlp+grpc"), "-o", "x.wlprof"], &[]);
    worker.works_until("it has been refused", || receiver.messages().len() > 2);
    receiver.answers("");
    worker.works_until("it is taken", || receiver.taken() >= 3);
    worker.end();
    check_all_is_taken_once(&receiver.end(), &place);
}
