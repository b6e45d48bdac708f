//! Windows of more rows than servers take, and of stacks deeper than they take.

use super::receiver::{Message, Receiver, SCHEMES, rendered, sums, taken_profiles};
use super::worker::Worker;
use super::{TIME, check_sums, outcome};
use crate::guest::Place;
use crate::sampled::with_ever_more_work;

/// Rows that Pyroscope takes.
const MAX_ROWS: u64 = 16_000;

/// For each byte of its input it goes down a tree a thousand times, by the bits of a number that is another one each time, and works at
/// the leaves: hardly two stacks are the same.
const TREE: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\30\00\00\00\01\00\00\00")
    (data (i32.const 8) "\40\00\00\00\06\00\00\00")
    (data (i32.const 64) "ready\n")
    (global $path (mut i32) (i32.const 1))
    (func $count (param $times i32)
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))
    (func $left (param $path i32) (param $depth i32) (call $down (local.get $path) (local.get $depth)))
    (func $right (param $path i32) (param $depth i32) (call $down (local.get $path) (local.get $depth)))
    (func $down (param $path i32) (param $depth i32)
        (if (local.get $depth)
            (then
                (local.set $depth (i32.sub (local.get $depth) (i32.const 1)))
                (if (i32.and (local.get $path) (i32.const 1))
                    (then (call $left (i32.shr_u (local.get $path) (i32.const 1)) (local.get $depth)))
                    (else (call $right (i32.shr_u (local.get $path) (i32.const 1)) (local.get $depth)))))
            (else (call $count (i32.const 30000)))))
    (func $round (local $paths i32)
        (local.set $paths (i32.const 1000))
        (loop $again
            (global.set $path (i32.add (i32.mul (global.get $path) (i32.const 1664525)) (i32.const 1013904223)))
            (call $down (i32.shr_u (global.get $path) (i32.const 8)) (i32.const 20))
            (br_if $again (local.tee $paths (i32.sub (local.get $paths) (i32.const 1))))))
    (func (export "_start")
        (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 24)))
        (loop $again
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 24)))
            (if (i32.load (i32.const 24))
                (then
                    (call $round)
                    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 24)))
                    (br $again))))))"#;

#[test]
fn windows_of_more_rows_than_pyroscope_takes_come_in_parts_that_add_up() {
    let place = Place::new();
    let (mut whole, mut messages) = (serde_json::Value::Null, Vec::new());
    with_ever_more_work("many stacks", |times| {
        let receiver = Receiver::start(&[]);
        let interval = format!("--push-interval={}s", 10 * times);
        let options = ["-o", "x.wlprof", "--rate=10000", &interval, &receiver.push("pyroscope")];
        let mut worker = Worker::with_guest(&place, TREE, &options, &[]);
        worker.works_until("windows are taken", || receiver.taken() >= 2);
        let ran = worker.end();
        messages = receiver.end();
        whole = rendered(&place, "x.wlprof", &[]);
        println!("{} rows, {} messages: {}", whole["rows"], messages.len(), ran.stderr);
        let summary =
            ran.stderr.lines().find_map(|line| line.strip_prefix("pushed ")).expect("it says what became of all");
        let windows: usize = summary.split(' ').next().unwrap().parse().unwrap();
        // Where other programs have the processors, there is no time for the last window.
        messages.len() > windows && !summary.contains("lost")
    });
    assert!(messages.iter().all(Message::is_taken), "a window was sent before it was split");
    assert!(taken_profiles(&messages).all(|profile| profile["rows"].as_u64() <= Some(MAX_ROWS)));
    check_sums(&messages, &whole, TIME);
}

/// Works below a thousand calls of itself, which is deeper than Pyroscope takes.
const DEEP: &str = r#"(module
    (func $leaf (param $times i32)
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))
    (func $down (param $depth i32)
        (if (local.get $depth)
            (then (call $down (i32.sub (local.get $depth) (i32.const 1))))
            (else (call $leaf (i32.const 1000000000)))))
    (func (export "_start") (call $down (i32.const 5000))))"#;

#[test]
fn the_leaves_of_deep_stacks_are_kept() {
    for scheme in SCHEMES {
        let (place, receiver) = (Place::new(), Receiver::start(&[]));
        place.file("deep.wat", DEEP);
        let push = receiver.push(scheme);
        let ran = outcome(&mut place.command(["-o", "x.wlprof", &push, "deep.wat"]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let messages = receiver.end();
        let whole = rendered(&place, "x.wlprof", &[]);
        let leaves = |profiles: &[&serde_json::Value]| sums(profiles.iter().copied(), "cpu/nanoseconds", "leaves");
        let found = leaves(&taken_profiles(&messages).collect::<Vec<_>>());
        assert_eq!(found, leaves(&[&whole]), "{scheme}");
        assert!(found.contains_key("leaf"), "{found:?}");
    }
}
