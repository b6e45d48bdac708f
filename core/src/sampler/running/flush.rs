//! Has the drain record all that has been sampled so far, for who wants to see it now.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long to wait for the drain, which may be kept from running.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often that was asked for, and done.
#[derive(Debug, Default)]
pub(in crate::sampler) struct Flush {
    counts: Mutex<Counts>,
    is_done: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    asked: u64,
    done: u64,
}

impl Flush {
    /// Asks for it with `wake` and waits until it is done. Should the drain not come to it, what there is must do.
    pub(in crate::sampler) fn wait(&self, wake: impl FnOnce()) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.asked += 1;
        let number = counts.asked;
        wake();
        // Whoever has panicked with this locked had counted.
        let _ = self.is_done.wait_timeout_while(counts, PATIENCE, |counts| counts.done < number);
    }

    /// The number of the last that was asked for and is not done.
    pub(in crate::sampler) fn asked(&self) -> Option<u64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        (counts.asked > counts.done).then_some(counts.asked)
    }

    /// Those up to `number` are done.
    pub(in crate::sampler) fn done(&self, number: u64) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).done = number;
        self.is_done.notify_all();
    }
}
