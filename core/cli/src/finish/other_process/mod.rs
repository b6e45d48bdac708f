//! A process of its own.

mod child;
mod request;

pub(crate) use child::run as run_child;

use super::{FinishOptions, FinishedProfile, MAKE_PROFILE};
use crate::interrupt::Interrupts;
use crate::os;
use crate::output::Destination;
use request::{Module, OutputRequest, Request};
use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

impl FinishOptions<'_> {
    /// Makes it. A signal that ends wlprof ends this, too.
    ///
    /// # Errors
    /// What happened to the process, in words for the user.
    pub(crate) fn make(self, interrupts: &Interrupts) -> Result<FinishedProfile, String> {
        let failed = |error: io::Error| format!("it cannot be started: {error}");
        let mut answer: File = rustix::fs::memfd_create("wlprof-answer", MemfdFlags::empty())
            .map_err(|error| failed(error.into()))?
            .into();
        // Two at a time would be given each other's files.
        static SPAWNING: Mutex<()> = Mutex::new(());
        let spawning = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
        let request = self.request(&answer).map_err(failed)?;
        let mut command = Command::new(os::own_program().map_err(failed)?);
        command.arg(MAKE_PROFILE).stdin(Stdio::piped()).stdout(Stdio::null());
        os::keep_interrupts_from(&mut command);
        let spawned = command.spawn();
        self.keep_files(&answer).map_err(failed)?;
        drop(spawning);
        let mut child = spawned.map_err(failed)?;
        end_when_interrupted(&child, interrupts);
        let mut input = child.stdin.take().ok_or("it has no input")?;
        // If it has ended by then, how it ended says more.
        let sent = request.send(self.images, &mut input);
        drop(input);
        let status = child.wait().map_err(failed)?;
        interrupts.making_is_over();
        if !status.success() {
            let is_interrupted = interrupts.signal().is_some();
            return Err(if is_interrupted { "it was interrupted".to_owned() } else { os::how_it_ended(status) });
        }
        sent.map_err(failed)?;
        let mut bytes = Vec::new();
        answer.rewind().and_then(|()| answer.read_to_end(&mut bytes)).map_err(failed)?;
        postcard::from_bytes(&bytes).map_err(|error| failed(io::Error::other(error)))
    }

    /// Has no other process that is started have the files.
    fn keep_files(&self, answer: &File) -> io::Result<()> {
        let outputs = self.destinations.iter().flat_map(|to| [Some(to.file), to.companion]).flatten();
        [self.journal, answer].into_iter().chain(outputs).try_for_each(|file| Ok(fcntl_setfd(file, FdFlags::CLOEXEC)?))
    }

    fn request(&self, answer: &File) -> io::Result<Request> {
        let wanted = |to: &Destination<'_>| {
            let companion = to.companion.map(inherit).transpose()?;
            Ok(OutputRequest::new(to.exporter, to.path.to_owned(), inherit(to.file)?, companion))
        };
        let outputs = self.destinations.iter().map(wanted).collect::<io::Result<_>>()?;
        Ok(Request {
            journal: inherit(self.journal)?,
            answer: inherit(answer)?,
            outputs,
            settings: self.settings.clone(),
            modules: self.images.iter().map(|image| Module::of(image)).collect(),
        })
    }
}

/// Lets the next process that is started have `file`, and gives the number that it has there.
fn inherit(file: &File) -> io::Result<i32> {
    fcntl_setfd(file.as_fd(), FdFlags::empty())?;
    Ok(file.as_raw_fd())
}

/// Without it (before Linux 5.3) the second signal ends both.
fn end_when_interrupted(child: &Child, interrupts: &Interrupts) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    if let Ok(child) = pidfd_open(pid, PidfdFlags::empty()) {
        interrupts.making_begins(move || {
            // It may have ended by itself.
            let _ = pidfd_send_signal(&child, Signal::KILL);
        });
    }
}
