//! Has the system load a dynamic library.

use libloading::{Error, Library};
use std::path::Path;

/// Loads the library at `path`, which is absolute.
///
/// # Errors
/// The system's.
///
/// # Safety
/// What its constructors do must be sound.
#[cfg(unix)]
pub(super) unsafe fn library(path: &Path) -> Result<Library, Error> {
    use libloading::os::unix;
    // What it lacks is better known now than when it is called.
    let flags = unix::RTLD_NOW | unix::RTLD_LOCAL;
    // SAFETY: the caller's promise.
    unsafe { unix::Library::open(Some(path), flags) }.map(Library::from)
}

/// Loads the library at `path`, which is absolute.
///
/// # Errors
/// The system's.
///
/// # Safety
/// What its constructors do must be sound.
#[cfg(not(unix))]
pub(super) unsafe fn library(path: &Path) -> Result<Library, Error> {
    // SAFETY: the caller's promise.
    unsafe { Library::new(path) }
}
