//! Reads of structures: a few members at once.

use wlprof_plugin::{GuestMemory, Truncation};

/// Most of a structure that is read: more than what lies before the last member of interest in any of them.
const LARGEST: usize = 128;

/// How much is compared at once.
const COMPARED: usize = 256;

/// The first bytes of a structure.
pub(crate) struct Window {
    bytes: [u8; LARGEST],
    length: usize,
}

impl Window {
    /// Reads `length` bytes, at most 128.
    pub(crate) fn read(guest: &dyn GuestMemory, address: u32, length: u32) -> Result<Self, Truncation> {
        let (mut bytes, length) = ([0; LARGEST], length as usize);
        guest.read(address.into(), bytes.get_mut(..length).ok_or(Truncation::Inconsistent)?)?;
        Ok(Self { bytes, length })
    }

    pub(crate) fn array<const N: usize>(&self, offset: u32) -> Result<[u8; N], Truncation> {
        let start = offset as usize;
        let bytes = self.bytes.get(start..self.length).and_then(|bytes| bytes.first_chunk());
        bytes.copied().ok_or(Truncation::Inconsistent)
    }

    /// What was read from `offset` on.
    pub(crate) fn after(&self, offset: u32) -> &[u8] {
        self.bytes.get(offset as usize..self.length).unwrap_or_default()
    }

    pub(crate) fn half(&self, offset: u32) -> Result<u16, Truncation> {
        Ok(u16::from_le_bytes(self.array(offset)?))
    }

    pub(crate) fn word(&self, offset: u32) -> Result<u32, Truncation> {
        Ok(u32::from_le_bytes(self.array(offset)?))
    }

    pub(crate) fn long(&self, offset: u32) -> Result<u64, Truncation> {
        Ok(u64::from_le_bytes(self.array(offset)?))
    }
}

/// The word at `offset` of the structure at `base`.
pub(crate) fn word(guest: &dyn GuestMemory, base: u32, offset: u32) -> Result<u32, Truncation> {
    Ok(guest.read_u32(u64::from(base) + u64::from(offset))?)
}

/// Whether these bytes are at `address`.
pub(crate) fn holds(guest: &dyn GuestMemory, address: u64, bytes: &[u8]) -> Result<bool, Truncation> {
    let mut there = [0; COMPARED];
    let mut at = address;
    for part in bytes.chunks(COMPARED) {
        let there = there.get_mut(..part.len()).unwrap_or_default();
        guest.read(at, there)?;
        if there != part {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    Ok(true)
}
