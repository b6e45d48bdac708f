//! The process that makes a profile.
//!
//! # Security
//! It works on what a guest says, and so within limits: of memory, of processor time, and of its parent's life.

use super::request::{Answer, Request, Wanted};
use crate::cli::arguments::FramesChoice;
use crate::cli::limits;
use crate::cli::output::{Destination, Shown};
use crate::cli::plugins::Plugins;
use crate::cli::progress::Bar;
use crate::cli::summary::summary;
use crate::guest::ModuleImage;
use crate::languages::{self, Choice};
use crate::recording::RawRecording;
use crate::symbols::name;
use rustix::fs::OFlags;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wlprof_plugin::Walker;

/// Makes a profile as standard input says.
///
/// # Errors
/// Whatever keeps it from being made.
pub(in super::super) fn run() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (request, images) = Request::receive(&mut io::stdin().lock())?;
    let journal = inherited(request.journal).read()?;
    limits::set(journal.metadata()?.len())?;
    // If the machine runs out of memory, this is what can be spared. It need not be allowed.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let answer = make(&request, &images, journal)?;
    let answer = postcard::to_stdvec(&answer).map_err(io::Error::other)?;
    inherited(request.answer).write()?.write_all(&answer)
}

fn make(request: &Request, images: &[Arc<ModuleImage>], journal: File) -> io::Result<Answer> {
    let raw = RawRecording::read(&mut BufReader::with_capacity(1 << 16, journal)).map_err(io::Error::other)?;
    let bar = Bar::new("symbolizing", raw.frame_count());
    let plugins = Plugins::of_files(&request.plugins);
    let recording = name(raw, images, walkers(request, &plugins, images), |done| bar.set(done));
    drop(bar);
    let notes = recording.meta.notes.clone();
    let destinations: Vec<_> = request.outputs.iter().map(Opened::open).collect();
    let keeps_all =
        request.outputs.iter().any(|wanted| wanted.exporter().is_ok_and(|format| format.keeps_all_frames()));
    let frames = if request.hides_interpreter { FramesChoice::Guest } else { FramesChoice::Merged };
    let shown = Shown::new(recording, frames, keeps_all);
    let write = |opened: io::Result<Opened<'_>>| {
        opened.and_then(|opened| shown.write(&opened.destination()?)).map_err(|error| error.to_string())
    };
    let written = destinations.into_iter().map(write).collect();
    let summary = if request.wants_summary { summary(shown.recording()) } else { String::new() };
    Ok(Answer { written, summary, notes })
}

/// New walkers of the language that the guest was walked in: they name wasm frames and say what kind of code those are.
fn walkers(request: &Request, plugins: &Plugins, images: &[Arc<ModuleImage>]) -> Vec<Option<Box<dyn Walker>>> {
    let Some(language) = &request.language else { return Vec::new() };
    let choice = Choice::Named(language.clone());
    let languages = plugins.languages();
    let walker = |image: &Arc<ModuleImage>| languages::choose(&choice, &languages, &**image).ok()?.walker;
    images.iter().map(walker).collect()
}

/// A file that this process has inherited, by its descriptor.
struct Inherited(PathBuf);

fn inherited(descriptor: i32) -> Inherited {
    Inherited(format!("/proc/self/fd/{descriptor}").into())
}

impl Inherited {
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

/// An output that is open.
struct Opened<'a> {
    wanted: &'a Wanted,
    file: File,
    companion: Option<File>,
}

impl<'a> Opened<'a> {
    fn open(wanted: &'a Wanted) -> io::Result<Self> {
        let companion = wanted.companion.map(|descriptor| inherited(descriptor).write()).transpose()?;
        Ok(Self { wanted, file: inherited(wanted.file).write()?, companion })
    }

    fn destination(&self) -> io::Result<Destination<'_>> {
        let path: &Path = &self.wanted.path;
        Ok(Destination {
            exporter: self.wanted.exporter()?,
            path,
            file: &self.file,
            companion: self.companion.as_ref(),
        })
    }
}
