//! Windows that are pushed to a server while the program runs.

use crate::profiler::{OpenWindow, Profiler};
use std::io;
use wlprof_push::{Push, Pushing, Windows};
use wlprof_recording::Recording;

impl Profiler {
    /// Pushes what is sampled to a server, window after window, until what is returned is ended or dropped.
    ///
    /// ```no_run
    /// use wlprof_inside::{Profiler, Push};
    ///
    /// let profiler = Profiler::start()?;
    /// let pushing = profiler.push(Push::to("pyroscope://localhost:4040")?.service("shop").labels(["tenant"]))?;
    /// // The program runs.
    /// pushing.end();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Overhead
    /// Sampling stops for some milliseconds at the end of each window. Windows are named and sent on threads of their own.
    ///
    /// # Errors
    /// Why nothing is sampled, or as of [`Push::start`].
    pub fn push(&self, push: Push) -> io::Result<Pushing> {
        let window = Some(self.window()?);
        push.windows(ProfilerWindows { profiler: self.clone(), window })
    }
}

/// Windows of a profiler that follow each other.
struct ProfilerWindows {
    profiler: Profiler,
    window: Option<OpenWindow>,
}

impl Windows for ProfilerWindows {
    fn begin(&mut self) -> bool {
        if self.window.is_none() {
            self.window = self.profiler.window().ok();
        }
        self.window.is_some()
    }

    fn next(&mut self) -> io::Result<Recording> {
        let window = self.window.take().ok_or_else(|| io::Error::other("nothing is sampled"))?;
        let (recording, next) = window.next()?;
        self.window = Some(next);
        Ok(recording)
    }
}
