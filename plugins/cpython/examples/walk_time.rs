//! Measures walks in the steady state, with the frames known: `walk_time REPLAY CAPTURE`. Prints the number of frames
//! and the median time of a walk in nanoseconds.

#[path = "../tests/module/mod.rs"]
mod module;
#[path = "../tests/replay/mod.rs"]
mod replay;

use replay::Replay;
use std::time::Instant;
use wlprof_cpython::Python;
use wlprof_plugin::{FrameSink, GuestMemory, OutOfBounds, Walker};

/// Memory in one piece, as the stopped guest's is.
struct Flat(Vec<u8>);

impl GuestMemory for Flat {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let start = address as usize;
        let end = start.checked_add(buffer.len()).ok_or(OutOfBounds)?;
        buffer.copy_from_slice(self.0.get(start..end).ok_or(OutOfBounds)?);
        Ok(())
    }

    fn global(&self, _: u32) -> Option<u64> {
        None
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name] = &arguments[..] else { panic!("usage: walk_time REPLAY CAPTURE") };
    let replay = Replay::read(&std::fs::read(path).expect("a replay file"));
    let capture = replay.captures.iter().find(|capture| &capture.name == name).expect("such a capture");
    let mut memory = vec![0; capture.size as usize];
    for (index, block) in &capture.blocks {
        memory[*index as usize * block.len()..][..block.len()].copy_from_slice(block);
    }
    let guest = Flat(memory);
    let module = replay.module();
    let mut walker = Python.attach_walker(&module).expect("a CPython");
    let mut out = FrameSink::new();
    let started = Instant::now();
    walker.walk(&guest, &capture.wasm, &mut out);
    let first = started.elapsed();
    let mut times: Vec<u128> = (0..20_001)
        .map(|_| {
            out.clear();
            let started = Instant::now();
            walker.walk(&guest, &capture.wasm, &mut out);
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
