//! Linux.

use rustix::fs::MemfdFlags;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::termios::LocalModes;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What starts this very program again, whatever has become of its file.
///
/// # Errors
/// None.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

/// Has this process end when the one does that started it.
///
/// # Errors
/// If the system refuses.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// A file that is nowhere. The next process that is started does not have it.
///
/// # Errors
/// If there is no more memory for it.
pub(crate) fn in_memory(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// Whether drawing on standard error would stop this process for good: under `stty tostop`, as it is none of the terminal's
/// foreground.
pub(crate) fn drawing_would_stop() -> bool {
    rustix::termios::tcgetattr(io::stderr()).is_ok_and(|terminal| terminal.local_modes.contains(LocalModes::TOSTOP))
}

/// Makes a new file that only its owner can read. One of an earlier process with the same number is replaced.
///
/// # Errors
/// What is in its place, or keeps it from being made.
pub(crate) fn create_for_perf(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(found) if is_own_file(&found, own_user()?) => fs::remove_file(path)?,
        Ok(_) => {
            let message = "there is something that is not a file of yours; remove it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // New, or an error: whatever was put there meanwhile, a link included, is neither followed nor written to.
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Whether it is a regular file of `user`'s, and no link.
fn is_own_file(found: &Metadata, user: u32) -> bool {
    found.is_file() && found.uid() == user
}

/// The user that this process makes files as.
fn own_user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_and_links_are_not_ones_own() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let user = own_user().unwrap();
        let is_own = |path: &Path, user| is_own_file(&fs::symlink_metadata(path).unwrap(), user);
        assert!(is_own(&file, user));
        assert!(!is_own(&file, user + 1));
        assert!(!is_own(&link, user));
        assert!(!is_own(folder.path(), user));
    }
}
