//! A bound on the work that one module's tables can cause.
//!
//! Tables that describe a program are graphs of offsets. A thousand units may name the same line program, or ten thousand functions the
//! same table of steps. Real producers write each thing once, so the work is about the size of the tables. A hostile producer makes it
//! quadratic, or worse. So every pass pays for what it reads and for what it keeps.

use std::{error::Error, fmt};

/// The work that may still be done.
///
/// The unit is about one entry read, one row decoded, or one byte kept. It counts work and memory, never time: the same module gives the
/// same names on every machine.
///
/// ```
/// let mut budget = wlprof_plugin::Budget::for_input(100, 2, 0);
/// assert!(budget.spend(150).is_ok());
/// assert!(budget.spend(51).is_err() && budget.is_spent());
/// ```
#[derive(Debug)]
pub struct Budget {
    left: u64,
    is_spent: bool,
}

impl Budget {
    /// Makes a budget of `amount` units.
    pub fn new(amount: u64) -> Self {
        Self { left: amount, is_spent: false }
    }

    /// Makes a budget in proportion to an input of `bytes`: `factor` units for each byte, and `floor` more for small inputs.
    pub fn for_input(bytes: usize, factor: u64, floor: u64) -> Self {
        Self::new((bytes as u64).saturating_mul(factor).saturating_add(floor))
    }

    /// Pays for `amount` units of work.
    ///
    /// # Errors
    /// If less than that is left. Then nothing is left for anything else either.
    pub fn spend(&mut self, amount: usize) -> Result<(), BudgetSpent> {
        match self.left.checked_sub(amount as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                (self.left, self.is_spent) = (0, true);
                Err(BudgetSpent)
            }
        }
    }

    /// Returns whether something was refused because too little was left.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }
}

/// The error of a [`Budget`] that did not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSpent;

impl fmt::Display for BudgetSpent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tables ask for more work than their size justifies")
    }
}

impl Error for BudgetSpent {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_stays_spent() {
        let mut budget = Budget::for_input(3, 2, 4);
        assert_eq!((budget.spend(10), budget.is_spent()), (Ok(()), false));
        assert_eq!((budget.spend(0), budget.spend(1), budget.is_spent()), (Ok(()), Err(BudgetSpent), true));
        let mut endless = Budget::for_input(usize::MAX, u64::MAX, u64::MAX);
        assert_eq!(endless.spend(usize::MAX), Ok(()));
    }
}
