//! Bounded reads of the stopped guest's memory and globals.

use std::fmt;

/// The error of a read past the end of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address is outside the guest's memory")
    }
}

impl std::error::Error for OutOfBounds {}

/// The memory that is walked, and the globals of the attached module's instance, frozen for the length of one walk.
///
/// Addresses are guest addresses: offsets into linear memory. Every read is checked; none can fault.
///
/// ```
/// use wlprof_plugin::{GuestMemory, OutOfBounds};
///
/// /// Reads the pointer at the head of a list, and the number that it leads to.
/// fn first(guest: &dyn GuestMemory, head: u64) -> Result<u32, OutOfBounds> {
///     guest.read_u32(u64::from(guest.read_u32(head)?))
/// }
/// ```
pub trait GuestMemory {
    /// Returns the size of the memory in bytes.
    fn size(&self) -> u64;

    /// Fills `buffer` from `address`.
    ///
    /// # Errors
    /// [`OutOfBounds`] if any byte of the range lies outside; `buffer` is then unspecified.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds>;

    /// Returns the raw bits of global `index` in the index space of the attached module, imports first.
    ///
    /// An i32 is zero-extended. `None` if there is no such global, or if the walker did not ask for it in
    /// [`Program::wanted_globals`](crate::Program::wanted_globals).
    fn global(&self, index: u32) -> Option<u64>;

    /// Returns the whole memory where it can be read in place, since nothing can write it meanwhile.
    ///
    /// `None` where only [`GuestMemory::read`] can. This is for code that hands a guest on, so that a read is not one call more. A walker
    /// gains nothing by it.
    fn in_place(&self) -> Option<&[u8]> {
        None
    }

    /// Reads a byte.
    ///
    /// # Errors
    /// [`OutOfBounds`] as for [`GuestMemory::read`].
    fn read_u8(&self, address: u64) -> Result<u8, OutOfBounds> {
        let mut bytes = [0; 1];
        self.read(address, &mut bytes)?;
        Ok(bytes[0])
    }

    /// Reads a little-endian 32-bit word.
    ///
    /// # Errors
    /// [`OutOfBounds`] as for [`GuestMemory::read`].
    fn read_u32(&self, address: u64) -> Result<u32, OutOfBounds> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads a little-endian 64-bit word.
    ///
    /// # Errors
    /// [`OutOfBounds`] as for [`GuestMemory::read`].
    fn read_u64(&self, address: u64) -> Result<u64, OutOfBounds> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
