//! What only languages can name: frames by their own keys, and labels.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wlprof_module::ModuleImage;
use wlprof_plugin::{FrameKey, Label, ModuleView, Program, SourceFrame};
use wlprof_recording::{LanguageNames, ModuleId};

/// How long all of it may take. What is not named by then is shown by its number.
const PATIENCE: Duration = Duration::from_secs(120);

/// The programs of a run, asked for names.
pub struct ProgramNames {
    programs: Vec<Option<Arc<dyn Program>>>,
    modules: Vec<Arc<ModuleImage>>,
    /// When it is given up; set by the first question.
    until: Option<Instant>,
    patience: Duration,
    notes: Vec<String>,
    is_over: bool,
    hurry: Arc<AtomicBool>,
}

impl ProgramNames {
    /// Asks these programs, of `modules`.
    pub fn new(programs: &[Option<Arc<dyn Program>>], modules: &[Arc<ModuleImage>]) -> Self {
        let (programs, modules, hurry) = (programs.to_vec(), modules.to_vec(), Arc::default());
        Self { programs, modules, until: None, patience: PATIENCE, notes: Vec::new(), is_over: false, hurry }
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

    /// What `ask` gives of the program of `module`; nothing if that panics, now or before, or if time is up.
    fn ask<T: Default>(&mut self, module: ModuleId, ask: impl FnOnce(&dyn Program) -> T) -> T {
        if self.is_over || self.hurry.load(Ordering::Relaxed) {
            return T::default();
        }
        let now = Instant::now();
        if now > *self.until.get_or_insert(now + self.patience) {
            self.stop(format!("naming what was seen took longer than {} s", self.patience.as_secs()));
            return T::default();
        }
        let Some(Some(program)) = self.programs.get(module as usize) else { return T::default() };
        let asked = catch_unwind(AssertUnwindSafe(|| ask(&**program)));
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

impl LanguageNames for ProgramNames {
    fn own_frame(&mut self, module: ModuleId, key: u64, out: &mut Vec<SourceFrame>) {
        let mut frames = self.ask(module, |program| {
            let mut frames = Vec::new();
            program.symbolize(FrameKey::Own(key), &mut frames);
            frames
        });
        out.append(&mut frames);
    }

    fn labels(&mut self, module: ModuleId, key: u64) -> Vec<Label> {
        self.ask(module, |program| {
            let mut labels = Vec::new();
            program.labels(key, &mut labels);
            labels
        })
    }

    fn notes(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for module in 0..self.modules.len() {
            let warnings = self.ask(module as ModuleId, |program| program.warnings());
            told.extend(warnings.iter().map(|warning| format!("{}: {warning}", self.modules[module].name())));
        }
        // Last: asking may have failed.
        let mut notes = std::mem::take(&mut self.notes);
        notes.append(&mut told);
        notes
    }
}
