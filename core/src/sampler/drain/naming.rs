//! Names of languages' own frames and labels while guests run, so that a recording that is cut short has them.

use super::super::shared::Shared;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use wlprof_plugin::{FrameKey, Program};
use wlprof_recording::{Recorder, Unnamed};

/// How long naming may keep the drain from the rings at once.
const PATIENCE: Duration = Duration::from_millis(5);

/// What has been met and has no name yet.
#[derive(Debug, Default)]
pub(super) struct Naming {
    unnamed: VecDeque<Unnamed>,
    has_failed: bool,
}

impl Naming {
    /// Names some of what has been met.
    pub(super) fn name(&mut self, shared: &Shared, recorder: &mut Recorder) {
        self.unnamed.extend(recorder.take_unnamed());
        if self.has_failed {
            self.unnamed.clear();
        }
        let began = Instant::now();
        while let Some(unnamed) = self.unnamed.pop_front() {
            let module = shared.module(unnamed.module());
            if let Some(program) = module.as_ref().and_then(|module| module.program.as_deref()) {
                let named = catch_unwind(AssertUnwindSafe(|| name(program, unnamed, recorder)));
                // It is asked again at the end, where that costs only names.
                self.has_failed |= named.is_err();
            }
            if self.has_failed || began.elapsed() > PATIENCE {
                return;
            }
        }
    }
}

fn name(program: &dyn Program, unnamed: Unnamed, recorder: &mut Recorder) {
    match unnamed {
        Unnamed::Frame(module, key) => {
            let mut frames = Vec::new();
            program.symbolize(FrameKey::Own(key), &mut frames);
            recorder.name_frame(module, key, frames);
        }
        Unnamed::Labels(module, key) => {
            let mut labels = Vec::new();
            program.labels(key, &mut labels);
            recorder.name_labels(module, key, labels);
        }
    }
}
