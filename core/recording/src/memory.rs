//! How large a store's linear memory was seen to be, over time: what changed from one sample to another.

use super::StoreId;
use super::journal::{Block, Journal};
use serde::{Deserialize, Serialize};

/// Changes of a store that are kept whatever their size. A guest may grow its memory by a page at each sample.
const EXACT: usize = 1 << 14;
/// Of later ones those are kept that add up to this part of the size: there are no more than some ten thousand of them, since
/// memories only grow.
const PART: u64 = 256;

/// The size of a linear memory from a time on.
///
/// # Accuracy
/// Memories are looked at when samples are taken: one has grown up to a sampling interval before `time_ns`. Of one that has changed
/// more than 16,384 times, later changes are told when they come to a 256th of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySize {
    /// Nanoseconds since sampling began.
    pub time_ns: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// The sizes of a store's memory, with what is not in the journal yet.
#[derive(Debug)]
pub(super) struct MemorySizes {
    last: MemorySize,
    changes: usize,
    new: Vec<MemorySize>,
}

impl Default for MemorySizes {
    /// Of a store without memory.
    fn default() -> Self {
        Self { last: MemorySize { time_ns: 0, bytes: 0 }, changes: 0, new: Vec::new() }
    }
}

impl MemorySizes {
    /// Notes how large the memory is.
    pub(super) fn see(&mut self, time_ns: u64, bytes: u64) {
        let least = if self.changes < EXACT || bytes == 0 { 1 } else { (self.last.bytes / PART).max(1) };
        if bytes.abs_diff(self.last.bytes) < least {
            return;
        }
        // What is seen of several threads may not be in order.
        self.last = MemorySize { time_ns: time_ns.max(self.last.time_ns), bytes };
        self.changes += 1;
        self.new.push(self.last);
    }

    /// Writes what is new, as the sizes of `store`. What could not be written stays new.
    pub(super) fn write(&mut self, store: StoreId, journal: &mut Journal) {
        if !self.new.is_empty() && journal.write(&Block::Memory(store, self.new.clone())) {
            self.new.clear();
        }
    }

    /// Whether there is nothing to be kept in mind: all is written, and there is no memory any more.
    pub(super) fn is_over(&self) -> bool {
        self.new.is_empty() && self.last.bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_kept_and_not_without_end() {
        let mut sizes = MemorySizes::default();
        for time_ns in 0..10 {
            sizes.see(time_ns, 1 << 16);
        }
        sizes.see(20, 1 << 17);
        let expected = [(0, 1 << 16), (20, 1 << 17)].map(|(time_ns, bytes)| MemorySize { time_ns, bytes });
        assert_eq!(sizes.new, expected);
        // By a byte each time, as a memory with pages of one byte may.
        for bytes in (1 << 17)..(1 << 24) {
            sizes.see(bytes, bytes);
        }
        assert!(sizes.new.len() < 2 * EXACT, "{}", sizes.new.len());
        let last = sizes.new.last().unwrap();
        assert!((1 << 24) - last.bytes <= (1 << 24) / PART, "{last:?}");
        sizes.see(1 << 25, 0);
        assert_eq!(sizes.new.last().unwrap().bytes, 0, "that it has gone is never left out");
    }

    #[test]
    fn times_never_go_back() {
        let mut sizes = MemorySizes::default();
        sizes.see(30, 1);
        sizes.see(20, 2);
        assert!(sizes.new.is_sorted_by_key(|size| size.time_ns));
    }
}
