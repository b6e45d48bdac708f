//! Timers that signal one thread by themselves: no other thread has to wake for it, and nothing is sent between
//! processors.
//!
//! # Accuracy
//! A timer on the thread's CPU clock expires at the first of the kernel's ticks after its time, while the thread runs.
//! One on the monotonic clock expires within microseconds, whether the thread runs or not.
//!
//! # Overhead
//! The first costs next to nothing: the processor is in the kernel at that moment anyway. The second costs an interrupt.
//! Setting either is a system call, some 0.3 µs.

use super::super::TimerClock;
use super::own_thread::SIGNAL;
use super::thread_watch::own_tid;
use std::io;

impl TimerClock {
    /// Which timer's expiry a signal tells of; `None` if it is none of `owner`'s.
    ///
    /// # Safety
    /// `info` must be the second argument of a signal handler installed with `SA_SIGINFO`.
    pub(in crate::sampler) unsafe fn of_signal(info: *const libc::siginfo_t, owner: u32) -> Option<Self> {
        // SAFETY: the caller's promise.
        let value = unsafe { Self::value_of_signal(info) }?;
        [Self::OwnCpu, Self::Monotonic].into_iter().find(|clock| clock.value(owner) == value)
    }

    /// Whether a timer that [`ThreadTimer`] has made, of whatever owner, sent the signal of `info`.
    ///
    /// # Safety
    /// As for [`TimerClock::of_signal`].
    pub(in crate::sampler) unsafe fn is_wlprofs(info: *const libc::siginfo_t) -> bool {
        // SAFETY: the caller's promise.
        unsafe { Self::value_of_signal(info) }.is_some_and(|value| value >> 32 == Self::WLPROF >> 32)
    }

    /// The value that the signal brings, if a timer sent it.
    ///
    /// # Safety
    /// As for [`TimerClock::of_signal`].
    unsafe fn value_of_signal(info: *const libc::siginfo_t) -> Option<usize> {
        // SAFETY: the caller's promise.
        let info = unsafe { &*info };
        // SAFETY: signals of timers have a value.
        (info.si_code == libc::SI_TIMER).then(|| unsafe { info.si_value() }.sival_ptr.addr())
    }

    /// What the values of all timers begin with.
    const WLPROF: usize = 0x776c_7072 << 32;

    /// The value that signals of such a timer of `owner` bring: no other program's, nor another owner's.
    fn value(self, owner: u32) -> usize {
        Self::WLPROF | (owner as usize & 0x7fff_ffff) << 1 | usize::from(self == Self::Monotonic)
    }
}

/// A timer that sends [`SIGNAL`] to the thread that made it, once each time it is set.
#[derive(Debug)]
pub(in crate::sampler) struct ThreadTimer(libc::timer_t);

// SAFETY: a timer's id is a number of the process's, which every thread may set and delete.
unsafe impl Send for ThreadTimer {}
// SAFETY: setting it is one system call, of which any number may be going on.
unsafe impl Sync for ThreadTimer {}

impl ThreadTimer {
    /// A timer for the calling thread, which is not set. A thread may have those of several owners.
    ///
    /// # Errors
    /// If the system has no more timers for this process, or none on that clock.
    pub(in crate::sampler) fn new(clock: TimerClock, owner: u32) -> io::Result<Self> {
        let value = clock.value(owner);
        let clock = match clock {
            TimerClock::OwnCpu => libc::CLOCK_THREAD_CPUTIME_ID,
            TimerClock::Monotonic => libc::CLOCK_MONOTONIC,
        };
        // SAFETY: an all-zero sigevent is a valid one.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(value);
        event.sigev_notify_thread_id = own_tid() as libc::pid_t;
        let mut timer = std::ptr::null_mut();
        // SAFETY: both places are valid for the call.
        match unsafe { libc::timer_create(clock, &mut event, &mut timer) } {
            0 => Ok(Self(timer)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the timer expire in `after_ns`, instead of when it was to expire before. Async-signal-safe.
    pub(in crate::sampler) fn set(&self, after_ns: u64) {
        // Nothing would mean never.
        self.set_to(after_ns.max(1));
    }

    /// Has the timer not expire. A signal may be on its way. Async-signal-safe.
    pub(in crate::sampler) fn unset(&self) {
        self.set_to(0);
    }

    /// Nanoseconds until it expires; 0 if it is not set.
    #[cfg(test)]
    pub(in crate::sampler) fn until_ns(&self) -> u64 {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut left = libc::itimerspec { it_interval: zero, it_value: zero };
        // SAFETY: the timer lives as long as this, and the place as long as the call.
        unsafe { libc::timer_gettime(self.0, &mut left) };
        left.it_value.tv_sec as u64 * 1_000_000_000 + left.it_value.tv_nsec as u64
    }

    fn set_to(&self, after_ns: u64) {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let after = libc::timespec {
            tv_sec: (after_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (after_ns % 1_000_000_000) as libc::c_long,
        };
        let once = libc::itimerspec { it_interval: never, it_value: after };
        // SAFETY: the timer lives as long as this, and `once` as long as the call, which cannot fail with such times.
        unsafe { libc::timer_settime(self.0, 0, &once, std::ptr::null_mut()) };
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: nobody else deletes it.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Time between two of the kernel's ticks, at which timers on CPU clocks expire.
pub(in crate::sampler) fn kernel_tick_ns() -> u64 {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The coarse clocks are read from what the last tick left: their resolution is its period.
    // SAFETY: the place is valid for the call.
    let failed = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut resolution) } != 0;
    // 100 Hz, the slowest that kernels are built with.
    if failed { 10_000_000 } else { (resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64).max(1) }
}
