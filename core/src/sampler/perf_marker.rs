//! How a running program tells perf of a file with its machine code.

use super::clock::monotonic_ns;
use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// Keeps the first page of a file mapped for execution. That does nothing but appear in what `perf record` writes, which
/// is where `perf inject --jit` finds the name of a jitdump file.
#[derive(Debug)]
pub struct PerfMarker {
    page: NonNull<libc::c_void>,
    /// When it was mapped, in nanoseconds of `CLOCK_MONOTONIC`.
    pub mapped_ns: u64,
}

/// One page: of less the kernel maps a whole one as well.
const LENGTH: usize = 1;

// SAFETY: nothing is ever read or written through the pointer.
unsafe impl Send for PerfMarker {}
// SAFETY: as above.
unsafe impl Sync for PerfMarker {}

impl PerfMarker {
    /// Maps the beginning of `file`, which may be empty still and must be readable.
    ///
    /// # Errors
    /// If the file lies where nothing may be executed (a file system mounted `noexec`), above all.
    pub fn map(file: &File) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
        // SAFETY: the kernel chooses a place that is free; the file descriptor is open for the length of the call.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, protection, flags, file.as_raw_fd(), 0) };
        match NonNull::new(page) {
            Some(page) if page.as_ptr() != libc::MAP_FAILED => Ok(Self { page, mapped_ns: monotonic_ns() }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for PerfMarker {
    fn drop(&mut self) {
        // SAFETY: the page is this value's own and nothing points into it. Failing leaves it mapped, which is harmless.
        unsafe { libc::munmap(self.page.as_ptr(), LENGTH) };
    }
}
