//! A folder that is held open, and files in it by their names: whatever becomes of its path, it is this one.

use crate::os::Readers;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Permissions of new files, less what the user's umask takes away.
fn mode(readers: Readers) -> Mode {
    Mode::from_bits_retain(match readers {
        Readers::Owner => 0o600,
        Readers::AsUsual => 0o666,
    })
}

/// Where nothing of it is read, the right to that is not asked for.
#[cfg(target_os = "linux")]
const HELD: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const HELD: OFlags = OFlags::RDONLY;

/// A folder.
pub(crate) struct Folder {
    handle: OwnedFd,
    /// What it was called, for messages.
    path: PathBuf,
}

impl Folder {
    /// # Errors
    /// If there is no such folder.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = HELD | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { handle: rustix::fs::open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { handle: self.handle.try_clone()?, path: self.path.clone() })
    }

    /// What the file of that name was called when this was opened.
    pub(crate) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a file without a name; `None` if the system or the file system has none.
    ///
    /// # Errors
    /// What else keeps it from being made.
    #[cfg(target_os = "linux")]
    pub(crate) fn create_unnamed(&self, readers: Readers) -> io::Result<Option<File>> {
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.handle, ".", unnamed, mode(readers)) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes no file without a name: there are none.
    ///
    /// # Errors
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn create_unnamed(&self, _readers: Readers) -> io::Result<Option<File>> {
        Ok(None)
    }

    /// Gives a name to a file that has none.
    ///
    /// # Errors
    /// `AlreadyExists` if another file has it; others if there is no `/proc`, or if this file had a name that was taken away.
    #[cfg(target_os = "linux")]
    pub(crate) fn give_name(&self, file: &File, name: &OsStr) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::linkat(rustix::fs::CWD, &unnamed, &self.handle, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Gives no name: there are no files without.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn give_name(&self, _file: &File, _name: &OsStr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes a new file of that name, to be read and written. No link is followed.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something of that name.
    pub(crate) fn create_new(&self, name: &OsStr, readers: Readers) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.handle, name, flags, mode(readers))?.into())
    }

    /// Gives a file another name, and with it the place of what has that.
    ///
    /// # Errors
    /// If a folder has it, above all.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
    }

    /// Gives a file another name that nothing has.
    ///
    /// # Errors
    /// If something has it, above all.
    pub(crate) fn rename_to_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        rustix::fs::linkat(&self.handle, from, &self.handle, to, AtFlags::empty())?;
        // It has two names now.
        self.remove(from);
        Ok(())
    }

    /// Takes a name away, if it is there.
    pub(crate) fn remove(&self, name: &OsStr) {
        let _ = rustix::fs::unlinkat(&self.handle, name, AtFlags::empty());
    }

    /// Whether `name` is this very file, and no link to it.
    pub(crate) fn has(&self, file: &File, name: &OsStr) -> bool {
        let (Ok(own), Ok(found)) =
            (rustix::fs::fstat(file.as_fd()), rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW))
        else {
            return false;
        };
        (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino)
    }
}

/// Looks whether there is room for so many bytes in an empty file, which it is again then.
///
/// # Errors
/// If there is not.
pub(crate) fn check_room(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => file.set_len(0),
        // Two errors on some systems.
        Err(error) if [Errno::OPNOTSUPP, Errno::NOTSUP].contains(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
