//! `--push-queue`: windows of a process that was killed are delivered by the next one.

use super::receiver::{Message, Receiver};
use super::worker::Worker;
use crate::guest::{Place, send_signal};
use std::collections::BTreeSet;
use std::path::Path;

const INSTANCE: &str = "service.instance.id";

/// A window, by its instance and its time.
fn window(message: &Message) -> (String, u64) {
    (message.attribute(INSTANCE).expect("it has an instance").to_owned(), message.begin())
}

#[test]
fn windows_of_a_killed_process_are_delivered_by_the_next_under_their_own_names() {
    for scheme in ["otlp+http", "pyroscope", "otlp+grpc"] {
        let place = Place::new();
        let receiver = Receiver::answering("always unavailable");
        let options = [&*receiver.push(scheme), "--push-queue=queue", "--push-resource=service.name=shop"];

        let mut first = Worker::start(&place, &options, &[]);
        first.works_until("a window is refused", || !receiver.messages().is_empty());
        // One is sent again and again, and others wait behind it.
        let queue = place.path("queue");
        let before = files_below(&queue);
        first.works_until("more windows wait", || files_below(&queue) >= before + 2);
        send_signal(first.0.child.id(), "KILL");
        first.0.child.wait().unwrap();
        let refused: BTreeSet<_> = receiver.messages().iter().map(window).collect();
        let instance = refused.first().expect("it was refused").0.clone();
        assert!(refused.iter().all(|(of, _)| *of == instance), "{refused:?}");

        receiver.answers("");
        let mut second = Worker::start(&place, &options, &[]);
        let taken = |of_first: bool| {
            let messages = receiver.messages();
            let windows = messages.iter().filter(|message| message.is_taken()).map(window);
            windows.filter(|(of, _)| (*of == instance) == of_first).count()
        };
        second.works_until("windows of both are taken", || taken(true) >= 2 && taken(false) > 0);
        second.end();

        let messages = receiver.end();
        let taken: Vec<_> = messages.iter().filter(|message| message.is_taken()).collect();
        let windows: BTreeSet<_> = taken.iter().map(|message| window(message)).collect();
        assert_eq!(windows.len(), taken.len(), "{scheme}: a window came twice: {windows:?}");
        assert!(refused.is_subset(&windows), "{scheme}: {refused:?} of {windows:?}");
        assert!(taken.iter().all(|message| message.attribute("service.name") == Some("shop")), "{taken:?}");
    }
}

/// The number of files in a folder and in those within it.
fn files_below(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
}
