//! A process that the agent has attached to: the thread that samples it, and its windows.

use crate::attach::guests::ProcessWindows;
use crate::attach::{ProcessGuests, ProgramCache};
use crate::available_plugins::Plugins;
use crate::failure::Failure;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use wlprof_attach::{AttachError, Options, SharedSession};
use wlprof_push::{Pusher, Resource, Windows};
use wlprof_recording::{Journal, View};

/// A process that is sampled, until this is dropped.
pub(super) struct Target {
    pid: i32,
    session: Arc<SharedSession>,
    windows: ProcessWindows,
    /// What is known of it, as it was when its last window was closed.
    resource: Arc<Resource>,
    /// When its window is to be closed.
    pub(super) closes: Instant,
    ends: Arc<AtomicBool>,
    sampler: Option<JoinHandle<Result<(), AttachError>>>,
}

impl Target {
    /// Attaches to process `pid`. Its first window is closed after `first`.
    pub(super) fn attach(
        pid: i32,
        plugins: &Plugins,
        programs: &mut ProgramCache,
        options: Options,
        of: impl Fn(Resource) -> Resource,
        first: Duration,
    ) -> Result<Self, Failure> {
        let guests = ProcessGuests::open_with(pid, &[], plugins, programs, options, || Ok(Journal::of_windows()))?;
        let ends = Arc::new(AtomicBool::new(false));
        let mut windows = guests.windows_named_by(programs.names());
        windows.begin();
        let (session, sampled, is_over) = (guests.session.clone(), guests.session.clone(), ends.clone());
        let sample = move || sampled.sample_until(|| is_over.load(Ordering::Relaxed));
        let sampler = Builder::new().name("wlprof process".into()).spawn(sample);
        let sampler = sampler.map_err(|error| Failure::new(crate::failure::FAILED, error))?;
        let resource = Arc::new(of(Resource::of_process(pid)));
        Ok(Self { pid, session, windows, resource, closes: Instant::now() + first, ends, sampler: Some(sampler) })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns whether the process has ended, or cannot be sampled any more.
    pub(super) fn is_over(&self) -> bool {
        self.sampler.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Closes its window, has it delivered, and begins the next, which is to be closed after `length`.
    ///
    /// # Errors
    /// If sampling is over.
    pub(super) fn close_window(
        &mut self,
        pusher: &Pusher,
        of: impl Fn(Resource) -> Resource,
        length: Duration,
    ) -> io::Result<()> {
        self.closes = Instant::now() + length;
        if !self.is_over() {
            // It may say more of itself than it did when it had just begun.
            let resource = Resource::of_process(self.pid);
            // Of one that is ending not all can be read.
            let is_read = resource.get("process.executable.name").is_some();
            let resource = of(resource);
            if is_read && resource != *self.resource {
                self.resource = Arc::new(resource);
            }
        }
        pusher.push(&self.resource, self.windows.next()?.view(View::Guest));
        Ok(())
    }

    /// Has sampling end now.
    pub(super) fn interrupt(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.session.wake();
    }

    /// Ends sampling. Returns why it had ended, if the process is not the reason.
    pub(super) fn end(&mut self) -> Option<AttachError> {
        self.interrupt();
        let ended = self.sampler.take()?.join();
        ended.unwrap_or(Ok(())).err()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
