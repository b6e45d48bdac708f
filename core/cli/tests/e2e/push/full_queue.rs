//! A server that is away for longer than the queue has room: the oldest windows are lost and counted, the others come once and in order.

use super::receiver::{Message, Receiver};
use super::worker::Worker;
use crate::guest::Place;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Functions of the guest, all of which work in a round.
const FUNCTIONS: usize = 300;

/// Bytes of their names, in which nothing repeats.
const NAME: usize = 1500;

/// Less than any window of the run lasts, in seconds.
const SHORTEST: f64 = 0.85;

/// A guest whose windows are large: each has the names of most of its functions.
fn guest() -> String {
    let (mut functions, mut calls, mut state) = (String::new(), String::new(), 1_u64);
    for number in 0..FUNCTIONS {
        let mut name = format!("f{number}_");
        while name.len() < NAME {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let _ = write!(name, "{:08x}", state >> 32);
        }
        let work = "(loop $again (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))";
        let _ = writeln!(
            functions,
            "(func $f{number} (@name \"{name}\") (local $n i32) (local.set $n (i32.const 1000000)) {work})"
        );
        let _ = write!(calls, "(call $f{number})");
    }
    format!(
        r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\30\00\00\00\01\00\00\00")
    (data (i32.const 8) "\40\00\00\00\06\00\00\00")
    (data (i32.const 64) "ready\n")
    {functions}
    (func (export "_start")
        (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 24)))
        (loop $again
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 24)))
            (if (i32.load (i32.const 24))
                (then
                    {calls}
                    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 24)))
                    (br $again))))))"#
    )
}

/// The windows in a folder and in those within it.
fn windows_in(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let windows = entries.flat_map(|path| if path.is_dir() { windows_in(&path) } else { [path].into() });
    windows.filter(|path| path.is_dir() || path.extension().is_some_and(|kind| kind == "wlprof")).collect()
}

#[test]
fn of_more_windows_than_fit_the_oldest_are_lost_and_the_others_come_in_order() {
    for scheme in ["otlp+http", "pyroscope"] {
        let place = Place::new();
        let receiver = Receiver::answering("always unavailable");
        let options = [&*receiver.push(scheme), "--push-queue=queue,1"];
        let mut worker = Worker::with_guest(&place, &guest(), &options, &[]);
        let (queue, mut seen, mut largest) = (place.path("queue"), BTreeSet::new(), 0);
        worker.works_until("windows are lost", || {
            let now = windows_in(&queue);
            let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
            largest = largest.max(now.iter().map(size).sum::<u64>());
            seen.extend(now.iter().cloned());
            seen.len() >= now.len() + 3
        });
        println!("{scheme}: {} windows, {largest} bytes at most", seen.len());
        // One more is there before another one makes room.
        assert!(largest < 2 << 20, "{largest}");
        let at_least = seen.len() - windows_in(&queue).len();
        receiver.answers("");
        worker.works_until("all are taken", || windows_in(&queue).is_empty());
        let ran = worker.end();
        let messages = receiver.end();
        let taken: Vec<&Message> = messages.iter().filter(|message| message.is_taken()).collect();
        println!("{}", ran.stderr);
        let summary = ran.stderr.lines().find(|line| line.starts_with("pushed ")).expect("it says what became of all");
        assert!(summary.starts_with(&format!("pushed {} profiles to {scheme}://", taken.len())), "{summary}");
        // More may have been lost before the server was tried again.
        let lost = summary.split("; lost ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
        let lost = lost.unwrap_or_else(|| panic!("{summary}"));
        assert!(summary.contains("profiles: the queue was full") && lost >= at_least, "{at_least}: {summary}");
        // The window that was tried again and again is the oldest. Behind it is the only gap, with room for all that were lost.
        let gaps: Vec<f64> =
            taken.windows(2).map(|pair| (pair[1].begin() as f64 - pair[0].end() as f64) / 1e9).collect();
        assert!(gaps[0] >= SHORTEST * lost as f64, "{lost}: {gaps:?}");
        assert!(gaps[1..].iter().all(|gap| gap.abs() < SHORTEST), "{scheme}: {gaps:?}");
        assert!(windows_in(&queue).is_empty());
    }
}
