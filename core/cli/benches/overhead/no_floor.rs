//! Where a thread has no timers that signal it: there is no floor.

use anyhow::{Result, bail};

/// What cannot be had.
pub(crate) struct Floor;

impl Floor {
    /// Says so.
    pub(crate) fn start(_hz: f64) -> Result<Self> {
        bail!("signals of a thread's own timers are Linux's alone")
    }
}
