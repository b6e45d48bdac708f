//! The guests of another process: opens it, with the files and languages that its modules may be of, and shows them while they are sampled.

use crate::available_plugins::Plugins;
use crate::failure::{FAILED, Failure};
use crate::guest;
use crate::live_guest::{LiveGuest, LiveWindow};
use crate::os::limits;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wlprof::languages::{Choice, choose_each};
use wlprof::sampler::{Activity, Dump};
use wlprof_attach::{AttachError, Options, Process, ProgramFile, Session, SessionOutcome, Window, named_files};
use wlprof_module::{Binary, ModuleImage, among, parse_binary, read_binary};
use wlprof_recording::{Clock, Journal};

/// How often it is looked whether all have seen what they wanted.
const LOOK: Duration = Duration::from_millis(1);

/// The guests of a process that is sampled by one thread, and looked at by others.
#[derive(Clone)]
pub(crate) struct ProcessGuests(Arc<Shared>);

struct Shared {
    /// `None` when sampling is over.
    session: Mutex<Option<Session>>,
    /// How many look at it or wait for that: sampling is interrupted for them.
    looking: AtomicUsize,
    /// Those of the session when it was last looked at.
    images: Mutex<Vec<Arc<ModuleImage>>>,
    clock: Clock,
    /// The languages of its files.
    languages: BTreeSet<String>,
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
        // Each thread of it takes some.
        limits::allow_many_files();
        let process = Process::open(pid).map_err(failed)?;
        let (files, languages) = program_files(files, &process, plugins)?;
        let clock = options.clock;
        let session = Session::new(process, files, journal()?, options).map_err(failed)?;
        if session.modules().is_empty() {
            let text = format!(
                "process {pid} runs no code that Wasmtime 24 or later compiled; `wlprof ps` lists those that do"
            );
            return Err(Failure::new(FAILED, text));
        }
        let images = Mutex::new(session.modules().to_vec());
        let session = Mutex::new(Some(session));
        Ok(Self(Arc::new(Shared { session, looking: AtomicUsize::new(0), images, clock, languages })))
    }

    /// Samples until `ends`, or until the process has ended.
    ///
    /// # Errors
    /// If it may not be traced.
    pub(crate) fn sample_until(&self, ends: impl Fn() -> bool + Send + Sync) -> Result<(), AttachError> {
        let is_looked_at = || self.0.looking.load(Ordering::Acquire) > 0;
        loop {
            // The lock is not a fair one.
            while is_looked_at() && !ends() {
                std::thread::sleep(LOOK);
            }
            let is_for_a_look = AtomicBool::new(false);
            let is_interrupted = || {
                is_for_a_look.fetch_or(is_looked_at(), Ordering::Relaxed);
                ends() || is_for_a_look.load(Ordering::Relaxed)
            };
            let sampled = self.session().as_mut().map_or(Ok(()), |session| session.run(is_interrupted));
            if sampled.is_err() || ends() || !is_for_a_look.into_inner() {
                return sampled;
            }
        }
    }

    /// Returns the language of its files, if all that have one have the same.
    pub(crate) fn language(&self) -> Option<String> {
        self.languages().first().filter(|_| self.languages().len() == 1).cloned()
    }

    /// Returns the languages of its files.
    pub(crate) fn languages(&self) -> &BTreeSet<String> {
        &self.0.languages
    }

    /// Returns how many threads have wasm on their stacks now.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub(crate) fn threads_in_wasm(&self) -> io::Result<usize> {
        self.look(Session::threads_in_wasm)?.map_err(io::Error::other)
    }

    /// Ends sampling; `None` if it has been ended.
    pub(crate) fn finish(&self) -> Option<SessionOutcome> {
        let session = self.session().take()?;
        *self.lock_images() = session.modules().to_vec();
        Some(session.finish())
    }

    /// Does `what` while nothing is sampled.
    fn look<R>(&self, what: impl FnOnce(&mut Session) -> R) -> io::Result<R> {
        self.0.looking.fetch_add(1, Ordering::AcqRel);
        let mut session = self.session();
        self.0.looking.fetch_sub(1, Ordering::AcqRel);
        let session = session.as_mut().ok_or_else(|| io::Error::other("sampling is over"))?;
        let done = what(session);
        *self.lock_images() = session.modules().to_vec();
        Ok(done)
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.0.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_images(&self) -> MutexGuard<'_, Vec<Arc<ModuleImage>>> {
        self.0.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveGuest for ProcessGuests {
    fn has_begun(&self) -> bool {
        true
    }

    fn window_of(&self, clock: Clock) -> Result<Box<dyn LiveWindow>, String> {
        if clock == Clock::Wall && self.0.clock == Clock::Cpu {
            return Err("the process is sampled by CPU time; waits are seen with --clock=wall".to_owned());
        }
        let window = self.look(|session| session.open_window(clock)).map_err(|error| error.to_string())?;
        Ok(Box::new(ProcessWindow { guests: self.clone(), window: Some(window) }))
    }

    fn dump(&self) -> Result<Dump, String> {
        let dump = self.look(Session::dump).map_err(|error| error.to_string())?;
        dump.map_err(|error| error.to_string())
    }

    fn activity(&self) -> Activity {
        let progress = self.look(|session| session.progress()).unwrap_or_default();
        Activity {
            cpu_ns: progress.cpu_ns,
            duration_ns: progress.duration_ns,
            samples: progress.samples,
            sampled_ns: progress.sampled_ns,
            ..Activity::default()
        }
    }

    fn images(&self) -> Vec<Arc<ModuleImage>> {
        self.lock_images().clone()
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
        self.guests.look(|session| session.recording(window))?
    }

    fn elapsed(&self) -> Duration {
        self.window.as_ref().map_or(Duration::ZERO, Window::elapsed)
    }
}

impl Drop for ProcessWindow {
    fn drop(&mut self) {
        // When sampling is over there is nothing to close.
        self.window.take().into_iter().for_each(|window| _ = self.guests.look(|session| session.close_window(window)));
    }
}

/// The files that the user names, and those that the process does, and their languages.
fn program_files(
    named: &[PathBuf],
    process: &Process,
    plugins: &Plugins,
) -> Result<(Vec<ProgramFile>, BTreeSet<String>), Failure> {
    let mut languages = BTreeSet::new();
    let mut file = |path: Option<&PathBuf>, (binary, notes): (Binary, Vec<String>)| {
        let modules: Vec<_> = binary.into_images().into_iter().map(Arc::new).collect();
        let views: Vec<_> = (0..modules.len()).filter_map(|number| among(&modules, number)).collect();
        let chosen = choose_each(&Choice::Auto, &plugins.languages(), "", &views).unwrap_or_default();
        languages.extend(chosen.language);
        let programs = chosen.programs.into_iter().chain(std::iter::repeat(None));
        let notes = notes.into_iter().chain(chosen.notes).collect();
        ProgramFile { modules: modules.into_iter().zip(programs).collect(), notes, path: path.cloned() }
    };
    let mut files = Vec::new();
    for path in named {
        let binary = read_binary(path, None).map_err(|error| guest::cannot_load(path, &error.into()))?;
        files.push(file(Some(path), binary));
    }
    // They may be anything, and are of use only if an image was compiled from them.
    let found = named_files(process).into_iter().filter_map(|(path, bytes)| parse_binary(bytes, &path, None).ok());
    files.extend(found.map(|read| file(None, read)));
    Ok((files, languages))
}

pub(crate) fn failed(error: AttachError) -> Failure {
    Failure::new(FAILED, error)
}
