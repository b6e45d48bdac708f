//! Go guests, at arbitrary instructions: goroutine stacks from the running function to where the goroutine began.

use crate::sampled::profile;
use wlprof::recording::{Origin, Recording, Truncation};

/// Share of samples, in percent, for which `holds`.
fn share(recording: &Recording, holds: impl Fn(&[&str]) -> bool) -> f64 {
    let held = recording.samples().filter(|sample| {
        let names: Vec<&str> = recording
            .lines_of(sample.stack)
            .map(|line| recording.functions[line.function as usize].name.as_str())
            .collect();
        holds(&names)
    });
    100.0 * held.count() as f64 / recording.ticks.sampled as f64
}

#[test]
fn goroutines_are_walked_to_where_they_began() {
    let recording = profile("go-bench.wasm", &["--rate", "5000", "--max-overhead", "100"], &["2"]);
    let rooted = share(&recording, |names| {
        matches!(names.last(), Some(&("runtime.goexit" | "runtime.mstart" | "runtime.rt0_go" | "_rt0_wasm_wasip1")))
    });
    let in_main = share(&recording, |names| names.iter().any(|name| name.starts_with("main.")));
    println!("{:.2} % rooted, {in_main:.1} % under main.*, {:?}", rooted, recording.truncated);
    assert!(rooted > 90.0 && in_main > 70.0, "{rooted:.2} % rooted, {in_main:.1} % under main.*");
    // What is not whole says so: in builtins the plugin cannot be asked.
    let unknown = recording.truncated.iter().filter(|(reason, _)| !matches!(reason, Truncation::Language(_)));
    assert_eq!(unknown.count(), 0, "{:?}", recording.truncated);
    let lines = recording.frames.iter().filter(|frame| matches!(frame.origin, Origin::Language { .. }));
    assert!(lines.clone().count() > 20 && lines.flat_map(|frame| &frame.lines).all(|line| line.line.is_some()));
}

#[test]
fn native_shows_wasm_frames_alone() {
    let recording = profile("go-bench.wasm", &["--lang=native"], &[]);
    assert!(recording.frames.iter().all(|frame| !matches!(frame.origin, Origin::Language { .. })));
}
