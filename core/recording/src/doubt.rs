//! How much of a time may be another function's: of samples that were taken at checks compiled into the guest.

use super::{Recording, StackId, State};
use std::collections::HashMap;

/// How much of the time that a function is shown with may be another's. Of samples of the epoch sampler alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    /// Nanoseconds that were spent before the function began: [`State::Entering`].
    pub entering_ns: u64,
    /// Nanoseconds that may be of functions which it had called: [`State::Returned`].
    pub returned_ns: u64,
}

impl Doubt {
    /// Adds another time's.
    pub(super) fn add(&mut self, other: Self) {
        self.entering_ns = self.entering_ns.saturating_add(other.entering_ns);
        self.returned_ns = self.returned_ns.saturating_add(other.returned_ns);
    }
}

impl Recording {
    /// The doubts about what is innermost on each stack. Those without any are left out.
    pub(super) fn doubts(&self) -> HashMap<StackId, Doubt> {
        let mut doubts = HashMap::<StackId, Doubt>::new();
        for draw in self.draws() {
            let doubt = match draw.state {
                State::Entering => Doubt { entering_ns: draw.period_ns, returned_ns: 0 },
                State::Returned => Doubt { entering_ns: 0, returned_ns: draw.period_ns },
                State::Guest | State::Host | State::Blocked => continue,
            };
            doubts.entry(draw.stack).or_default().add(doubt);
        }
        doubts
    }
}
