//! The guests of another process: opens it, with the files and languages that its modules may be of, and shows them while they are sampled.

use super::program_cache::ProgramCache;
use crate::available_plugins::Plugins;
use crate::failure::{FAILED, Failure};
use crate::guest;
use crate::live_guest::{LiveGuest, LiveWindow};
use crate::os::limits;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wlprof::sampler::{Activity, Dump};
use wlprof_attach::{
    AttachError, Options, Process, ProgramFile, Session, SharedSession, Window, WindowNames, named_files,
};
use wlprof_module::{Binary, ModuleImage, read_binary};
use wlprof_push::Windows;
use wlprof_recording::{Clock, Journal, Recording};
use wlprof_symbols::SharedTables;

/// The guests of a process that is sampled by one thread, and looked at by others.
#[derive(Clone)]
pub(crate) struct ProcessGuests {
    pub(crate) session: Arc<SharedSession>,
    clock: Clock,
    /// The languages of its files.
    languages: Arc<BTreeSet<String>>,
}

impl ProcessGuests {
    /// Finds the guests of process `pid`. What is sampled goes into the journal that `journal` gives; it is asked for when all else is ready.
    /// `files` are those that the guests may have been compiled from.
    pub(crate) fn open(
        pid: i32,
        files: &[PathBuf],
        plugins: &Plugins,
        options: Options,
        journal: impl FnOnce() -> Result<Journal, Failure>,
    ) -> Result<Self, Failure> {
        Self::open_with(pid, files, plugins, &mut ProgramCache::default(), options, journal)
    }

    /// Finds the guests of process `pid`, as [`open`](Self::open) does. What is in `programs` is not read again.
    pub(crate) fn open_with(
        pid: i32,
        files: &[PathBuf],
        plugins: &Plugins,
        programs: &mut ProgramCache,
        options: Options,
        journal: impl FnOnce() -> Result<Journal, Failure>,
    ) -> Result<Self, Failure> {
        // Each thread of it takes some.
        limits::allow_many_files();
        let process = Process::open(pid).map_err(failed)?;
        let (files, languages) = program_files(files, &process, plugins, programs)?;
        let clock = options.clock;
        let session = Session::new(process, files, journal()?, options).map_err(failed)?;
        if session.modules().is_empty() {
            let text = format!(
                "process {pid} runs no code that Wasmtime 24 or later compiled; `wlprof ps` lists those that do"
            );
            return Err(Failure::new(FAILED, text));
        }
        Ok(Self { session: Arc::new(SharedSession::new(session)), clock, languages: Arc::new(languages) })
    }

    /// Returns the language of its files, if all that have one have the same.
    pub(crate) fn language(&self) -> Option<String> {
        self.languages().first().filter(|_| self.languages().len() == 1).cloned()
    }

    /// Returns windows of it that follow each other, to be pushed.
    pub(crate) fn windows(&self) -> ProcessWindows {
        self.windows_named_by(&SharedTables::default())
    }

    /// Returns such windows, whose names share `tables` with those of other processes.
    pub(crate) fn windows_named_by(&self, tables: &SharedTables) -> ProcessWindows {
        let names = WindowNames::sharing(tables);
        ProcessWindows { session: self.session.clone(), clock: self.clock, names, window: None }
    }

    /// Returns the languages of its files.
    pub(crate) fn languages(&self) -> &BTreeSet<String> {
        &self.languages
    }

    /// Returns how many threads have wasm on their stacks now.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub(crate) fn threads_in_wasm(&self) -> io::Result<usize> {
        self.session.look(Session::threads_in_wasm)?.map_err(io::Error::other)
    }
}

impl LiveGuest for ProcessGuests {
    fn has_begun(&self) -> bool {
        true
    }

    fn window_of(&self, clock: Clock) -> Result<Box<dyn LiveWindow>, String> {
        if clock == Clock::Wall && self.clock == Clock::Cpu {
            return Err("the process is sampled by CPU time; waits are seen with --clock=wall".to_owned());
        }
        let window = self.session.look(|session| session.open_window(clock)).map_err(|error| error.to_string())?;
        Ok(Box::new(ProcessWindow { guests: self.clone(), window: Some(window) }))
    }

    fn dump(&self) -> Result<Dump, String> {
        let dump = self.session.look(Session::dump).map_err(|error| error.to_string())?;
        dump.map_err(|error| error.to_string())
    }

    fn activity(&self) -> Activity {
        let progress = self.session.look(|session| session.progress()).unwrap_or_default();
        Activity {
            cpu_ns: progress.cpu_ns,
            duration_ns: progress.duration_ns,
            samples: progress.samples,
            sampled_ns: progress.sampled_ns,
            ..Activity::default()
        }
    }

    fn images(&self) -> Vec<Arc<ModuleImage>> {
        self.session.modules()
    }
}

/// A window of a process.
struct ProcessWindow {
    guests: ProcessGuests,
    window: Option<Window>,
}

impl LiveWindow for ProcessWindow {
    fn unnamed(&self) -> io::Result<Vec<u8>> {
        let window = self.window.as_ref().ok_or(io::ErrorKind::Other)?;
        self.guests.session.look(|session| session.recording(window))?
    }

    fn elapsed(&self) -> Duration {
        self.window.as_ref().map_or(Duration::ZERO, Window::elapsed)
    }
}

impl Drop for ProcessWindow {
    fn drop(&mut self) {
        // When sampling is over there is nothing to close.
        self.window
            .take()
            .into_iter()
            .for_each(|window| _ = self.guests.session.look(|session| session.close_window(window)));
    }
}

/// Windows of a process that follow each other.
pub(crate) struct ProcessWindows {
    session: Arc<SharedSession>,
    clock: Clock,
    names: WindowNames,
    window: Option<Window>,
}

impl Windows for ProcessWindows {
    fn begin(&mut self) -> bool {
        if self.window.is_none() {
            self.window = self.session.look(|session| session.open_window(self.clock)).ok();
        }
        self.window.is_some()
    }

    fn next(&mut self) -> io::Result<Recording> {
        let window = self.window.take().ok_or_else(|| io::Error::other("nothing is sampled"))?;
        let (recording, next) = self.session.next_window(window, &mut self.names)?;
        self.window = Some(next);
        Ok(recording)
    }
}

/// The files that the user names, and those that the process does, and their languages.
fn program_files(
    named: &[PathBuf],
    process: &Process,
    plugins: &Plugins,
    programs: &mut ProgramCache,
) -> Result<(Vec<ProgramFile>, BTreeSet<String>), Failure> {
    let mut languages = BTreeSet::new();
    let mut file = |path: Option<&PathBuf>, read: (Binary, Vec<String>)| {
        let (file, language) = ProgramFile::of(read, path.cloned(), &plugins.languages());
        languages.extend(language);
        file
    };
    let mut files = Vec::new();
    for path in named {
        let binary = read_binary(path, None).map_err(|error| guest::cannot_load(path, &error.into()))?;
        files.push(file(Some(path), binary));
    }
    // They may be anything, and are of use only if an image was compiled from them.
    let found = named_files(process).into_iter().filter_map(|(path, bytes)| programs.file(&path, bytes, plugins));
    for (file, language) in found {
        languages.extend(language);
        files.push(file);
    }
    Ok((files, languages))
}

pub(crate) fn failed(error: AttachError) -> Failure {
    Failure::new(FAILED, error)
}
