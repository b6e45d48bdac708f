//! A stopped guest in a test: all of its memory, and the globals that it has.

use crate::{GuestMemory, OutOfBounds};
use std::cell::Cell;
use std::collections::HashMap;

/// Memory and globals of a guest that stands still. Counts reads, so that a test can bound what a walk costs.
#[derive(Clone, Debug, Default)]
pub struct Frozen {
    /// The memory, from address 0 on.
    pub memory: Vec<u8>,
    /// Raw bits of the globals, by index. The guest has no others.
    pub globals: HashMap<u32, u64>,
    /// Number of reads of memory, including those out of bounds.
    pub reads: Cell<u64>,
    /// Number of bytes that these reads asked for.
    pub bytes_read: Cell<u64>,
}

impl Frozen {
    /// Makes a guest with that memory and without globals.
    pub fn new(memory: Vec<u8>) -> Self {
        Self { memory, ..Self::default() }
    }

    /// Sets both counts to 0.
    pub fn reset_counts(&self) {
        self.reads.set(0);
        self.bytes_read.set(0);
    }
}

impl GuestMemory for Frozen {
    fn size(&self) -> u64 {
        self.memory.len() as u64
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        self.reads.set(self.reads.get() + 1);
        self.bytes_read.set(self.bytes_read.get() + buffer.len() as u64);
        let start = usize::try_from(address).map_err(|_| OutOfBounds)?;
        let end = start.checked_add(buffer.len()).ok_or(OutOfBounds)?;
        buffer.copy_from_slice(self.memory.get(start..end).ok_or(OutOfBounds)?);
        Ok(())
    }

    fn global(&self, index: u32) -> Option<u64> {
        self.globals.get(&index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_where_memory_does() {
        let guest = Frozen::new((0..8).collect());
        assert_eq!((guest.size(), guest.global(0)), (8, None));
        assert_eq!(guest.read_u32(4), Ok(0x0706_0504));
        assert_eq!(guest.read(8, &mut []), Ok(()));
        for address in [5, 8, u64::MAX - 3, u64::MAX] {
            assert_eq!(guest.read_u32(address), Err(OutOfBounds), "{address:#x}");
        }
        assert_eq!((guest.reads.get(), guest.bytes_read.get()), (6, 20));
        guest.reset_counts();
        assert_eq!((guest.reads.get(), guest.bytes_read.get()), (0, 0));
    }
}
