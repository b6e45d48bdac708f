//! Which processor this thread runs on: one that no sampled thread has.
//!
//! On the same processor it would come late to its instants, and how late would depend on for how long the sampled thread had been running: of
//! what a program does when it has just been woken, too little would be seen.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The processors that this thread may run on.
pub(crate) struct Processors {
    /// Before any was left; `None` if that is not known.
    all: Option<CpuSet>,
    /// Those of sampled threads, at the instant now and at the one before.
    taken: Vec<usize>,
    left: Vec<usize>,
}

impl Processors {
    pub(crate) fn of_this_thread() -> Self {
        Self { all: sched_getaffinity(Pid::from_raw(0)).ok(), taken: Vec::new(), left: Vec::new() }
    }

    /// A sampled thread runs on that processor.
    pub(crate) fn leave(&mut self, processor: usize) {
        if !self.taken.contains(&processor) {
            self.taken.push(processor);
        }
    }

    /// All threads have been looked at: leaves the processors that they have, if there are others.
    pub(crate) fn move_on(&mut self) {
        self.taken.sort_unstable();
        let taken = std::mem::take(&mut self.taken);
        if taken.is_empty() || taken == self.left {
            return;
        }
        let Some(all) = self.all else { return };
        let mut free = all;
        let removed = taken.iter().all(|processor| free.unset(*processor).is_ok());
        let has_some = (0..CpuSet::count()).any(|processor| free.is_set(processor) == Ok(true));
        // It may be forbidden, and samples are taken all the same.
        let _ = sched_setaffinity(Pid::from_raw(0), if removed && has_some { &free } else { &all });
        self.left = taken;
    }
}
