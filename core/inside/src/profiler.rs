//! The profiler of this process: the thread that samples, and windows of what it has sampled.

use crate::labels;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use wlprof_attach::{
    AttachError, Options, Process, ProgramFile, Progress, Session, SharedSession, Window, WindowNames,
};
use wlprof_languages::BUILT_IN;
use wlprof_module::parse_binary;
use wlprof_recording::{Journal, Recording};

/// Samples the threads of this process that run WebAssembly, until the last clone of it and the last of its [`OpenWindow`]s is dropped.
///
/// There may be several of CPU time, each with threads of its own. By the wall clock one would take the stops of another for waits.
///
/// ```
/// let profiler = wlprof_inside::Profiler::start()?;
/// profiler.pause();
/// assert_eq!(profiler.progress().samples, 0);
/// profiler.resume()?;
/// # Ok::<(), wlprof_inside::AttachError>(())
/// ```
///
/// # Accuracy
/// A sample stands for the CPU time of its thread halfway to the ones before and after it, as of `wlprof attach`. A thread whose stack is not
/// read within 10 ms runs on, and the sample is counted as lost: the reader may wait for a lock that the thread holds, or for a processor.
/// Threads that block all signals are not seen.
///
/// # Overhead
/// A thread stands still while its stack is read, some 100 µs. Each thread takes three open files while the profiler is not paused, and half of
/// those that the process may open at most. A paused profiler has no thread. Stacks, threads and labels that are in no sample of an open window
/// are let go of once they take a megabyte, and each time they have doubled; modules then too, and when 256 images have gone.
///
/// A call that a thread enters as it is asked to stop may end with `EINTR`: `SA_RESTART` does not have the kernel continue `poll`, `nanosleep` and
/// their kin. A process that replaces itself (`exec` without `fork`) has to pause the profiler before, since a signal on its way would end the
/// new program. A forked child must not use it.
///
/// # Security
/// What is read is held to be right only as far as it was checked: images, stacks and instances may be anything that a guest's host lets lie
/// in memory.
#[derive(Clone)]
pub struct Profiler(Arc<Inner>);

struct Inner {
    session: Arc<SharedSession>,
    names: Mutex<WindowNames>,
    clock: wlprof_recording::Clock,
    sampler: Mutex<Option<Sampler>>,
    /// Why sampling has ended by itself.
    failure: Arc<Mutex<Option<String>>>,
}

/// The thread that samples.
struct Sampler {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Profiler {
    /// Looks at threads 100 times a second, and samples those that run then.
    ///
    /// # Errors
    /// [`AttachError`] if the system does not show this process to itself, or if there is no signal left.
    pub fn start() -> Result<Self, AttachError> {
        Self::with(Options::default())
    }

    /// Samples as `options` say.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn with(options: Options) -> Result<Self, AttachError> {
        let clock = options.clock;
        let mut session = Session::new(Process::own()?, Vec::new(), Journal::of_windows(), options)?;
        session.label_threads(labels::of_thread);
        let inner = Inner {
            session: Arc::new(SharedSession::new(session)),
            names: Mutex::default(),
            clock,
            sampler: Mutex::new(None),
            failure: Arc::default(),
        };
        let profiler = Self(Arc::new(inner));
        profiler.resume()?;
        Ok(profiler)
    }

    /// Has frames of guests that were compiled from `binary`, a module or component in the binary format, show lines, inlined functions and the
    /// stacks of their language. Without it they have the names that compiled code has, and an interpreter shows its own functions.
    ///
    /// It may be called before or after the guest is compiled. What was sampled before stays as it is.
    ///
    /// # Errors
    /// If `binary` cannot be read, or sampling is over.
    pub fn add(&self, name: &str, binary: impl Into<Vec<u8>>) -> io::Result<()> {
        let read = parse_binary(binary.into(), Path::new(name), None);
        let read = read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let (file, _) = ProgramFile::of(read, None, BUILT_IN);
        self.0.session.look(|session| session.add_file(file))?
    }

    /// Begins a window now. What is sampled is kept for it until it is dropped, some 13 bytes a sample.
    ///
    /// # Errors
    /// Why sampling has ended by itself, if it has.
    pub fn window(&self) -> io::Result<OpenWindow> {
        self.0.check()?;
        let window = self.0.session.look(|session| session.open_window(self.0.clock))?;
        Ok(OpenWindow { window: Some(window), profiler: self.clone() })
    }

    /// Stops sampling. The profiler has no thread until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.0.end();
    }

    /// Samples again.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn resume(&self) -> Result<(), AttachError> {
        let mut sampler = lock(&self.0.sampler);
        if sampler.as_ref().is_some_and(|sampler| !sampler.thread.is_finished()) {
            return Ok(());
        }
        let ends = Arc::new(AtomicBool::new(false));
        *lock(&self.0.failure) = None;
        let (session, is_over, failure) = (self.0.session.clone(), ends.clone(), self.0.failure.clone());
        let sample = move || {
            let sampled = catch_unwind(AssertUnwindSafe(|| session.sample_until(|| is_over.load(Ordering::Relaxed))));
            let failed = match sampled {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the thread that samples has failed".to_owned(),
            };
            *lock(&failure) = Some(failed);
        };
        let thread = Builder::new()
            .name("wlprof".to_owned())
            .spawn(sample)
            .map_err(|error| AttachError::Unreadable { pid: std::process::id() as i32, reason: error.to_string() })?;
        *sampler = Some(Sampler { ends, thread });
        Ok(())
    }

    /// Returns what sampling had come to a moment ago: half a second, or longer at rates below two a second and while a thread does not stop.
    pub fn progress(&self) -> Progress {
        self.0.session.progress()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Refuses if sampling has ended by itself.
    fn check(&self) -> io::Result<()> {
        lock(&self.failure).clone().map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }

    fn end(&self) {
        let sampler = lock(&self.sampler).take();
        if let Some(Sampler { ends, thread }) = sampler {
            ends.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

/// A part of what a [`Profiler`] samples, from [`Profiler::window`] until it is dropped. Any number of them may overlap.
///
/// ```no_run
/// # fn window(profiler: &wlprof_inside::Profiler) -> std::io::Result<()> {
/// let window = profiler.window()?;
/// std::thread::sleep(std::time::Duration::from_secs(10));
/// window.snapshot()?.save("ten-seconds.json")?;
/// # Ok(())
/// # }
/// ```
pub struct OpenWindow {
    window: Option<Window>,
    profiler: Profiler,
}

impl OpenWindow {
    /// Returns what was sampled in the window so far. Sampling stops meanwhile: for milliseconds, or, where the first of a host's own frames are
    /// named, for as long as it takes to read the symbols of its files. In an asynchronous task call it where a thread may block.
    ///
    /// # Errors
    /// Why sampling has ended by itself, if it has.
    #[cfg(feature = "formats")]
    pub fn snapshot(&self) -> io::Result<wlprof_export::Snapshot> {
        self.recording().map(wlprof_export::Snapshot::of)
    }

    /// Returns what was sampled in the window so far as frames, stacks and samples. Sampling stops for a moment.
    ///
    /// # Errors
    /// Why sampling has ended by itself, if it has.
    pub fn recording(&self) -> io::Result<Recording> {
        let window = self.window.as_ref().ok_or(io::ErrorKind::Other)?;
        let Inner { session, names, .. } = &*self.profiler.0;
        self.profiler.0.check()?;
        session.named(window, &mut lock(names))
    }

    /// Returns what was sampled in the window so far, and begins one where it ends: of windows that follow each other so, each sample is in one.
    ///
    /// # Errors
    /// Why sampling has ended by itself, if it has. The window is over then.
    pub fn next(mut self) -> io::Result<(Recording, Self)> {
        let window = self.window.take().ok_or(io::ErrorKind::Other)?;
        let Inner { session, names, .. } = &*self.profiler.0;
        self.profiler.0.check()?;
        let (recording, next) = session.next_window(window, &mut lock(names))?;
        Ok((recording, Self { window: Some(next), profiler: self.profiler.clone() }))
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        if let Some(window) = self.window.take() {
            // When sampling is over there is nothing to close.
            let _ = self.profiler.0.session.look(|session| session.close_window(window));
        }
    }
}
