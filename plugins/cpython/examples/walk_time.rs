//! Measures walks in the steady state, with the frames known: `walk_time REPLAY CAPTURE`. Prints the number of frames
//! and the median time of a walk in nanoseconds.

#[path = "../tests/replay/mod.rs"]
mod replay;

use replay::Replay;
use std::time::Instant;
use wlprof_cpython::Python;
use wlprof_plugin::{FrameSink, Walker, testing::Frozen};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name] = &arguments[..] else { panic!("usage: walk_time REPLAY CAPTURE") };
    let replay = Replay::read(&std::fs::read(path).expect("a replay file"));
    let capture = replay.captures.iter().find(|capture| &capture.name == name).expect("such a capture");
    // In one piece, as the stopped guest's memory is.
    let mut memory = vec![0; capture.guest.size as usize];
    for (index, block) in &capture.guest.blocks {
        memory[*index as usize * block.len()..][..block.len()].copy_from_slice(block);
    }
    let guest = Frozen::new(memory);
    let module = replay.module();
    let mut walker = Python.attach_program(&module).expect("a CPython").new_walker();
    let mut out = FrameSink::new();
    let started = Instant::now();
    let _ = walker.walk(&guest, &capture.wasm, &mut out);
    let first = started.elapsed();
    let mut times: Vec<u128> = (0..20_001)
        .map(|_| {
            out.clear();
            let started = Instant::now();
            let _ = walker.walk(&guest, &capture.wasm, &mut out);
            started.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    println!(
        "{} Python frames, {} wasm frames: first walk {} ns, then p50 {} ns, p99 {} ns",
        capture.expected.len(),
        capture.wasm.len(),
        first.as_nanos(),
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
}
