//! Nothing that a guest may hold makes a walk fail, lie or take long.

use crate::{
    synthetic::{RUNTIME, layouts},
    walker_tests::{WASM, sorting, stack, walker},
};
use wlprof_plugin::{GuestMemory, OutOfBounds, Truncation};

/// A generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn damaged_guests_cost_no_more_than_whole_ones() {
    let mut numbers = Numbers(88_172_645_463_325_252);
    for layout in layouts() {
        let whole = sorting(layout).frozen;
        // What is not zero is what walks read.
        let used: Vec<usize> = (0..whole.memory.len()).filter(|&at| whole.memory[at] != 0).collect();
        let mut ends = std::collections::HashSet::new();
        let mut guest = whole.clone();
        for _ in 0..4000 {
            let mut walker = walker(&layout, &[RUNTIME]);
            let mut changed = Vec::new();
            for _ in 0..1 + numbers.next() % 4 {
                let at = used[numbers.next() as usize % used.len()];
                changed.push(at);
                guest.memory[at] = match numbers.next() % 4 {
                    0 => 0,
                    1 => 0xff,
                    2 => whole.memory[used[numbers.next() as usize % used.len()]],
                    _ => numbers.next() as u8,
                };
            }
            guest.reset_counts();
            let (frames, end) = stack(&mut walker, &guest, &WASM);
            ends.insert(end);
            let (reads, bytes) = (guest.reads.get(), guest.bytes_read.get());
            assert!(reads < 40_000 && bytes < 8 << 20, "{reads} reads, {bytes} bytes, {end:?}");
            // No frame is made up: those of Python are of the functions that there are, or damaged ones.
            // A cycle is found when some have come again.
            let python = frames.iter().filter(|frame| !frame.starts_with('#')).count();
            assert!(python <= 4 || end == Err(Truncation::Cycle), "{frames:?} {end:?}");
            for at in changed {
                guest.memory[at] = whole.memory[at];
            }
        }
        assert!(ends.len() >= 4, "3.{}: {ends:?}", layout.minor);
    }
}

/// Memory that is different at each read and has everything at every address.
struct Noise(std::cell::Cell<u64>);

impl GuestMemory for Noise {
    fn size(&self) -> u64 {
        1 << 32
    }

    fn read(&self, _: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let mut numbers = Numbers(self.0.get());
        for byte in buffer {
            *byte = (numbers.next() >> 20) as u8;
        }
        self.0.set(numbers.0);
        Ok(())
    }

    fn global(&self, _: u32) -> Option<u64> {
        None
    }
}

#[test]
fn noise_is_no_stack() {
    for layout in layouts() {
        let mut walker = walker(&layout, &[RUNTIME]);
        for seed in 1..300 {
            let (frames, _) = stack(&mut walker, &Noise(seed.into()), &WASM);
            assert!(frames.iter().all(|frame| frame.starts_with('#')), "{frames:?}");
        }
    }
}
