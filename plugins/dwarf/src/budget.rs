//! What reading one module's DWARF may cost, and why a piece of it could not be read.

use wlprof_plugin::{Budget, BudgetSpent};

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

impl From<BudgetSpent> for Fault {
    fn from(_: BudgetSpent) -> Self {
        Self::Budget
    }
}

/// Work for each byte of the sections. Naming every instruction of CPython takes less than six.
const FACTOR: u64 = 16;
/// Work for modules of any size.
const FLOOR: u64 = 4 << 20;

/// The same for line tables alone, so that names remain if these ask for too much.
const LINES_FACTOR: u64 = 8;

/// Enough to read the line tables of `bytes` of sections.
pub(crate) fn for_lines(bytes: usize) -> Budget {
    Budget::for_input(bytes, LINES_FACTOR, FLOOR)
}

/// Enough to read `bytes` of sections several times over.
pub(crate) fn for_sections(bytes: usize) -> Budget {
    Budget::for_input(bytes, FACTOR, FLOOR)
}
