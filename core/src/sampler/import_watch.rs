//! Calls of imports at which the guest's stacks are to be read.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use wlprof_recording::ModuleId;
use wlprof_walk::Dump;

/// Who is told: which of the functions was called, which call of any of them it is, from 1, and the stacks.
type Tell = dyn Fn(usize, u64, Dump) + Send + Sync;

/// Has the guest's stacks read where it calls certain imports, by an instruction that names them: calls through a table and
/// tail calls are not seen. The signal sampler alone does it.
pub struct ImportWatch {
    functions: Vec<(ModuleId, u32)>,
    limit: u64,
    calls: AtomicU64,
    tell: Box<Tell>,
}

/// A call that is to be told of.
pub(super) struct WatchedCall {
    function: usize,
    number: u64,
}

impl ImportWatch {
    /// Watches imported functions, by module and index. `tell` is called for the first `limit` calls of any of them, on the
    /// guest's thread, before the host does what it is called for.
    pub fn new(
        functions: Vec<(ModuleId, u32)>,
        limit: u64,
        tell: impl Fn(usize, u64, Dump) + Send + Sync + 'static,
    ) -> Self {
        Self { functions, limit, calls: AtomicU64::new(0), tell: Box::new(tell) }
    }

    /// How often they have been called, told of or not.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a call. `None` if it is not to be told of.
    pub(super) fn count(&self, called: (ModuleId, u32)) -> Option<WatchedCall> {
        let function = self.functions.iter().position(|function| *function == called)?;
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        (number <= self.limit).then_some(WatchedCall { function, number })
    }

    pub(super) fn tell(&self, call: WatchedCall, dump: Dump) {
        (self.tell)(call.function, call.number, dump);
    }
}

impl fmt::Debug for ImportWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportWatch")
            .field("functions", &self.functions)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
