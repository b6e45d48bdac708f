//! What only the walkers can name that walked the languages' stacks: frames by their own keys, and labels.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wlprof_module::ModuleImage;
use wlprof_plugin::{FrameKey, Label, ModuleView, SourceFrame, Walker};
use wlprof_recording::{LanguageNames, ModuleId};

/// How long all of it may take. What is not named by then is shown by its number.
const PATIENCE: Duration = Duration::from_secs(120);

/// The walkers of a run that is over. A plugin may do what it likes when it is told to let go of one, so this is to be
/// dropped last, when the profile is written.
pub struct LanguageWalkers {
    walkers: Vec<Option<Box<dyn Walker>>>,
    modules: Vec<Arc<ModuleImage>>,
    /// When it is given up; set by the first question.
    until: Option<Instant>,
    patience: Duration,
    notes: Vec<String>,
    is_over: bool,
    hurry: Arc<AtomicBool>,
}

impl LanguageWalkers {
    /// Takes the walkers of `modules`.
    pub fn new(walkers: Vec<Option<Box<dyn Walker>>>, modules: &[Arc<ModuleImage>]) -> Self {
        let (modules, hurry) = (modules.to_vec(), Arc::default());
        Self { walkers, modules, until: None, patience: PATIENCE, notes: Vec::new(), is_over: false, hurry }
    }

    /// Has nothing more be named once `hurry` is set.
    #[must_use]
    pub fn until(self, hurry: Arc<AtomicBool>) -> Self {
        Self { hurry, ..self }
    }

    /// Has nothing more be named after so long.
    #[must_use]
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The walkers.
    pub fn into_walkers(self) -> Vec<Option<Box<dyn Walker>>> {
        self.walkers
    }

    /// The walkers, for a while.
    pub fn walkers_mut(&mut self) -> &mut Vec<Option<Box<dyn Walker>>> {
        &mut self.walkers
    }

    /// What `ask` gives of the walker of `module`; nothing if that panics, now or before, or if time is up.
    fn ask<T: Default>(&mut self, module: ModuleId, ask: impl FnOnce(&mut dyn Walker) -> T) -> T {
        if self.is_over || self.hurry.load(Ordering::Relaxed) {
            return T::default();
        }
        let now = Instant::now();
        if now > *self.until.get_or_insert(now + self.patience) {
            self.stop(format!("naming what was seen took longer than {} s", self.patience.as_secs()));
            return T::default();
        }
        let Some(Some(walker)) = self.walkers.get_mut(module as usize) else { return T::default() };
        let asked = catch_unwind(AssertUnwindSafe(|| ask(&mut **walker)));
        asked.unwrap_or_else(|_| {
            self.stop("the language plugin failed while it named what was seen".to_owned());
            T::default()
        })
    }

    fn stop(&mut self, why: String) {
        self.is_over = true;
        self.notes.push(format!("{why}; the rest has numbers instead of names"));
    }
}

impl LanguageNames for LanguageWalkers {
    fn own_frame(&mut self, module: ModuleId, key: u64, out: &mut Vec<SourceFrame>) {
        let mut frames = self.ask(module, |walker| {
            let mut frames = Vec::new();
            walker.symbolize(FrameKey::Own(key), &mut frames);
            frames
        });
        out.append(&mut frames);
    }

    fn labels(&mut self, module: ModuleId, key: u64) -> Vec<Label> {
        self.ask(module, |walker| {
            let mut labels = Vec::new();
            walker.labels(key, &mut labels);
            labels
        })
    }

    fn notes(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for module in 0..self.modules.len() {
            let warnings = self.ask(module as ModuleId, |walker| walker.warnings());
            told.extend(warnings.iter().map(|warning| format!("{}: {warning}", self.modules[module].name())));
        }
        // Last: asking may have failed.
        let mut notes = std::mem::take(&mut self.notes);
        notes.append(&mut told);
        notes
    }
}
