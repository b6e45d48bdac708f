//! Modules that the embedder lets go of: first their code, once nothing that was sampled of it waits to be recorded, and then
//! their names, once no sample that is kept needs them.

use super::shared::{LoadedModule, Shared};
use crate::recording::{ModuleId, Recorder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Modules that are to go.
#[derive(Default)]
pub(super) struct Unloading {
    asked: Mutex<Vec<ModuleId>>,
}

impl Unloading {
    /// A module is to go. From any thread; the drain sees to it.
    pub(super) fn ask(&self, module: ModuleId) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(module);
    }

    /// Those that are to go since this was last asked. What is sampled of them from here on is of no account.
    pub(super) fn take_asked(&self) -> Vec<ModuleId> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Modules on their way out, as the drain knows them.
#[derive(Default)]
pub(super) struct Leaving {
    /// There is code that nobody finds any more, and that somebody may be reading still.
    is_code_held: bool,
    /// Modules that samples may be of, and when their code went, in nanoseconds since sampling began.
    named: BTreeMap<ModuleId, u64>,
    /// What is to be dropped.
    forgotten: Vec<Arc<LoadedModule>>,
}

impl Leaving {
    /// The code of `modules` goes, now that all that was sampled of it has been recorded.
    pub(super) fn code_goes(&mut self, modules: &[ModuleId], now_ns: u64, shared: &Shared, recorder: &mut Recorder) {
        shared.code.remove(modules);
        self.is_code_held = true;
        // Of some there may never have been a sample.
        let mut new = modules.iter().copied().collect();
        self.forgotten.append(&mut shared.forget(&mut new, recorder));
        self.named.extend(new.into_iter().map(|module| (module, now_ns)));
    }

    /// Lets go of code as soon as nobody reads it.
    pub(super) fn free_code(&mut self, shared: &Shared) {
        self.is_code_held = self.is_code_held && !shared.code.free_removed();
    }

    /// Whether there are modules that no sample from `first_ns` on can be of.
    pub(super) fn any_before(&self, first_ns: u64) -> bool {
        self.named.values().any(|gone_ns| *gone_ns < first_ns)
    }

    /// Lets go of the modules that nothing in the recorder is of.
    pub(super) fn names_go(&mut self, shared: &Shared, recorder: &mut Recorder) {
        let mut named = self.named.keys().copied().collect();
        self.forgotten.append(&mut shared.forget(&mut named, recorder));
        self.named.retain(|module, _| named.contains(module));
    }

    /// Drops what was let go of, which may be large. To be called where nobody waits for it.
    pub(super) fn drop_forgotten(&mut self) {
        self.forgotten.clear();
    }
}
