//! Modules that the embedder lets go of: first their code, once nothing that was sampled of it waits to be recorded, and then
//! their names, once no sample that is kept needs them.

use super::shared::{LoadedModule, Shared};
use crate::recording::{ModuleId, Recorder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Modules that are to go.
#[derive(Default)]
pub(super) struct Unloading {
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    modules: Vec<ModuleId>,
    /// Nobody sees to it any more.
    is_over: bool,
}

impl Unloading {
    /// A module is to go. From any thread; the drain sees to it. `false` if there is none any more: whoever asks does it himself.
    pub(super) fn ask(&self, module: ModuleId) -> bool {
        let mut asked = self.asked();
        if !asked.is_over {
            asked.modules.push(module);
        }
        !asked.is_over
    }

    /// Those that are to go since this was last asked. What is sampled of them from here on is of no account.
    pub(super) fn take_asked(&self) -> Vec<ModuleId> {
        std::mem::take(&mut self.asked().modules)
    }

    /// As [`Unloading::take_asked`], for the last time.
    pub(super) fn take_last(&self) -> Vec<ModuleId> {
        let mut asked = self.asked();
        asked.is_over = true;
        std::mem::take(&mut asked.modules)
    }

    /// Whether nobody sees to it any more: nothing is recorded from here on.
    pub(super) fn is_over(&self) -> bool {
        self.asked().is_over
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long what cannot be let go of yet is left alone: finding out goes through all that is kept.
const BETWEEN_LOOKS_NS: u64 = 500_000_000;

/// Modules on their way out, as the drain knows them.
#[derive(Default)]
pub(super) struct Leaving {
    /// There is code that nobody finds any more, and that somebody may be reading still.
    is_code_held: bool,
    /// Modules that samples may be of.
    named: BTreeMap<ModuleId, Named>,
    /// When those were last looked for, in nanoseconds since sampling began.
    looked_ns: u64,
    /// What is to be dropped.
    forgotten: Vec<Arc<LoadedModule>>,
}

struct Named {
    /// When its code went, in nanoseconds since sampling began.
    gone_ns: u64,
    /// Itself, which a store may be walked with still.
    module: Weak<LoadedModule>,
}

impl Leaving {
    /// The code of `modules` goes, now that all that was sampled of it has been recorded.
    pub(super) fn code_goes(&mut self, modules: &[ModuleId], now_ns: u64, shared: &Shared, recorder: &mut Recorder) {
        shared.code.remove(modules);
        self.is_code_held = true;
        // Of some there may never have been a sample.
        let mut new = modules.iter().copied().collect();
        self.forgotten.append(&mut shared.forget(&mut new, recorder));
        self.named.extend(new.into_iter().filter_map(|id| {
            let module = Arc::downgrade(&shared.module(id)?);
            Some((id, Named { gone_ns: now_ns, module }))
        }));
    }

    /// Lets go of code as soon as nobody reads it.
    pub(super) fn free_code(&mut self, shared: &Shared) {
        self.is_code_held = self.is_code_held && !shared.code.free_removed();
    }

    /// Whether to look, at `now_ns`, for modules that nothing in the recorder is of: there are some that no sample from `first_ns` on can
    /// be of, and that no store has.
    pub(super) fn is_due(&mut self, first_ns: u64, now_ns: u64) -> bool {
        let is_due = now_ns >= self.looked_ns + BETWEEN_LOOKS_NS
            && self.named.values().any(|named| named.gone_ns < first_ns && named.module.strong_count() == 1);
        if is_due {
            self.looked_ns = now_ns;
        }
        is_due
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
