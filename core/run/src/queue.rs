//! How long a thread has stood in the queue for a processor: time in which it waited for nothing of its own.

use std::fs::{read_link, read_to_string};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The time that a thread has stood in the queue, for others to read. It is known on Linux, and 0 elsewhere.
#[derive(Debug, Default)]
pub(super) struct QueueTime(Mutex<Thread>);

#[derive(Debug, Default)]
struct Thread {
    /// Its folder below `/proc`, while it goes on.
    folder: Option<PathBuf>,
    ended_ns: u64,
}

impl QueueTime {
    /// Measures the calling thread while it does `what`.
    pub(super) fn of_this_thread<R>(&self, what: impl FnOnce() -> R) -> R {
        self.thread().folder = read_link("/proc/thread-self").ok().map(|folder| Path::new("/proc").join(folder));
        let done = what();
        let mut thread = self.thread();
        *thread = Thread { ended_ns: thread.ns(), folder: None };
        done
    }

    /// Returns the time so far, in nanoseconds.
    pub(super) fn ns(&self) -> u64 {
        self.thread().ns()
    }

    fn thread(&self) -> MutexGuard<'_, Thread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Thread {
    fn ns(&self) -> u64 {
        // CPU time, time in the queue, turns.
        let text = self.folder.as_ref().and_then(|folder| read_to_string(folder.join("schedstat")).ok());
        let queued = text.and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok());
        queued.unwrap_or(self.ended_ns)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_while_a_thread_goes_on_and_when_it_has_ended() {
        let time = QueueTime::default();
        let during = time.of_this_thread(|| {
            let folder = time.thread().folder.clone().unwrap();
            assert!(read_to_string(folder.join("schedstat")).is_ok());
            time.ns()
        });
        assert!(time.thread().folder.is_none() && time.ns() >= during);
    }
}
