//! Opens a file, and says where it really is: what has been opened is asked, as a guest that runs may have put a link there
//! meanwhile.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Opens the file at `path`, to be read, and gives its path without links. A pipe is not waited for.
///
/// # Errors
/// Whatever keeps it from being opened.
#[cfg(unix)]
pub(super) fn open(path: &Path) -> io::Result<(File, PathBuf)> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let place = place_of(&file)?;
    Ok((file, place))
}

#[cfg(target_os = "linux")]
fn place_of(file: &File) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(target_os = "macos")]
fn place_of(file: &File) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let path = rustix::fs::getpath(file)?;
    Ok(std::ffi::OsString::from_vec(path.into_bytes()).into())
}

/// Opens the file at `path`, to be read, and gives its path without links. Safe code cannot ask what has been opened on Windows:
/// the path is looked at again.
///
/// # Errors
/// Whatever keeps it from being opened.
#[cfg(windows)]
pub(super) fn open(path: &Path) -> io::Result<(File, PathBuf)> {
    let file = File::open(path)?;
    Ok((file, path.canonicalize()?))
}
