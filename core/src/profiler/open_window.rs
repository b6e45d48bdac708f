//! Windows of what is sampled.

use super::{Inner, Profiler};
use crate::sampler::Window;
use std::io;
use std::sync::PoisonError;
use std::time::Duration;
use wlprof_export::Snapshot;

/// A part of a run that is sampled until this is dropped, even if the profiler is paused. Any number of windows may overlap.
///
/// ```no_run
/// # fn window(profiler: &wlprof::Profiler) -> wasmtime::Result<()> {
/// let window = profiler.window()?;
/// std::thread::sleep(std::time::Duration::from_secs(10));
/// window.snapshot()?.save("ten-seconds.json")?;
/// # Ok(())
/// # }
/// ```
pub struct OpenWindow {
    window: Window,
    profiler: Profiler,
}

impl OpenWindow {
    pub(super) fn new(window: Window, profiler: Profiler) -> Self {
        Self { window, profiler }
    }

    /// Returns what was sampled in the window so far.
    ///
    /// # Errors
    /// If the thread that records has failed.
    pub fn snapshot(&self) -> wasmtime::Result<Snapshot> {
        let Inner { session, naming, .. } = &*self.profiler.0;
        let mut naming = naming.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Snapshot::of(naming.named(session, &self.window)?))
    }

    /// Returns what was sampled so far, and begins a window where this one ends: of windows that follow each other so, each sample is in one.
    ///
    /// # Errors
    /// If the thread that records has failed. This window is over then.
    pub fn next(self) -> wasmtime::Result<(Snapshot, Self)> {
        let Inner { session, naming, .. } = &*self.profiler.0;
        let end = self.window.until_now()?;
        let next = self.window.following(&end);
        let mut naming = naming.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = Snapshot::of(naming.named_until(session, &self.window, end)?);
        drop(naming);
        Ok((snapshot, Self::new(next, self.profiler.clone())))
    }

    /// Returns what was sampled so far, as the bytes of a recording whose wasm frames have no names yet.
    ///
    /// This is for naming them in another process, or not at all. [`RawRecording`](wlprof_recording::RawRecording) reads it.
    ///
    /// # Errors
    /// If the thread that records has failed.
    pub fn unnamed(&self) -> io::Result<Vec<u8>> {
        let Inner { session, naming, .. } = &*self.profiler.0;
        naming.lock().unwrap_or_else(PoisonError::into_inner).unnamed(session, &self.window)
    }

    /// Returns how long the window has been open.
    pub fn elapsed(&self) -> Duration {
        self.window.elapsed()
    }
}
