//! A session that one thread samples and others look at meanwhile.

use crate::failure::AttachError;
use crate::session::{Session, SessionOutcome};
use crate::window::Progress;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
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
    sampler: Arc<Mutex<Option<Thread>>>,
    /// Those of the session when it was last looked at.
    modules: Mutex<Vec<Arc<ModuleImage>>>,
}

impl SharedSession {
    /// Has others look at `session`, too.
    pub fn new(session: Session) -> Self {
        let modules = Mutex::new(session.modules().to_vec());
        let (progress, sampler) = (session.published.clone(), session.sampler.clone());
        Self { session: Mutex::new(Some(session)), looking: AtomicUsize::new(0), progress, sampler, modules }
    }

    /// Samples until `ends`, or until the process has ended. Where samples are seconds apart, `ends` is asked every two seconds, and when
    /// [`SharedSession::wake`] is called.
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

    /// Has [`SharedSession::sample_until`] ask now whether it is to end.
    pub fn wake(&self) {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Thread::unpark);
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
        self.wake();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{Activity, Thread};
    use crate::{Options, Process};
    use nix::unistd::gettid;
    use std::process::{Command, Stdio};
    use std::sync::atomic::AtomicI32;
    use std::time::Instant;
    use wlprof_recording::Journal;

    #[test]
    fn who_looks_does_not_wait_for_the_next_instant() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::open(child.id() as i32).unwrap();
        // Minutes apart, so that all looks are between two.
        let options = Options { rate_hz: 0.01, ..Options::default() };
        let session = SharedSession::new(Session::new(process, Vec::new(), Journal::default(), options).unwrap());
        let (ends, sampling) = (AtomicBool::new(false), AtomicI32::new(0));
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                session.sample_until(|| {
                    // The other one that asks waits for this one.
                    if std::thread::current().name() == Some("wlprof sampler") {
                        sampling.store(gettid().as_raw(), Ordering::Relaxed);
                    }
                    ends.load(Ordering::Relaxed)
                })
            });
            let (begun, own) = (Instant::now(), Process::own().unwrap());
            for _ in 0..100 {
                let is_asleep =
                    |tid| Thread::open(&own, tid).is_ok_and(|thread| thread.activity() == Some(Activity::Blocked));
                while !is_asleep(sampling.load(Ordering::Relaxed)) {
                    std::thread::yield_now();
                }
                session.look(|_| sampling.store(0, Ordering::Relaxed)).unwrap();
            }
            let took = begun.elapsed();
            ends.store(true, Ordering::Relaxed);
            session.wake();
            sampler.join().unwrap().unwrap();
            // Each would take two seconds until it is seen.
            assert!(took < Duration::from_secs(60), "{took:?}");
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
