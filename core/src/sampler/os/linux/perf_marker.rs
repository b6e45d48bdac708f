//! How a running program tells perf of a file with its machine code.

use super::clock::monotonic_ns;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Maps the first page of `file` for execution and leaves it mapped for good. That does nothing but appear in what
/// `perf record` writes, which is where `perf inject --jit` finds the name of a jitdump file. The file must be readable and
/// may be empty still. Gives the time after which samples know of it, in nanoseconds of `CLOCK_MONOTONIC`.
///
/// # Errors
/// If the file lies where nothing may be executed (a file system mounted `noexec`), above all.
pub fn show_to_perf(file: &File) -> io::Result<u64> {
    // Of less than a page the kernel maps a whole one as well.
    const LENGTH: usize = 1;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
    // SAFETY: the kernel chooses a place that is free, and nothing is ever read or written there; the file descriptor is
    // open for the length of the call.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, protection, flags, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(monotonic_ns()) }
}
