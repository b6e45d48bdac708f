//! Windows.

pub(in crate::sampler) use super::unwatched::{cpu_event, memory, own_thread, perf_marker, processors, thread_watch};

/// The clocks that samples are stamped with.
///
/// # Accuracy
/// Windows counts a thread's CPU time in ticks of a 64th of a second: samples between two of them stand for none, the next one for
/// all of it.
pub(in crate::sampler) mod clock {
    use std::sync::LazyLock;
    use std::time::Instant;
    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::Threading::{GetCurrentThread, GetThreadTimes};

    /// Nanoseconds of the performance counter, since it was first asked.
    pub(in crate::sampler) fn monotonic_ns() -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_nanos() as u64
    }

    /// The most CPU time that may be counted together in so many nanoseconds: it goes on by whole ticks.
    pub(in crate::sampler) fn at_least_a_step(ns: u64) -> u64 {
        const TICK_NS: u64 = 1_000_000_000 / 64;
        ns.max(TICK_NS)
    }

    /// CPU time of the calling thread, in nanoseconds.
    pub(in crate::sampler) fn own_cpu_ns() -> u64 {
        let [mut created, mut exited, mut kernel, mut user] = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
        // SAFETY: the handle stands for the calling thread and need not be closed; the places are valid for the results.
        let read = unsafe { GetThreadTimes(GetCurrentThread(), &mut created, &mut exited, &mut kernel, &mut user) };
        let ns = |time: FILETIME| (u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)) * 100;
        if read == 0 { 0 } else { ns(kernel) + ns(user) }
    }
}
