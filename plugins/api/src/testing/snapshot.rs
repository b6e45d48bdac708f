//! The part of a stopped guest that walks read: a real guest's memory is too large to be kept with the tests.

use crate::{GuestMemory, OutOfBounds};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks of a guest's memory, and some of its globals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Size of the guest's memory in bytes.
    pub size: u64,
    /// Known blocks, by their address divided by [`Snapshot::BLOCK`]. A last block is zero past the end of memory.
    pub blocks: BTreeMap<u64, [u8; Self::BLOCK]>,
    /// Known globals, by index.
    pub globals: BTreeMap<u32, u64>,
}

impl Snapshot {
    /// Size of a block in bytes.
    pub const BLOCK: usize = 64;

    /// Records what `walk` reads of `guest`.
    pub fn record(guest: &dyn GuestMemory, walk: impl FnOnce(&dyn GuestMemory)) -> Self {
        let recorder = Recorder { guest, blocks: RefCell::default(), globals: RefCell::default() };
        walk(&recorder);
        let block = |index: u64| {
            let (start, mut block) = (index * Self::BLOCK as u64, [0; Self::BLOCK]);
            let length = (guest.size() - start).min(Self::BLOCK as u64) as usize;
            // It lies within, and has been read.
            let _ = guest.read(start, &mut block[..length]);
            (index, block)
        };
        let blocks = recorder.blocks.into_inner().into_iter().map(block).collect();
        Self { size: guest.size(), blocks, globals: recorder.globals.into_inner() }
    }

    /// Returns the guest as a walk sees it.
    pub fn replay(&self) -> ReplayedGuest<'_> {
        ReplayedGuest { snapshot: self, missed: Cell::new(0) }
    }
}

/// Notes what is read of a guest.
struct Recorder<'a> {
    guest: &'a dyn GuestMemory,
    blocks: RefCell<BTreeSet<u64>>,
    globals: RefCell<BTreeMap<u32, u64>>,
}

impl GuestMemory for Recorder<'_> {
    fn size(&self) -> u64 {
        self.guest.size()
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        self.guest.read(address, buffer)?;
        if !buffer.is_empty() {
            let (block, last) = (Snapshot::BLOCK as u64, address + buffer.len() as u64 - 1);
            self.blocks.borrow_mut().extend(address / block..=last / block);
        }
        Ok(())
    }

    fn global(&self, index: u32) -> Option<u64> {
        let value = self.guest.global(index)?;
        self.globals.borrow_mut().insert(index, value);
        Some(value)
    }
}

/// A [`Snapshot`] that is walked. What it lacks is out of bounds.
#[derive(Clone, Debug)]
pub struct ReplayedGuest<'a> {
    snapshot: &'a Snapshot,
    /// Number of reads of what lies in the guest's memory and not in the snapshot. If it is not 0, walks read more than when it was
    /// recorded.
    pub missed: Cell<u32>,
}

impl GuestMemory for ReplayedGuest<'_> {
    fn size(&self) -> u64 {
        self.snapshot.size
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let end = address.checked_add(buffer.len() as u64).ok_or(OutOfBounds)?;
        if end > self.snapshot.size {
            return Err(OutOfBounds);
        }
        let (mut at, mut rest) = (address, buffer);
        while !rest.is_empty() {
            let start = (at % Snapshot::BLOCK as u64) as usize;
            let Some(block) = self.snapshot.blocks.get(&(at / Snapshot::BLOCK as u64)) else {
                self.missed.set(self.missed.get() + 1);
                return Err(OutOfBounds);
            };
            let (part, after) = rest.split_at_mut(rest.len().min(Snapshot::BLOCK - start));
            part.copy_from_slice(&block[start..start + part.len()]);
            at += part.len() as u64;
            rest = after;
        }
        Ok(())
    }

    fn global(&self, index: u32) -> Option<u64> {
        self.snapshot.globals.get(&index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Frozen;

    #[test]
    fn what_was_read_is_replayed_and_nothing_else() {
        let guest = Frozen { globals: [(0, 5), (1, 6)].into(), ..Frozen::new((0..=255).chain(0..44).collect()) };
        let walk = |guest: &dyn GuestMemory| {
            let (mut long, mut last) = ([0; 100], [0; 4]);
            let ends = [guest.read(60, &mut long), guest.read(296, &mut last), guest.read(297, &mut [0; 4])];
            (long, last, ends, guest.read(300, &mut []), guest.global(0), guest.global(9))
        };
        let snapshot = Snapshot::record(&guest, |guest| _ = walk(guest));
        assert_eq!(snapshot.blocks.keys().collect::<Vec<_>>(), [&0, &1, &2, &4]);
        assert_eq!((snapshot.size, snapshot.globals.len()), (300, 1));
        let replayed = snapshot.replay();
        assert_eq!(walk(&replayed), walk(&guest));
        assert_eq!((replayed.size(), replayed.missed.get()), (300, 0));
        assert_eq!(replayed.global(1), None);
        assert_eq!(replayed.read(190, &mut [0; 4]), Err(OutOfBounds));
        assert_eq!(replayed.read(u64::MAX, &mut [0; 4]), Err(OutOfBounds));
        assert_eq!(replayed.missed.get(), 1);
    }
}
