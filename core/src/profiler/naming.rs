//! What names what was seen of a profiler's modules.

use crate::module::ModuleImage;
use crate::recording::{RawRecording, Recording};
use crate::sampler::{Session, Window};
use crate::symbols::{LanguageWalkers, Symbols};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use wlprof_plugin::Walker;

/// How long naming what a window has found may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names of modules, by their ids.
#[derive(Default)]
pub(super) struct Naming {
    /// They name what the walkers of instances find.
    namers: Vec<Option<Box<dyn Walker>>>,
    symbols: Symbols,
}

impl Naming {
    /// What was sampled in `window` so far, with names.
    ///
    /// # Errors
    /// If sampling is over.
    pub(super) fn recorded(&mut self, session: &Session, window: &Window) -> io::Result<Recording> {
        let images = self.follow(session);
        let mut names = LanguageWalkers::new(std::mem::take(&mut self.namers), &images).within(PATIENCE);
        let recorded = window.recording(&mut names);
        self.namers = names.into_walkers();
        // Frames that no sample is of may be of a module that has gone, whose id is another's by now.
        let raw = RawRecording::read(&mut &recorded?[..]).map_err(io::Error::other)?.with_used_frames();
        // Others may have come while it was recorded.
        self.follow(session);
        Ok(self.symbols.name(raw, |_| ()))
    }

    /// Takes up modules that have come, and drops what named those that have gone. Gives the modules that there are.
    pub(super) fn follow(&mut self, session: &Session) -> Vec<Arc<ModuleImage>> {
        // Each is given once.
        let (images, given) = session.take_images_and_namers();
        self.namers.resize_with(images.len(), || None);
        for ((id, image), (namer, given)) in (0..).zip(&images).zip(self.namers.iter_mut().zip(given)) {
            if self.symbols.image(id).is_none_or(|known| !Arc::ptr_eq(known, image)) {
                *namer = given;
                let walker = namer.as_ref().and_then(|namer| namer.fresh());
                self.symbols.set(id, image.clone(), walker);
            }
        }
        images
    }
}
