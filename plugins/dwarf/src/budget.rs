//! A bound on the work that one module's DWARF can cause.
//!
//! DWARF is a graph of offsets: a thousand units may name the same line program, ten thousand functions the same range
//! list. Real producers write each thing once, so the work is about the size of the sections; hostile input makes it
//! quadratic. Every pass therefore pays for what it reads.

/// Why a piece of DWARF could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bytes are not DWARF, or not whole.
    Broken,
    /// The [`Budget`] is spent.
    Budget,
}

impl From<gimli::Error> for Fault {
    fn from(_: gimli::Error) -> Self {
        Self::Broken
    }
}

/// How much may still be read.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    /// Enough to read `bytes` of sections several times over, which no real module needs.
    pub(crate) fn for_sections(bytes: usize) -> Self {
        Self { left: (bytes as u64).saturating_mul(8).saturating_add(1 << 20) }
    }

    /// Pays for `amount` entries, rows or bytes.
    pub(crate) fn spend(&mut self, amount: usize) -> Result<(), Fault> {
        match self.left.checked_sub(amount as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Fault::Budget)
            }
        }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }
}
