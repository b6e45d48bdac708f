//! Tables of lines, files and inlined calls, decoded: from the blocks of a function to values.
//!
//! In the module they are lists of differences, to be gone through from the start for every lookup, and nothing keeps a
//! thousand functions from sharing one that is long. Each is decoded once, all within a budget.

use crate::pclntab::Pclntab;
use std::collections::HashMap;
use wlprof_plugin::Budget;

/// Steps for each byte of the module's data, of which these tables are a part and take two bytes a step; and at least.
const FACTOR: u64 = 1;
const FLOOR: u64 = 1 << 20;

/// The tables that were asked for so far.
#[derive(Debug)]
pub(crate) struct DecodedTables {
    /// By their offset: values, and the blocks at which they end, ascending.
    tables: HashMap<u32, Box<[(i32, u32)]>>,
    budget: Budget,
}

impl DecodedTables {
    /// For a module with so many bytes of data.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { tables: HashMap::new(), budget: Budget::for_input(bytes, FACTOR, FLOOR) }
    }

    /// What the table at `offset` says of `block`.
    pub(crate) fn value(&mut self, pclntab: &Pclntab, offset: u32, block: u32) -> Option<i32> {
        if offset == 0 {
            return None;
        }
        let budget = &mut self.budget;
        let decode = || pclntab.steps(offset).take_while(|_| budget.spend(1).is_ok()).collect();
        let steps = self.tables.entry(offset).or_insert_with(decode);
        let at = steps.partition_point(|(_, end)| *end <= block);
        Some(steps.get(at)?.0)
    }

    /// Whether tables were left out for want of budget.
    pub(crate) fn gave_up(&self) -> bool {
        self.budget.is_spent()
    }
}
