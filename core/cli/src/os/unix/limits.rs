//! Limits of a process that works on what a guest or a file says.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Address space, in bytes, besides what the recording takes: the debug information of the largest programs takes some
/// hundred megabytes.
const MOST_MEMORY: u64 = 4 << 30;

/// What an unpacked recording may take, as a multiple of its file.
const MEMORY_OF_RECORDING: u64 = 8;

/// Processor time, in seconds.
const MOST_TIME_S: u64 = 300;

/// Allows this process as many open files as it may have. Where that is refused, it has as many as before.
#[cfg(target_os = "linux")]
pub(crate) fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Sets them for this process, which is to work on a recording of that size in bytes. Narrower ones that it has stay.
pub(crate) fn set(size_of_recording: u64) -> io::Result<()> {
    let set = |resource, limit: u64| {
        let Rlimit { current, maximum } = getrlimit(resource);
        let limit = Some([current, maximum].into_iter().flatten().fold(limit, u64::min));
        setrlimit(resource, Rlimit { current: limit, maximum: limit })
    };
    let memory = set(Resource::As, MOST_MEMORY + MEMORY_OF_RECORDING * size_of_recording);
    // Elsewhere a limit below what programs have mapped from their beginning on may be refused.
    if cfg!(target_os = "linux") {
        memory?;
    }
    set(Resource::Cpu, MOST_TIME_S)?;
    // What there was to work on remains: nobody needs its memory as well.
    Ok(set(Resource::Core, 0)?)
}
