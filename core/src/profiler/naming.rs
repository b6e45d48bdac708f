//! What names what was seen of a profiler's modules.

use crate::sampler::{Session, Window, WindowEnd};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use wlprof_module::ModuleImage;
use wlprof_plugin::Program;
use wlprof_recording::{RawRecording, Recording};
use wlprof_symbols::{ProgramNames, Symbols};

/// How long naming what a window has found may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names of modules, by their ids.
#[derive(Default)]
pub(super) struct Naming {
    images: Vec<Arc<ModuleImage>>,
    programs: Vec<Option<Arc<dyn Program>>>,
    /// Of the first modules, as many as there were when frames of wasm were last named.
    symbols: Symbols,
}

impl Naming {
    /// What was sampled in `window` so far, as the bytes of a recording with the names that only languages know.
    ///
    /// # Errors
    /// If sampling is over.
    pub(super) fn unnamed(&mut self, session: &Session, window: &Window) -> io::Result<Vec<u8>> {
        let end = window.until_now()?;
        // What has a module's id when it is asked for a name has it when the name comes.
        let _ids = session.hold_ids();
        self.recording(session, window, end)
    }

    /// What was sampled in `window` so far, with names.
    ///
    /// # Errors
    /// If sampling is over.
    pub(super) fn named(&mut self, session: &Session, window: &Window) -> io::Result<Recording> {
        let end = window.until_now()?;
        self.named_until(session, window, end)
    }

    /// What was sampled in `window` up to `end`, with names.
    ///
    /// # Errors
    /// If sampling is over.
    pub(super) fn named_until(&mut self, session: &Session, window: &Window, end: WindowEnd) -> io::Result<Recording> {
        let _ids = session.hold_ids();
        let recorded = self.recording(session, window, end)?;
        // Frames that no sample is of may be of a module that has gone, whose id is another's by now.
        let raw = RawRecording::read(&mut &recorded[..]).map_err(io::Error::other)?.with_used_frames();
        // Others may have come while it was recorded.
        self.follow(session);
        (self.symbols.count()..self.images.len()).for_each(|id| self.set_symbols(session, id));
        Ok(self.symbols.name(raw, |_| ()))
    }

    fn recording(&mut self, session: &Session, window: &Window, end: WindowEnd) -> io::Result<Vec<u8>> {
        self.follow(session);
        window.recording(end, &mut ProgramNames::new(&self.programs, &self.images).within(PATIENCE))
    }

    /// Takes up modules that have come, and drops what named those that have gone.
    pub(super) fn follow(&mut self, session: &Session) {
        let (images, programs) = session.images_and_programs();
        let is_replaced = |id: &usize| !Arc::ptr_eq(&self.images[*id], &images[*id]);
        let replaced: Vec<usize> = (0..self.symbols.count()).filter(is_replaced).collect();
        (self.images, self.programs) = (images, programs);
        replaced.into_iter().for_each(|id| self.set_symbols(session, id));
    }

    fn set_symbols(&mut self, session: &Session, id: usize) {
        let program = self.programs[id].clone();
        let has_program = |sibling: &usize| self.programs.get(*sibling).is_some_and(Option::is_some);
        let siblings = if program.is_none() { session.siblings(id) } else { Vec::new() };
        self.symbols.set(id, self.images[id].clone(), program, siblings.into_iter().find(has_program));
    }
}
