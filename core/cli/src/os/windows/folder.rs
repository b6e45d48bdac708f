//! A folder, and files in it by their names.
//!
//! # Security
//! Windows has no files without names, and a folder cannot be held open by safe code: names are resolved each time. Whoever may make
//! symbolic links in the folder can lead them elsewhere. A guest may not: WASI makes none that lead out of its folders.

use crate::os::Readers;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A folder.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// # Errors
    /// If there is no such folder.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if !fs::metadata(path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self(path.to_owned()))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.clone()))
    }

    /// What the file of that name is called.
    pub(crate) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.0.join(name)
    }

    /// Makes no file without a name: there are none.
    ///
    /// # Errors
    /// None.
    pub(crate) fn create_unnamed(&self, _readers: Readers) -> io::Result<Option<File>> {
        Ok(None)
    }

    /// Gives no name: there are no files without.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn give_name(&self, _file: &File, _name: &OsStr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes a new file of that name, to be read and written.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something of that name.
    pub(crate) fn create_new(&self, name: &OsStr, _readers: Readers) -> io::Result<File> {
        File::options().read(true).write(true).create_new(true).open(self.path_of(name))
    }

    /// Gives a file another name, and with it the place of what has that.
    ///
    /// # Errors
    /// If a folder has it, or a program that has the file open does not let it go.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(self.path_of(from), self.path_of(to))
    }

    /// Gives a file another name that nothing has.
    ///
    /// # Errors
    /// If something has it, above all.
    pub(crate) fn rename_to_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::hard_link(self.path_of(from), self.path_of(to))?;
        // It has two names now.
        self.remove(from);
        Ok(())
    }

    /// Takes a name away, if it is there.
    pub(crate) fn remove(&self, name: &OsStr) {
        let _ = fs::remove_file(self.path_of(name));
    }

    /// Whether `name` is this file, as far as can be told: safe code is not told what identifies a file. Of another one, that somebody else
    /// has put there meanwhile, it is said that it is not: it was made at another time, or is of another length.
    pub(crate) fn has(&self, file: &File, name: &OsStr) -> bool {
        let marks = |found: fs::Metadata| Some((found.is_file(), found.created().ok()?, found.len()));
        let named = fs::symlink_metadata(self.path_of(name)).ok().and_then(marks);
        named.is_some() && named == file.metadata().ok().and_then(marks)
    }
}

/// Looks whether there is room for so many bytes in an empty file, which it is again then.
///
/// # Errors
/// If there is not.
pub(crate) fn check_room(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    file.set_len(0)
}
