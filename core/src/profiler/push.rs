//! Windows that are pushed to a server while the program runs.

use super::{OpenWindow, Profiler};
use std::io;
use std::sync::Arc;
use wlprof_push::{Push, Pushing, Windows};
use wlprof_recording::Recording;

impl Profiler {
    /// Pushes what is sampled to a server, window after window, until what is returned is ended or dropped.
    ///
    /// Meanwhile guests are sampled even if the profiler is paused. Where heaps are profiled, what guests have allocated is pushed as well.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut config = wasmtime::Config::new();
    /// # wlprof::configure(&mut config);
    /// # let engine = wasmtime::Engine::new(&config)?;
    /// use wlprof::{Profiler, Push};
    ///
    /// let profiler = Profiler::builder().rate_hz(100.0).start(&engine)?;
    /// let pushing = profiler.push(Push::to("pyroscope://localhost:4040")?.service("shop").labels(["tenant"]))?;
    /// // The stores that are attached run.
    /// pushing.end();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of [`Push::start`].
    pub fn push(&self, push: Push) -> io::Result<Pushing> {
        push.windows(ProfilerWindows { profiler: self.clone(), window: None })
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
            self.window = self.profiler.window_of_all().ok();
        }
        self.window.is_some()
    }

    fn next(&mut self) -> io::Result<Recording> {
        let window = self.window.take().ok_or_else(|| io::Error::other("no guest has begun"))?;
        let (snapshot, next) = window.next().map_err(io::Error::other)?;
        self.window = Some(next);
        Ok(snapshot.into_recording())
    }
}

impl Profiler {
    /// Opens a window of all that is kept, which is sampled even if the profiler is paused.
    fn window_of_all(&self) -> Result<OpenWindow, String> {
        let session: &Arc<_> = &self.0.session;
        Ok(OpenWindow::new(session.window_of_all()?, self.clone()))
    }
}
