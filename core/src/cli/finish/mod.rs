//! Makes the profile of a run that is over, in a process of its own: whatever a guest's names and debug information do to
//! it, the recording, the guest's exit code and a plain sentence remain.

mod child;
mod request;

pub(super) use child::run as run_child;

use super::arguments::MAKE_PROFILE;
use super::interrupt::Interrupts;
use super::output::Destination;
use super::table::TableOptions;
use crate::module::ModuleImage;
use crate::recording::{Selection, View};
use crate::sources::SourceFolders;
use request::{Answer, Module, Request, Wanted};
use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// How a profile is to be made.
pub(super) struct Making<'a> {
    /// The whole recording, without symbols.
    pub(super) journal: &'a File,
    pub(super) images: &'a [Arc<ModuleImage>],
    pub(super) destinations: Vec<Destination<'a>>,
    /// What readers are shown.
    pub(super) view: View,
    pub(super) selection: &'a Selection,
    /// How the table is to be, if it is wanted.
    pub(super) table: Option<TableOptions>,
    pub(super) language: Option<String>,
    pub(super) plugins: Vec<PathBuf>,
    pub(super) sources: SourceFolders,
}

/// A profile that was made.
pub(super) struct Made {
    /// For each destination, why it could not be written.
    pub(super) written: Vec<Result<(), String>>,
    /// The table.
    pub(super) table: String,
    /// What the profile says to its readers.
    pub(super) notes: Vec<String>,
}

impl Making<'_> {
    /// Makes it. A signal that ends wlprof ends this, too.
    ///
    /// # Errors
    /// What happened to the process, in words for the user.
    pub(super) fn make(self, interrupts: &Interrupts) -> Result<Made, String> {
        let failed = |error: io::Error| format!("it cannot be started: {error}");
        let mut answer: File = rustix::fs::memfd_create("wlprof-answer", MemfdFlags::empty())
            .map_err(|error| failed(error.into()))?
            .into();
        // Two at a time would be given each other's files.
        static SPAWNING: Mutex<()> = Mutex::new(());
        let spawning = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
        let request = self.request(&answer).map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(MAKE_PROFILE).stdin(Stdio::piped()).stdout(Stdio::null());
        // A Ctrl-C is for this process to answer.
        command.process_group(0);
        let spawned = command.spawn();
        self.keep_files(&answer).map_err(failed)?;
        drop(spawning);
        let mut child = spawned.map_err(failed)?;
        interrupts.begin_child(&child);
        let mut input = child.stdin.take().ok_or("it has no input")?;
        // If it has ended by then, how it ended says more.
        let sent = request.send(self.images, &mut input);
        drop(input);
        let status = child.wait().map_err(failed)?;
        interrupts.end_child();
        if !status.success() {
            let is_interrupted = interrupts.signal().is_some();
            return Err(if is_interrupted { "it was interrupted".to_owned() } else { how_it_ended(status) });
        }
        sent.map_err(failed)?;
        let mut bytes = Vec::new();
        answer.rewind().and_then(|()| answer.read_to_end(&mut bytes)).map_err(failed)?;
        let answer = postcard::from_bytes(&bytes).map_err(|error| failed(io::Error::other(error)))?;
        let Answer { written, table, notes } = answer;
        Ok(Made { written, table, notes })
    }

    /// Has no other process that is started have the files.
    fn keep_files(&self, answer: &File) -> io::Result<()> {
        let outputs = self.destinations.iter().flat_map(|to| [Some(to.file), to.companion]).flatten();
        [self.journal, answer].into_iter().chain(outputs).try_for_each(|file| Ok(fcntl_setfd(file, FdFlags::CLOEXEC)?))
    }

    fn request(&self, answer: &File) -> io::Result<Request> {
        let wanted = |to: &Destination<'_>| {
            let companion = to.companion.map(inherit).transpose()?;
            Ok(Wanted::new(to.exporter, to.path.to_owned(), inherit(to.file)?, companion))
        };
        let outputs = self.destinations.iter().map(wanted).collect::<io::Result<_>>()?;
        Ok(Request {
            journal: inherit(self.journal)?,
            answer: inherit(answer)?,
            outputs,
            view: self.view,
            selection: self.selection.clone(),
            table: self.table.clone(),
            language: self.language.clone(),
            plugins: self.plugins.clone(),
            sources: self.sources.clone(),
            modules: self.images.iter().map(|image| Module::of(image)).collect(),
        })
    }
}

/// Lets the next process that is started have `file`, and gives the number that it has there.
fn inherit(file: &File) -> io::Result<i32> {
    fcntl_setfd(file.as_fd(), FdFlags::empty())?;
    Ok(file.as_raw_fd())
}

/// What became of a process that works within limits and failed, in words for the user.
pub(super) fn how_it_ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGKILL) => "it was killed, as the system does when memory is short".to_owned(),
        Some(libc::SIGXCPU) => "it took more processor time than it may have".to_owned(),
        Some(libc::SIGABRT) => "it ran out of memory, or gave up".to_owned(),
        Some(signal) => format!("it ended with signal {signal}"),
        None => format!("it failed with code {}", status.code().unwrap_or_default()),
    }
}
