//! Files that profiles go to: opened before the guest begins, put in place when they are whole.
//!
//! # Security
//! A guest that was given the folder can plant links there, under any name. So the folder is held open from the beginning,
//! what is written has no name until it is finished (or one that is not believed), and is then put under its name in that
//! folder without following whatever stands there.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// Room that must be on the disk before a guest is run for a profile.
const ROOM: u64 = 64 << 10;

/// Permissions of new files, less what the user's umask takes away.
const MODE: Mode = Mode::from_bits_retain(0o666);

/// A file to be.
pub(super) struct OutputFile {
    file: File,
    place: Place,
}

enum Place {
    /// Written as it is: a pipe, a device, or a file that whoever started the process has opened.
    AsItIs,
    Folder(InFolder),
}

/// A name in a folder.
struct InFolder {
    folder: OwnedFd,
    /// What the folder was called, for messages.
    path: PathBuf,
    name: OsString,
    /// What the file is called meanwhile, where it cannot be without a name.
    temporary: Option<OsString>,
}

impl OutputFile {
    /// Opens the file that is to be at `path`, which is absolute. If that is a link, it is replaced.
    ///
    /// # Errors
    /// If there is no such folder, if nothing may be written there, or if the disk is full.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let found = std::fs::symlink_metadata(path).map(|found| found.file_type());
        if found.is_ok_and(|found| !found.is_file() && !found.is_dir() && !found.is_symlink()) {
            return Self::as_it_is(path);
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::in_folder(rustix::fs::open(folder, flags, Mode::empty())?, folder, name)
    }

    /// Opens what is at `path`, a pipe, a device or a file that the process was started with, to be written as it is.
    ///
    /// # Errors
    /// Whatever keeps it from being opened.
    pub(super) fn as_it_is(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().append(true).open(path)?, place: Place::AsItIs })
    }

    /// A second file, with this ending, beside one that is not written as it is.
    pub(super) fn beside(&self, ending: &str) -> io::Result<Option<Self>> {
        let Place::Folder(InFolder { folder, path, name, .. }) = &self.place else { return Ok(None) };
        let mut name = name.clone();
        name.push(ending);
        Self::in_folder(folder.try_clone()?, path, &name).map(Some)
    }

    fn in_folder(folder: OwnedFd, path: &Path, name: &OsStr) -> io::Result<Self> {
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let (file, temporary) = match rustix::fs::openat(&folder, ".", unnamed, MODE) {
            Ok(file) => (file, None),
            // Not all file systems have files without names.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let (file, temporary) = create_new(&folder, name)?;
                (file, Some(temporary))
            }
            Err(error) => return Err(error.into()),
        };
        let place = InFolder { folder, path: path.to_owned(), name: name.to_owned(), temporary };
        let output = Self { file: file.into(), place: Place::Folder(place) };
        match rustix::fs::fallocate(&output.file, FallocateFlags::empty(), 0, ROOM) {
            Ok(()) => output.file.set_len(0)?,
            Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(output)
    }

    /// Whether it is written as it is, and not put in a place.
    pub(super) fn is_written_as_it_is(&self) -> bool {
        matches!(self.place, Place::AsItIs)
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Makes a file that has this one's name until this one is put there: for what must be found even if this process is
    /// killed. `None` if this one is written as it is.
    pub(super) fn forerunner(&self) -> io::Result<Option<File>> {
        let Place::Folder(InFolder { folder, name, .. }) = &self.place else { return Ok(None) };
        let (file, temporary) = create_new(folder, name)?;
        rename(folder, &temporary, name)?;
        Ok(Some(file.into()))
    }

    /// Removes what [`OutputFile::forerunner`] made, if it is still there.
    pub(super) fn remove_forerunner(&self, forerunner: &File) {
        if let Place::Folder(InFolder { folder, name, .. }) = &self.place
            && is_at(forerunner, folder, name)
        {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }

    /// Puts the file in its place, where it takes that of a file that was there.
    ///
    /// # Errors
    /// What stands in the way, and where the file is instead.
    pub(super) fn put_in_place(mut self) -> Result<(), String> {
        let Place::Folder(place) = &mut self.place else { return Ok(()) };
        let temporary = place.give_a_name(&self.file).map_err(|error| error.to_string())?;
        let renamed = rename(&place.folder, &temporary, &place.name);
        renamed.map_err(|error| format!("{error}; it is in {} instead", place.path.join(temporary).display()))
    }

    /// Puts the file in its place if nothing is there, or else under a name that begins with its own. Gives its path; `None`
    /// if it was written as it is.
    pub(super) fn keep(mut self) -> io::Result<Option<PathBuf>> {
        let Place::Folder(place) = &mut self.place else { return Ok(None) };
        let temporary = place.give_a_name(&self.file)?;
        let name = match rustix::fs::linkat(&place.folder, &temporary, &place.folder, &place.name, AtFlags::empty()) {
            Ok(()) => {
                // It has two names now.
                let _ = rustix::fs::unlinkat(&place.folder, &temporary, AtFlags::empty());
                &place.name
            }
            Err(_) => &temporary,
        };
        Ok(Some(place.path.join(name)))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Place::Folder(InFolder { folder, temporary: Some(temporary), .. }) = &self.place
            && is_at(&self.file, folder, temporary)
        {
            let _ = rustix::fs::unlinkat(folder, temporary, AtFlags::empty());
        }
    }
}

impl InFolder {
    /// Makes sure that the file has a name in the folder, and gives it.
    fn give_a_name(&mut self, file: &File) -> io::Result<OsString> {
        if let Some(temporary) = self.temporary.take()
            && is_at(file, &self.folder, &temporary)
        {
            return Ok(temporary);
        }
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        loop {
            let name = new_name(&self.name);
            match rustix::fs::linkat(CWD, &unnamed, &self.folder, &name, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => return Ok(name),
                Err(Errno::EXIST) => {}
                // The guest has taken the file's only name away, or there is no /proc.
                Err(_) => return self.copy(file),
            }
        }
    }

    fn copy(&self, mut file: &File) -> io::Result<OsString> {
        let (copy, name) = create_new(&self.folder, &self.name)?;
        io::Seek::rewind(&mut file)?;
        match io::copy(&mut file, &mut File::from(copy)) {
            Ok(_) => Ok(name),
            Err(error) => {
                let _ = rustix::fs::unlinkat(&self.folder, &name, AtFlags::empty());
                Err(error)
            }
        }
    }
}

/// Makes a new file in `folder`, with a name that begins with `name`.
fn create_new(folder: &OwnedFd, name: &OsStr) -> io::Result<(OwnedFd, OsString)> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    loop {
        let name = new_name(name);
        match rustix::fs::openat(folder, &name, flags, MODE) {
            Ok(file) => return Ok((file, name)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A name that nothing has, most probably, and that nobody can guess.
fn new_name(name: &OsStr) -> OsString {
    let random = RandomState::new().build_hasher().finish() >> 32;
    let mut new = name.to_owned();
    new.push(format!(".{random:08x}"));
    new
}

fn rename(folder: &OwnedFd, from: &OsStr, to: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::renameat(folder, from, folder, to)?)
}

/// Whether `name` in `folder` is this very file, and no link to it.
fn is_at(file: &File, folder: &OwnedFd, name: &OsStr) -> bool {
    let (Ok(own), Ok(found)) =
        (rustix::fs::fstat(file.as_fd()), rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW))
    else {
        return false;
    };
    (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_written_is_there_when_it_is_put_in_place_and_not_before() {
        let folder = folder();
        let path = folder.path().join("profile");
        std::fs::write(&path, "old").unwrap();
        let output = OutputFile::create(&path).unwrap();
        output.file().write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        output.put_in_place().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["profile"]);
    }

    #[test]
    fn what_is_not_finished_is_gone() {
        let folder = folder();
        let output = OutputFile::create(&folder.path().join("profile")).unwrap();
        output.file().write_all(b"half").unwrap();
        drop(output);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn links_that_appear_meanwhile_are_replaced_and_never_followed() {
        let (folder, elsewhere) = (folder(), folder());
        let victim = elsewhere.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let path = folder.path().join("profile");
        let output = OutputFile::create(&path).unwrap();
        symlink(&victim, &path).unwrap();
        output.file().write_all(b"new").unwrap();
        output.put_in_place().unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert!(!path.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_folder_that_is_moved_away_keeps_its_profile() {
        let folder = folder();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let output = OutputFile::create(&inner.join("profile")).unwrap();
        std::fs::rename(&inner, folder.path().join("moved")).unwrap();
        symlink("/", &inner).unwrap();
        output.put_in_place().unwrap();
        assert_eq!(names(&folder.path().join("moved")), ["profile"]);
    }

    #[test]
    fn a_folder_in_its_place_does_not_cost_the_file() {
        let folder = folder();
        let path = folder.path().join("profile");
        let output = OutputFile::create(&path).unwrap();
        output.file().write_all(b"new").unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = output.put_in_place().unwrap_err();
        let other = names(folder.path()).into_iter().find(|name| name != "profile").unwrap();
        assert!(error.contains(&other), "{error}");
        assert_eq!(std::fs::read(folder.path().join(other)).unwrap(), b"new");
    }

    #[test]
    fn a_forerunner_is_there_until_it_is_replaced_or_removed() {
        let folder = folder();
        let path = folder.path().join("run.wlprof");
        let output = OutputFile::create(&path).unwrap();
        let mut forerunner = output.forerunner().unwrap().unwrap();
        forerunner.write_all(b"so far").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"so far");
        output.remove_forerunner(&forerunner);
        assert!(names(folder.path()).is_empty());
        // Something else has the name now: it stays.
        std::fs::write(&path, "another").unwrap();
        output.remove_forerunner(&forerunner);
        assert_eq!(names(folder.path()), ["run.wlprof"]);
    }

    #[test]
    fn what_is_kept_replaces_nothing() {
        let folder = folder();
        let path = folder.path().join("profile");
        let keep = |contents: &[u8]| {
            let output = OutputFile::create(&path).unwrap();
            output.file().write_all(contents).unwrap();
            output.keep().unwrap().unwrap()
        };
        assert_eq!(keep(b"first"), path);
        let second = keep(b"second");
        assert_ne!(second, path);
        assert_eq!(
            (std::fs::read(&path).unwrap(), std::fs::read(second).unwrap()),
            (b"first".into(), b"second".into())
        );
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn a_file_whose_name_is_taken_away_is_copied() {
        let folder = folder();
        let handle = rustix::fs::open(folder.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let (file, temporary) = create_new(&handle, OsStr::new("profile")).unwrap();
        let mut file = File::from(file);
        file.write_all(b"contents").unwrap();
        std::fs::remove_file(folder.path().join(&temporary)).unwrap();
        std::fs::write(folder.path().join(&temporary), "the guest's").unwrap();
        let path = folder.path().to_owned();
        let place = InFolder { folder: handle, path, name: "profile".into(), temporary: Some(temporary) };
        OutputFile { file, place: Place::Folder(place) }.put_in_place().unwrap();
        assert_eq!(std::fs::read(folder.path().join("profile")).unwrap(), b"contents");
    }
}
