//! The clocks that samples are stamped with, on Linux and macOS.

/// Nanoseconds of `CLOCK_MONOTONIC`. Async-signal-safe; on Linux one call into the vDSO.
pub(in crate::sampler) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// The most CPU time that may be counted together in so many nanoseconds: here it is counted as it is used.
pub(in crate::sampler) fn at_least_a_step(ns: u64) -> u64 {
    ns
}

/// CPU time of the calling thread, in nanoseconds.
pub(in crate::sampler) fn own_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

pub(super) fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result; an unknown clock is an error, not undefined.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) } != 0;
    (!failed).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
