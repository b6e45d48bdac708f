//! The process that makes a profile.
//!
//! # Security
//! It works on what a guest says, and so within limits: of memory, of processor time, and of its parent's life.

use super::super::making::{self, OpenOutput, Work};
use super::request::{OutputRequest, Request};
use crate::os::{self, limits};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Makes a profile as standard input says.
///
/// # Errors
/// Whatever keeps it from being made.
pub(crate) fn run() -> io::Result<()> {
    os::die_with_parent()?;
    let (request, images) = Request::receive(&mut io::stdin().lock())?;
    let journal = inherited(request.journal).read()?;
    limits::set(journal.metadata()?.len())?;
    // If the machine runs out of memory, this is what can be spared. It need not be allowed.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let work = Work {
        recording: making::read(&journal)?,
        images,
        outputs: request.outputs.into_iter().map(open).collect(),
        settings: request.settings,
    };
    let answer = postcard::to_stdvec(&work.make()?).map_err(io::Error::other)?;
    inherited(request.answer).write()?.write_all(&answer)
}

fn open(wanted: OutputRequest) -> io::Result<OpenOutput> {
    let companion = wanted.companion.map(|descriptor| inherited(descriptor).write()).transpose()?;
    let file = inherited(wanted.file).write()?;
    Ok(OpenOutput { exporter: wanted.exporter()?, path: wanted.path, file, companion })
}

/// A file that this process has inherited, by its descriptor.
struct InheritedFile(PathBuf);

fn inherited(descriptor: i32) -> InheritedFile {
    InheritedFile(format!("/proc/self/fd/{descriptor}").into())
}

impl InheritedFile {
    fn read(&self) -> io::Result<File> {
        File::open(&self.0)
    }

    /// What is in it already stays. To a pipe that nobody reads any more this fails, where it would wait for a reader.
    fn write(&self) -> io::Result<File> {
        let file = File::options().append(true).custom_flags(libc::O_NONBLOCK).open(&self.0)?;
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(file)
    }
}
