//! The clocks that samples are stamped with, and a look at what another thread is doing.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::fs::FileExt;

/// Nanoseconds of `CLOCK_MONOTONIC`. Async-signal-safe: one call into the vDSO.
pub(super) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// CPU time of the calling thread, in nanoseconds.
pub(super) fn own_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result; an unknown clock is an error, not undefined.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) } != 0;
    (!failed).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Sleeps until `CLOCK_MONOTONIC` reaches `deadline_ns`.
#[cfg(target_os = "linux")]
pub(super) fn sleep_until(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `deadline` outlives the call, and no remaining time is asked for. Waking early is harmless.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &deadline, std::ptr::null_mut()) };
}

/// The kernel's id of the calling thread.
#[cfg(target_os = "linux")]
pub(super) fn own_tid() -> libc::pid_t {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }
}

/// Where a thread is, seen from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(target_os = "linux")]
pub(super) enum Activity {
    /// On a processor.
    Running,
    /// Waiting for a processor.
    Queued {
        /// The one it ran on last.
        processor: usize,
        /// Whether the caller runs on that one now.
        is_ours: bool,
    },
    /// Asleep in a system call that a signal would interrupt.
    Blocked,
    /// Stopped, or asleep in a page fault or an uninterruptible system call.
    Stuck,
    /// Gone.
    Dead,
}

/// The processor that the calling thread runs on at this moment.
#[cfg(target_os = "linux")]
fn own_processor() -> Option<usize> {
    // SAFETY: no arguments.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Keeps the calling thread off `processor`, if it may run on another.
#[cfg(target_os = "linux")]
pub(super) fn avoid_processor(processor: usize) {
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: an all-zero set is a valid, empty one.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // What the process may use is what its main thread may: this thread's own set has gaps already.
    // SAFETY: the set has the size given.
    if unsafe { libc::sched_getaffinity(libc::getpid(), size, &mut allowed) } != 0 || processor >= 8 * size {
        return;
    }
    // SAFETY: the set is initialized and the index within it.
    unsafe { libc::CPU_CLR(processor, &mut allowed) };
    // SAFETY: the set is initialized.
    if unsafe { libc::CPU_COUNT(&allowed) } > 0 {
        // SAFETY: as above. If it fails the thread stays where it may be now.
        unsafe { libc::sched_setaffinity(0, size, &allowed) };
    }
}

/// Watches another thread of this process.
#[cfg(target_os = "linux")]
pub(super) struct ThreadWatch {
    clock: libc::clockid_t,
    stat: File,
}

#[cfg(target_os = "linux")]
impl ThreadWatch {
    /// Watches thread `tid` of this process.
    pub(super) fn new(tid: libc::pid_t) -> io::Result<Self> {
        // The kernel's encoding of "CPU clock of thread tid": the complement, then CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED.
        let clock = (!tid << 3) | 6;
        Ok(Self { clock, stat: File::open(format!("/proc/self/task/{tid}/stat"))? })
    }

    /// CPU time that the thread has used, in nanoseconds; `None` when it is gone.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        read(self.clock)
    }

    /// What the thread is doing, and its CPU time.
    ///
    /// A thread whose CPU clock moves between two readings 150 ns apart is running: that is the usual case and the
    /// cheap one. Else the kernel is asked, because a thread that the ticker itself has just pushed off its processor
    /// is not idle.
    pub(super) fn look(&self) -> (Activity, u64) {
        let (Some(first), Some(second)) = (self.cpu_ns(), self.cpu_ns()) else { return (Activity::Dead, 0) };
        if first != second {
            return (Activity::Running, second);
        }
        let mut line = [0; 1024];
        let length = self.stat.read_at(&mut line, 0).unwrap_or(0);
        // "TID (NAME) S ...": the name may hold parentheses and spaces, so the last ')' counts.
        let end = line[..length].iter().rposition(|&byte| byte == b')').unwrap_or(length);
        let fields = std::str::from_utf8(line[..length].get(end + 1..).unwrap_or_default()).unwrap_or_default();
        let mut fields = fields.split_ascii_whitespace();
        let activity = match fields.next() {
            Some("R") => {
                // Field 39 of the line; the state is field 3.
                let processor = fields.nth(35).and_then(|field| field.parse().ok()).unwrap_or(usize::MAX);
                Activity::Queued { processor, is_ours: own_processor() == Some(processor) }
            }
            Some("S") => Activity::Blocked,
            Some("D" | "T" | "t" | "I" | "P") => Activity::Stuck,
            _ => Activity::Dead,
        };
        (activity, second)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    use std::sync::mpsc;

    #[test]
    fn a_spinning_thread_runs_and_a_waiting_one_is_blocked() {
        let tid = AtomicI32::new(0);
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
            assert!(matches!(watch.look().0, Activity::Running | Activity::Queued { .. }));
            spin.store(false, Ordering::SeqCst);
            // It blocks soon; how soon is the scheduler's business.
            while watch.look().0 != Activity::Blocked {
                std::thread::yield_now();
            }
            let before = watch.look().1;
            assert_eq!(watch.look(), (Activity::Blocked, before));
            drop(send);
        });
    }
}
