//! How large the guest's linear memory is, over time: guests that grow it at known places.

use crate::guest::Place;
use crate::tested::samplers;
use serde_json::Value;
use std::collections::BTreeMap;
use wlprof::recording::{Recording, Sample, State};

const PAGE: u64 = 1 << 16;

/// Computes in `small`, grows its memory by 16 pages, computes in `middle`, grows it by 1024, waits for 300 ms, grows it to the most
/// that there may be, and computes in `large`.
const GROWS: &str = r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\01\00\00\00\00\00\00\00\00\a3\e1\11\00\00\00\00")
    (func $small (local $times i32)
        (loop $again (br_if $again (i32.lt_u (local.tee $times (i32.add (local.get $times) (i32.const 1))) (i32.const 300000000)))))
    (func $middle (local $times i32)
        (loop $again (br_if $again (i32.lt_u (local.tee $times (i32.add (local.get $times) (i32.const 1))) (i32.const 300000000)))))
    (func $large (local $times i32)
        (loop $again (br_if $again (i32.lt_u (local.tee $times (i32.add (local.get $times) (i32.const 1))) (i32.const 300000000)))))
    (func (export "_start")
        (call $small)
        (drop (memory.grow (i32.const 16)))
        (call $middle)
        (drop (memory.grow (i32.const 1024)))
        (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
        (drop (memory.grow (i32.sub (i32.const 65536) (memory.size))))
        (call $large)))"#;

/// How large memory was at a sample, by what the recording says of its time.
fn size_at(recording: &Recording, sample: &Sample) -> u64 {
    let sizes = recording.stores[0].memory.iter().take_while(|size| size.time_ns <= sample.time_ns);
    sizes.last().map_or(0, |size| size.bytes)
}

/// What the samples say is done: the function that computes, or that it waits.
fn phase<'a>(recording: &'a Recording, sample: &Sample) -> &'a str {
    let lines = recording.lines_of(sample.stack);
    let names: Vec<&str> = lines.map(|line| &*recording.functions[line.function as usize].name).collect();
    match names.first() {
        // It may wait for a page of memory anywhere.
        Some(leaf) if sample.state == State::Blocked && leaf.contains("poll_oneoff") => "waiting",
        _ => names.into_iter().find(|name| ["small", "middle", "large"].contains(name)).unwrap_or_default(),
    }
}

fn assert_sizes(recording: &Recording, phases: &[(&str, u64)]) {
    let mut seen = BTreeMap::<&str, u64>::new();
    // The last sample of each tick: those before stand for time before it.
    for sample in recording.draws() {
        let phase = phase(recording, &sample);
        if let Some((name, pages)) = phases.iter().find(|(name, _)| *name == phase) {
            let bytes = size_at(recording, &sample);
            assert_eq!(bytes, pages * PAGE, "in {name}, at {} ns: {:?}", sample.time_ns, recording.stores);
            *seen.entry(name).or_default() += 1;
        }
    }
    assert_eq!(seen.len(), phases.len(), "{seen:?}");
    println!("samples whose memory is as it should be: {seen:?}");
}

#[test]
fn each_sample_has_the_memory_of_its_part_of_the_guest() {
    let place = Place::new();
    place.file("grows.wat", GROWS);
    let ran = place.run(["-q", "--clock=wall", "-o", "p.wlprof", "-o", "p.json", "grows.wat"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let recording = place.recording("p.wlprof");
    assert_sizes(&recording, &[("small", 1), ("middle", 17), ("waiting", 1041), ("large", 65_536)]);
    // And 0 when the store has gone.
    let sizes = &recording.stores[0].memory;
    assert_eq!(sizes.iter().map(|size| size.bytes / PAGE).collect::<Vec<_>>(), [1, 17, 1041, 65_536, 0]);

    let profile: Value = serde_json::from_slice(&std::fs::read(place.path("p.json")).unwrap()).unwrap();
    let [counter] = &profile["counters"].as_array().unwrap()[..] else { panic!("{}", profile["counters"]) };
    assert_eq!((&counter["category"], &counter["name"]), (&"Memory".into(), &"Linear memory".into()));
    let column = |name: &str| counter["samples"][name].as_array().unwrap().clone();
    let mut size = 0;
    let mut shown = Vec::new();
    for (time, more) in column("time").iter().zip(column("count")).filter(|(_, more)| *more != 0) {
        size += more.as_i64().unwrap();
        shown.push(((time.as_f64().unwrap() * 1e6).round() as u64, size as u64));
    }
    assert_eq!(shown, sizes.iter().map(|size| (size.time_ns, size.bytes)).collect::<Vec<_>>());
}

#[test]
fn the_epoch_sampler_sees_memory_too_and_a_merge_keeps_what_each_had() {
    let place = Place::new();
    place.file("grows.wat", GROWS);
    let names = ["a.wlprof", "b.wlprof"];
    for (name, sampler) in names.into_iter().zip(["epoch", samplers()[0]]) {
        let ran = place.run(["-q", &format!("--sampler={sampler}"), "-o", name, "grows.wat"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_sizes(&place.recording(name), &[("small", 1), ("middle", 17), ("large", 65_536)]);
    }
    let ran = place.run(["merge", "-o", "both.wlprof", "a.wlprof", "b.wlprof"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let both = place.recording("both.wlprof");
    let memories: Vec<_> = both.stores.into_iter().map(|store| store.memory).collect();
    assert_eq!(memories, names.map(|name| place.recording(name).stores.remove(0).memory));
}

#[test]
fn a_guest_without_memory_has_no_track() {
    let place = Place::new();
    place.file("none.wat", r#"(module (func (export "_start")))"#);
    let ran = place.run(["-q", "-o", "p.wlprof", "-o", "p.json", "none.wat"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(place.recording("p.wlprof").stores.iter().all(|store| store.memory.is_empty()));
    let profile: Value = serde_json::from_slice(&std::fs::read(place.path("p.json")).unwrap()).unwrap();
    assert_eq!(profile["counters"], Value::Array(Vec::new()));
}
