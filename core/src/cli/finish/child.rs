//! The process that makes a profile.
//!
//! # Security
//! It works on what a guest says, and so within limits: of memory, of processor time, and of its parent's life.

use super::request::{Answer, Request, Wanted};
use crate::cli::available_plugins::Plugins;
use crate::cli::limits;
use crate::cli::output::{self, Destination, Shown};
use crate::cli::progress::Bar;
use crate::cli::table::table;
use crate::export::Exporter;
use crate::languages::{self, Choice};
use crate::module::{ModuleImage, among};
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
    let raw = raw.with_used_frames();
    let bar = Bar::new("symbolizing", raw.frame_count());
    let plugins = Plugins::of_files(&request.plugins);
    let mut recording = name(raw, images, walkers(request, &plugins, images), |done| bar.set(done));
    drop(bar);
    let notes = recording.meta.notes.clone();
    let opened: Vec<_> = request.outputs.iter().map(Opened::open).collect();
    if opened.iter().flatten().any(|opened| opened.exporter.shows_sources()) {
        recording.sources = request.sources.texts(&recording);
    }
    let destinations: Vec<_> = opened.iter().map(|opened| opened.as_ref().map(Opened::destination)).collect();
    // What was not profiled, for whatever reason that the notes tell, costs nobody the rest.
    let selection = if recording.has_heaps() { request.selection.clone() } else { request.selection.of_time() };
    let Shown { recording: shown, selected, written } =
        output::write(recording, request.view, &selection, &destinations).map_err(io::Error::other)?;
    let table = request.table.as_ref().map_or_else(String::new, |options| table(&shown, selected.as_ref(), options));
    Ok(Answer { written, table, notes })
}

/// New walkers of the language that the guest was walked in: they name wasm frames and say what kind of code those are.
fn walkers(request: &Request, plugins: &Plugins, images: &[Arc<ModuleImage>]) -> Vec<Option<Box<dyn Walker>>> {
    let Some(language) = &request.language else { return Vec::new() };
    let choice = Choice::Named(language.clone());
    let modules: Vec<_> = (0..images.len()).filter_map(|number| among(images, number)).collect();
    languages::choose_each(&choice, &plugins.languages(), "", &modules).map_or_else(|_| Vec::new(), |each| each.walkers)
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
    exporter: &'static dyn Exporter,
    path: &'a Path,
    file: File,
    companion: Option<File>,
}

impl<'a> Opened<'a> {
    fn open(wanted: &'a Wanted) -> io::Result<Self> {
        let companion = wanted.companion.map(|descriptor| inherited(descriptor).write()).transpose()?;
        let file = inherited(wanted.file).write()?;
        Ok(Self { exporter: wanted.exporter()?, path: &wanted.path, file, companion })
    }

    fn destination(&self) -> Destination<'_> {
        let Self { exporter, path, file, companion } = self;
        Destination { exporter: *exporter, path, file, companion: companion.as_ref() }
    }
}
