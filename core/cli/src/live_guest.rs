//! A guest that runs, for what shows it meanwhile: `--listen` and `wlprof top`.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use wlprof::profiler::{OpenWindow, Profiler};
use wlprof::sampler::{Activity, Dump};
use wlprof_module::ModuleImage;
use wlprof_recording::Clock;

/// A guest that runs.
pub(super) trait LiveGuest: Send + Sync {
    /// Whether it has begun, so that windows can be opened.
    fn has_begun(&self) -> bool;

    /// Opens a window of its run, with samples that stand for time of `clock`.
    ///
    /// # Errors
    /// Why there is none, in words for the user.
    fn window_of(&self, clock: Clock) -> Result<Box<dyn LiveWindow>, String>;

    /// Reads all its stacks of now.
    ///
    /// # Errors
    /// Why they cannot be read, in words for the user.
    fn dump(&self) -> Result<Dump, String>;

    /// Returns what it has done so far. All is zero before it has begun.
    fn activity(&self) -> Activity;

    /// Returns its modules of now, by the ids that frames have.
    fn images(&self) -> Vec<Arc<ModuleImage>>;
}

/// A part of a guest's run, from when it was opened until it is dropped.
pub(super) trait LiveWindow: Send {
    /// Returns what was sampled so far, as the bytes of a recording whose wasm frames have no names yet.
    ///
    /// # Errors
    /// If sampling is over.
    fn unnamed(&self) -> io::Result<Vec<u8>>;

    /// Returns how long it has been open.
    fn elapsed(&self) -> Duration;
}

/// A guest that this process runs.
pub(super) struct OwnGuest {
    pub(super) profiler: Profiler,
    pub(super) images: Vec<Arc<ModuleImage>>,
}

impl LiveGuest for OwnGuest {
    fn has_begun(&self) -> bool {
        self.profiler.has_begun()
    }

    fn window_of(&self, clock: Clock) -> Result<Box<dyn LiveWindow>, String> {
        match self.profiler.window_of(clock) {
            Ok(window) => Ok(Box::new(window)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn dump(&self) -> Result<Dump, String> {
        self.profiler.dump()
    }

    fn activity(&self) -> Activity {
        self.profiler.activity().unwrap_or_default()
    }

    fn images(&self) -> Vec<Arc<ModuleImage>> {
        self.images.clone()
    }
}

impl LiveWindow for OpenWindow {
    fn unnamed(&self) -> io::Result<Vec<u8>> {
        OpenWindow::unnamed(self)
    }

    fn elapsed(&self) -> Duration {
        OpenWindow::elapsed(self)
    }
}
