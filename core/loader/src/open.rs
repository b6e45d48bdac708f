//! Has the system load a dynamic library.

use libloading::{Error, Library};
use std::path::Path;

/// Loads the library at `path`, which is absolute.
///
/// # Errors
/// The system's.
///
/// # Safety
/// The constructors of the library must be sound to run.
#[cfg(unix)]
pub(super) unsafe fn library(path: &Path) -> Result<Library, Error> {
    use libloading::os::unix;
    // What it lacks is better known now than when it is called.
    let flags = unix::RTLD_NOW | unix::RTLD_LOCAL;
    // SAFETY: the constructors of the library are sound to run (see # Safety).
    unsafe { unix::Library::open(Some(path), flags) }.map(Library::from)
}

/// Loads the library at `path`, which is absolute.
///
/// # Errors
/// The system's.
///
/// # Safety
/// The constructors of the library must be sound to run.
#[cfg(not(unix))]
pub(super) unsafe fn library(path: &Path) -> Result<Library, Error> {
    // SAFETY: the constructors of the library are sound to run (see # Safety).
    unsafe { Library::new(path) }
}
