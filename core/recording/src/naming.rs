//! Names of languages' own frames and labels while guests run, so that a recording that is cut short has them.

use super::{ModuleId, NameSource, Recorder};
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wlprof_plugin::{FrameKey, Program};

/// Names what a recorder has met that has no name yet.
///
/// ```
/// use std::time::Duration;
/// use wlprof_recording::{Journal, Meta, Naming, Recorder};
///
/// let mut recorder = Recorder::new(Vec::new(), Meta::default(), Journal::default());
/// // No module has a language.
/// Naming::default().name(&mut recorder, Duration::from_millis(5), |_module| None);
/// ```
#[derive(Debug, Default)]
pub struct Naming {
    unnamed: VecDeque<NameSource>,
    has_failed: bool,
}

impl Naming {
    /// Others will have the ids of these modules.
    pub fn forget_modules(&mut self, modules: &BTreeSet<ModuleId>) {
        self.unnamed.retain(|unnamed| !modules.contains(&unnamed.module()));
    }

    /// Names some of what has been met, by the programs of the modules, for no longer than one name beyond `patience`.
    ///
    /// Once a program has panicked nothing more is named: it is asked again when the recording is closed.
    pub fn name(
        &mut self,
        recorder: &mut Recorder,
        patience: Duration,
        program_of: impl Fn(ModuleId) -> Option<Arc<dyn Program>>,
    ) {
        self.unnamed.extend(recorder.take_unnamed());
        if self.has_failed {
            self.unnamed.clear();
        }
        let began = Instant::now();
        while let Some(unnamed) = self.unnamed.pop_front() {
            if let Some(program) = program_of(unnamed.module()) {
                let named = catch_unwind(AssertUnwindSafe(|| name(&*program, unnamed, recorder)));
                self.has_failed |= named.is_err();
            }
            if self.has_failed || began.elapsed() > patience {
                return;
            }
        }
    }
}

fn name(program: &dyn Program, unnamed: NameSource, recorder: &mut Recorder) {
    match unnamed {
        NameSource::Frame(module, key) => {
            let mut frames = Vec::new();
            program.symbolize(FrameKey::Own(key), &mut frames);
            recorder.name_frame(module, key, frames);
        }
        NameSource::Labels(module, key) => {
            let mut labels = Vec::new();
            program.labels(key, &mut labels);
            recorder.name_labels(module, key, labels);
        }
    }
}
