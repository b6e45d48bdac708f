//! How often a store's wasm has called the host, by the call instruction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Call instructions that are told apart: guests call imports in a few places, which their libraries have.
const PLACES: usize = 64;
/// Places that are looked at for one instruction.
const PROBES: usize = 4;

/// Counts of one store, written by the thread that runs it.
pub(super) struct HostCallCounts {
    /// Return addresses of the calls, and how often each was made.
    places: [(AtomicUsize, AtomicU64); PLACES],
    /// Calls for which there was no place.
    others: AtomicU64,
}

impl HostCallCounts {
    pub(super) fn new() -> Self {
        Self { places: std::array::from_fn(|_| Default::default()), others: AtomicU64::new(0) }
    }

    /// Counts a call that returns to `pc`. To be called on the thread that runs the store.
    pub(super) fn count(&self, pc: usize) {
        let add = |count: &AtomicU64| count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Calls are some bytes apart.
        let first = pc >> 3;
        for (place, count) in (0..PROBES).map(|probe| &self.places[(first + probe) % PLACES]) {
            match place.load(Ordering::Relaxed) {
                0 => place.store(pc, Ordering::Relaxed),
                other if other != pc => continue,
                _ => {}
            }
            return add(count);
        }
        add(&self.others);
    }

    /// Adds what was counted to `sums`, by return address; 0 has what cannot be told apart. From any thread.
    pub(super) fn add_to(&self, sums: &mut HashMap<usize, u64>) {
        let places = self.places.iter().map(|(pc, count)| (pc.load(Ordering::Relaxed), count));
        for (pc, count) in places.chain([(0, &self.others)]) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                *sums.entry(pc).or_default() += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_lost_and_those_of_a_place_are_together() {
        let counts = HostCallCounts::new();
        // The same place for all, so that the last have none.
        let pcs: Vec<usize> = (1..=PROBES + 2).map(|number| number * 8 * PLACES).collect();
        for (index, pc) in pcs.iter().enumerate() {
            (0..=index).for_each(|_| counts.count(*pc));
        }
        let mut sums = HashMap::new();
        counts.add_to(&mut sums);
        let expected = [(pcs[0], 1), (pcs[1], 2), (pcs[2], 3), (pcs[3], 4), (0, 5 + 6)];
        assert_eq!(sums, expected.into_iter().collect());
    }
}
