//! Labels of samples: none by default, since servers make a series of each set of texts, and those that are asked for.

use super::receiver::{Receiver, rendered};
use super::{check_sums, pushed};
use crate::guest::{Place, fixture};
use crate::running::wait_until;
use crate::serve::{Server, ask};
use serde_json::Value;
use std::collections::BTreeSet;

/// Windows of a Go guest whose samples have the labels `goroutine`, a number, and `stage`, a text.
fn windows_of_goroutines(scheme: &str, labels: &[&str]) -> Vec<super::Message> {
    let place = Place::new();
    let messages = pushed(scheme, &place, |options, times| {
        let (guest, times) = (fixture("go-goroutines-1.27.wasm").display().to_string(), times.to_string());
        place.command([options, labels, &[&*guest, &*times]].concat())
    });
    check_sums(&messages, &rendered(&place, "x.wlprof", &[]), super::TIME);
    messages
}

#[test]
fn samples_have_no_labels_by_default() {
    for scheme in super::SCHEMES {
        for message in windows_of_goroutines(scheme, &[]) {
            assert!(message.label_sets().iter().all(|set| set.is_empty()), "{scheme}: {message:?}");
            assert!(
                message.profiles().iter().all(|profile| profile["series"].as_u64() <= Some(1)),
                "{scheme}: {message:?}"
            );
        }
    }
}

#[test]
fn labels_that_are_asked_for_are_kept_numbers_as_numbers() {
    for scheme in super::SCHEMES {
        let messages = windows_of_goroutines(scheme, &["--push-labels=goroutine,stage"]);
        let sets: Vec<_> = messages.iter().flat_map(super::Message::label_sets).collect();
        let names: BTreeSet<&str> = sets.iter().flat_map(|set| set.keys().map(|name| &**name)).collect();
        assert_eq!(names, BTreeSet::from(["goroutine", "stage"]), "{scheme}");
        // Go's own has no number.
        let is_right = |goroutine: &Value| goroutine.is_number() || goroutine == "scheduler";
        assert!(sets.iter().filter_map(|set| set.get("goroutine")).all(is_right), "{scheme}: {sets:?}");
        let stages: BTreeSet<_> = sets.iter().filter_map(|set| set.get("stage")?.as_str()).collect();
        assert_eq!(stages, BTreeSet::from(["digits", "hash", "trees"]), "{scheme}");
        // However many goroutines there are, they make no series.
        let series = messages.iter().flat_map(|message| message.profiles()).map(|profile| profile["series"].as_u64());
        assert!(series.max().flatten() <= Some(5), "{scheme}: {messages:?}");
    }
}

#[test]
fn windows_of_all_requests_come_in_one_message() {
    for scheme in super::SCHEMES {
        let (place, receiver) = (Place::new(), Receiver::start(&[]));
        let push = receiver.push(scheme);
        let options = [&*push, "--push-interval=1s", "--push-labels=request", "--rate=1000", "--max-overhead=100"];
        let server = Server::of_wlprof(&place, &options, "handler-c.wasm");
        wait_until("windows are taken", || {
            for path in ["/work/2000", "/quarters/200"] {
                assert_eq!(ask(server.address, "GET", path).status, 200);
            }
            receiver.taken() >= 3
        });
        let (code, said) = server.interrupt();
        assert_eq!(code, Some(0), "{said}");
        let messages = receiver.end();
        check_sums(&messages, &rendered(&place, "p.wlprof", &[]), super::TIME);
        let begins: BTreeSet<u64> = messages.iter().map(super::Message::begin).collect();
        assert_eq!(begins.len(), messages.len(), "{scheme}: a window in two messages");
        let sets: Vec<_> = messages.iter().flat_map(super::Message::label_sets).collect();
        assert!(sets.iter().all(|set| set.keys().all(|name| name == "request")), "{scheme}: {sets:?}");
        let requests: BTreeSet<_> = sets.iter().filter_map(|set| set.get("request")?.as_str()).collect();
        assert!(requests.is_superset(&BTreeSet::from(["GET /quarters/*", "GET /work/*"])), "{scheme}: {requests:?}");
    }
}
