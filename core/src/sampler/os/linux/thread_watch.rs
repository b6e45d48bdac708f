//! Looks at what another thread of this process is doing, through its CPU clock and procfs.

use super::super::Activity;
use super::super::posix_clock::read;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Whether [`ThreadWatch`] sees anything.
pub(in crate::sampler) const SEES_THREADS: bool = true;

/// The kernel's id of the calling thread.
pub(in crate::sampler) fn own_tid() -> u32 {
    // SAFETY: `gettid` takes no arguments, and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Watches another thread of this process.
pub(in crate::sampler) struct ThreadWatch {
    clock: libc::clockid_t,
    stat: File,
    status: File,
}

impl ThreadWatch {
    /// Watches thread `tid` of this process.
    pub(in crate::sampler) fn new(tid: u32) -> io::Result<Self> {
        // The kernel's encoding of "CPU clock of thread tid": the complement, then CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED.
        let clock = (!(tid as libc::pid_t) << 3) | 6;
        let open = |name: &str| File::open(format!("/proc/self/task/{tid}/{name}"));
        Ok(Self { clock, stat: open("stat")?, status: open("status")? })
    }

    /// CPU time that the thread has used, in nanoseconds; `None` when it is gone.
    pub(in crate::sampler) fn cpu_ns(&self) -> Option<u64> {
        read(self.clock)
    }

    /// How often the thread has waited for something else than a processor; `None` when it is gone.
    pub(in crate::sampler) fn voluntary_waits(&self) -> Option<u64> {
        let mut text = [0; 4096];
        let length = self.status.read_at(&mut text, 0).ok()?;
        let mut lines = std::str::from_utf8(&text[..length]).ok()?.lines();
        lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
    }

    /// What the thread is doing, and its CPU time.
    ///
    /// A thread whose CPU clock moves between two readings 150 ns apart is running: that is the usual case and the
    /// cheap one. Else the kernel is asked, because a thread that has lost its processor is not idle.
    pub(in crate::sampler) fn look(&self) -> (Activity, u64) {
        let (Some(first), Some(second)) = (self.cpu_ns(), self.cpu_ns()) else { return (Activity::Dead, 0) };
        if first != second {
            return (Activity::Running, second);
        }
        let mut line = [0; 1024];
        let mut fields = self.fields(&mut line);
        let activity = match fields.next() {
            Some("R") => Activity::Queued,
            Some("S") => Activity::Blocked,
            Some("D" | "T" | "t" | "I" | "P") => Activity::Stuck,
            _ => Activity::Dead,
        };
        (activity, second)
    }

    /// The processor that the thread last had.
    pub(in crate::sampler) fn processor(&self) -> Option<usize> {
        /// Behind the state, in `proc_pid_stat(5)`.
        const BEHIND_STATE: usize = 36;
        self.fields(&mut [0; 1024]).nth(BEHIND_STATE)?.parse().ok()
    }

    /// What the kernel says of the thread, from its state on.
    fn fields<'a>(&self, line: &'a mut [u8; 1024]) -> std::str::SplitAsciiWhitespace<'a> {
        let length = self.stat.read_at(line, 0).unwrap_or(0);
        // "TID (NAME) S ...": the name may hold parentheses and spaces, so the last ')' counts.
        let end = line[..length].iter().rposition(|&byte| byte == b')').unwrap_or(length);
        let fields = std::str::from_utf8(line[..length].get(end + 1..).unwrap_or_default()).unwrap_or_default();
        fields.split_ascii_whitespace()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc;

    #[test]
    fn a_spinning_thread_runs_and_a_waiting_one_is_blocked() {
        let tid = AtomicU32::new(0);
        let spin = AtomicBool::new(true);
        let (send, receive) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (tid, spin) = (&tid, &spin);
            scope.spawn(move || {
                tid.store(own_tid(), Ordering::SeqCst);
                while spin.load(Ordering::SeqCst) {}
                let _ = receive.recv();
            });
            while tid.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let watch = ThreadWatch::new(tid.load(Ordering::SeqCst)).unwrap();
            assert!(matches!(watch.look().0, Activity::Running | Activity::Queued));
            spin.store(false, Ordering::SeqCst);
            // It blocks soon; how soon is the scheduler's business.
            while watch.look().0 != Activity::Blocked {
                std::thread::yield_now();
            }
            let before = watch.look().1;
            assert_eq!(watch.look(), (Activity::Blocked, before));
            assert!(watch.voluntary_waits().unwrap() > 0);
            drop(send);
        });
    }
}
