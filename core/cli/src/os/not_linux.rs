//! What systems have instead that are not Linux.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What starts this program again, if its file is still there.
///
/// # Errors
/// If the system does not know where that is.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Not to be had: when its parent ends, what this process writes to does.
///
/// # Errors
/// None.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(())
}

/// A file that is gone when it is closed.
///
/// # Errors
/// If there is no room for it where temporary files are.
pub(crate) fn in_memory(_name: &str) -> io::Result<File> {
    tempfile::tempfile()
}

/// No: only processes of the foreground draw.
pub(crate) fn drawing_would_stop() -> bool {
    false
}

/// Makes no file, as nothing would read it.
///
/// # Errors
/// Always.
pub(crate) fn create_for_perf(_path: &Path) -> io::Result<File> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "it is for perf, which is a program of Linux"))
}
