//! A session that one thread samples and others look at meanwhile.

use crate::failure::AttachError;
use crate::session::{Session, SessionOutcome};
use crate::window::Progress;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wlprof_module::ModuleImage;

/// How often it is looked whether all have seen what they wanted.
const LOOK: Duration = Duration::from_millis(1);

/// A [`Session`] that one thread samples and others look at meanwhile.
///
/// ```no_run
/// use wlprof_attach::{Options, Process, Session, SharedSession};
/// use wlprof_recording::Journal;
///
/// let session = SharedSession::new(Session::new(Process::open(4711)?, Vec::new(), Journal::default(), Options::default())?);
/// let begun = std::time::Instant::now();
/// std::thread::scope(|scope| {
///     scope.spawn(|| session.sample_until(|| begun.elapsed().as_secs() >= 10));
///     session.look(|session| session.progress().samples)
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedSession {
    /// `None` when sampling is over.
    session: Mutex<Option<Session>>,
    /// How many look at it or wait for that: sampling is interrupted for them.
    looking: AtomicUsize,
    progress: Arc<Mutex<Progress>>,
    /// Those of the session when it was last looked at.
    modules: Mutex<Vec<Arc<ModuleImage>>>,
}

impl SharedSession {
    /// Has others look at `session`, too.
    pub fn new(session: Session) -> Self {
        let modules = Mutex::new(session.modules().to_vec());
        let progress = session.published.clone();
        Self { session: Mutex::new(Some(session)), looking: AtomicUsize::new(0), progress, modules }
    }

    /// Samples until `ends`, or until the process has ended.
    ///
    /// # Errors
    /// If it may not be traced.
    pub fn sample_until(&self, ends: impl Fn() -> bool + Send + Sync) -> Result<(), AttachError> {
        let is_looked_at = || self.looking.load(Ordering::Acquire) > 0;
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
            let sampled = self.lock().as_mut().map_or(Ok(()), |session| session.run(is_interrupted));
            if sampled.is_err() || ends() || !is_for_a_look.into_inner() {
                return sampled;
            }
        }
    }

    /// Ends sampling; `None` if it has been ended.
    pub fn finish(&self) -> Option<SessionOutcome> {
        let session = self.lock().take()?;
        *self.lock_modules() = session.modules().to_vec();
        Some(session.finish())
    }

    /// Returns its modules, as they were when it was last looked at.
    pub fn modules(&self) -> Vec<Arc<ModuleImage>> {
        self.lock_modules().clone()
    }

    /// Returns what sampling had come to a moment ago, half a second mostly. It goes on meanwhile.
    pub fn progress(&self) -> Progress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `what` while nothing is sampled.
    ///
    /// # Errors
    /// If sampling is over.
    pub fn look<R>(&self, what: impl FnOnce(&mut Session) -> R) -> io::Result<R> {
        self.looking.fetch_add(1, Ordering::AcqRel);
        let mut session = self.lock();
        self.looking.fetch_sub(1, Ordering::AcqRel);
        let session = session.as_mut().ok_or_else(|| io::Error::other("sampling is over"))?;
        let done = what(session);
        *self.lock_modules() = session.modules().to_vec();
        Ok(done)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_modules(&self) -> MutexGuard<'_, Vec<Arc<ModuleImage>>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
