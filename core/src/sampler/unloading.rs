//! Modules that the embedder lets go of: first their code, once nothing that was sampled of it waits to be recorded, and then
//! their names, once no sample that is kept needs them.

use super::shared::{LoadedModule, Shared};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use wlprof_recording::{ModuleId, Recorder};

/// Modules that are to go.
#[derive(Default)]
pub(super) struct UnloadQueue {
    asked: Mutex<UnloadRequest>,
}

#[derive(Default)]
struct UnloadRequest {
    modules: Vec<ModuleId>,
    /// Nobody sees to it any more.
    is_over: bool,
}

impl UnloadQueue {
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

    /// Those that were taken and have not been let go of are to go when this is asked for the last time.
    pub(super) fn give_back(&self, modules: Vec<ModuleId>) {
        self.asked().modules.extend(modules);
    }

    /// As [`UnloadQueue::take_asked`], for the last time.
    pub(super) fn take_last(&self) -> Vec<ModuleId> {
        let mut asked = self.asked();
        asked.is_over = true;
        std::mem::take(&mut asked.modules)
    }

    /// Whether nobody sees to it any more: nothing is recorded from here on.
    pub(super) fn is_over(&self) -> bool {
        self.asked().is_over
    }

    fn asked(&self) -> MutexGuard<'_, UnloadRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long what cannot be let go of yet is left alone: finding out goes through all that is kept.
const BETWEEN_LOOKS_NS: u64 = 500_000_000;

/// Modules on their way out, as the drain knows them.
#[derive(Default)]
pub(super) struct LeavingModules {
    /// There is code that nobody finds any more, and that somebody may be reading still.
    is_code_held: bool,
    /// Modules that samples may be of.
    named: BTreeMap<ModuleId, NamedModule>,
    /// When those were last looked for, in nanoseconds since sampling began.
    looked_ns: u64,
    /// Those that join in this round and that nobody had when it began.
    free: BTreeSet<ModuleId>,
    /// What is to be dropped.
    forgotten: Vec<Arc<LoadedModule>>,
}

struct NamedModule {
    /// When its code went, in nanoseconds since sampling began.
    gone_ns: u64,
    /// Itself, which a store may be walked with still.
    module: Weak<LoadedModule>,
    /// Nobody had it any more when this round began.
    is_free: bool,
}

impl LeavingModules {
    /// Notes which modules nobody has any more, of those that are on their way and of these that join them. To be called before what is
    /// in the rings is recorded: what had a module meanwhile may have left samples of it there.
    pub(super) fn look_who_has_them(&mut self, joining: &[ModuleId], shared: &Shared) {
        self.named.values_mut().for_each(|named| named.is_free = named.module.strong_count() == 1);
        self.free = joining.iter().copied().filter(|id| shared.is_free(*id)).collect();
    }

    /// The code of `modules` goes, now that all that was sampled of it has been recorded.
    pub(super) fn code_goes(&mut self, modules: &[ModuleId], now_ns: u64, shared: &Shared, recorder: &mut Recorder) {
        shared.code.remove(modules);
        self.is_code_held = true;
        // Of some there may never have been a sample.
        let mut free = std::mem::take(&mut self.free);
        let forgotten = shared.forget(&mut free, recorder);
        let left = modules.iter().filter(|id| !forgotten.iter().any(|module| module.id == **id));
        self.named.extend(left.filter_map(|id| {
            let module = Arc::downgrade(&shared.module(*id)?);
            Some((*id, NamedModule { gone_ns: now_ns, module, is_free: false }))
        }));
        self.forgotten.extend(forgotten);
    }

    /// Lets go of code as soon as nobody reads it.
    pub(super) fn free_code(&mut self, shared: &Shared) {
        self.is_code_held = self.is_code_held && !shared.code.free_removed();
    }

    /// Whether to look, at `now_ns`, for modules that nothing in the recorder is of: there are some that no sample from `first_ns` on can
    /// be of, and that nobody has.
    pub(super) fn is_due(&mut self, first_ns: u64, now_ns: u64) -> bool {
        let is_due = now_ns >= self.looked_ns + BETWEEN_LOOKS_NS
            && self.named.values().any(|named| named.gone_ns < first_ns && named.is_free);
        if is_due {
            self.looked_ns = now_ns;
        }
        is_due
    }

    /// Lets go of the modules that nothing in the recorder is of, at `now_ns`.
    pub(super) fn names_go(&mut self, now_ns: u64, shared: &Shared, recorder: &mut Recorder) {
        let mut free = self.named.iter().filter(|(_, named)| named.is_free).map(|(id, _)| *id).collect();
        for module in shared.forget(&mut free, recorder) {
            self.named.remove(&module.id);
            self.forgotten.push(module);
        }
        // What is kept is of them still: they are looked for again when that is too old.
        let needed = self.named.iter_mut().filter(|(id, _)| free.contains(id));
        needed.for_each(|(_, named)| named.gone_ns = now_ns);
    }

    /// Drops what was let go of, which may be large. To be called where nobody waits for it.
    pub(super) fn drop_forgotten(&mut self) {
        self.forgotten.clear();
    }

    /// Those that have not been let go of, when nothing is recorded any more.
    pub(super) fn into_left(self) -> Vec<ModuleId> {
        self.named.into_keys().collect()
    }
}
