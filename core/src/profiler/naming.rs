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
    /// Of the first modules, as many as have been asked for names.
    symbols: Symbols,
}

impl Naming {
    /// What was sampled in `window` so far, with names. `images` gives those of all modules that there are by then.
    ///
    /// # Errors
    /// If sampling is over.
    pub(super) fn recorded(
        &mut self,
        session: &Session,
        window: &Window,
        images: impl Fn() -> Vec<Arc<ModuleImage>>,
    ) -> io::Result<Recording> {
        self.take_namers(session, &images());
        let mut names = LanguageWalkers::new(std::mem::take(&mut self.namers), &images()).within(PATIENCE);
        let recorded = window.recording(&mut names);
        self.namers = names.into_walkers();
        let raw = RawRecording::read(&mut &recorded?[..]).map_err(io::Error::other)?;
        // Others may have come while it was recorded.
        self.take_namers(session, &images());
        Ok(self.symbols.name(raw, |_| ()))
    }

    fn take_namers(&mut self, session: &Session, images: &[Arc<ModuleImage>]) {
        // Each is given once; there may be more of them by now than there were images.
        let given = session.take_namers();
        self.namers.resize_with(given.len().max(images.len()), || None);
        for (namer, new) in self.namers.iter_mut().zip(given) {
            *namer = namer.take().or(new);
        }
        for (image, namer) in images.iter().zip(&self.namers).skip(self.symbols.count()) {
            let walker = namer.as_ref().and_then(|namer| namer.fresh());
            self.symbols.add(image.clone(), walker);
        }
    }
}
