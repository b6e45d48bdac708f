//! Files that profiles go to: opened before the guest begins, put in place when they are whole.
//!
//! # Security
//! A guest that was given the folder can plant links there, under any name. So the folder is held open from the beginning,
//! what is written has no name until it is finished (or one that is not believed), and is then put under its name in that
//! folder without following whatever stands there.

use super::os::Readers;
use super::os::folder::{Folder, check_room};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Room that must be on the disk before a guest is run for a profile.
const ROOM: u64 = 64 << 10;

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
    folder: Folder,
    name: OsString,
    readers: Readers,
    /// What the file is called meanwhile, where it cannot be without a name.
    temporary: Option<OsString>,
}

impl OutputFile {
    /// Opens the file that is to be at `path`, which is absolute. If that is a link, it is replaced.
    ///
    /// # Errors
    /// If there is no such folder, if nothing may be written there, or if the disk is full.
    pub(super) fn create(path: &Path, readers: Readers) -> io::Result<Self> {
        let found = std::fs::symlink_metadata(path).map(|found| found.file_type());
        if found.is_ok_and(|found| !found.is_file() && !found.is_dir() && !found.is_symlink()) {
            return Self::as_it_is(path);
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from(ErrorKind::IsADirectory));
        };
        Self::in_folder(Folder::open(folder)?, name, readers)
    }

    /// Opens what is at `path`, a pipe, a device or a file that the process was started with, to be written as it is.
    ///
    /// # Errors
    /// Whatever keeps it from being opened.
    pub(super) fn as_it_is(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().append(true).open(path)?, place: Place::AsItIs })
    }

    /// A second file, with this ending, beside one that is not written as it is. It has the same readers.
    pub(super) fn beside(&self, ending: &str) -> io::Result<Option<Self>> {
        let Place::Folder(InFolder { readers, .. }) = &self.place else { return Ok(None) };
        self.beside_for(*readers, ending)
    }

    /// As [`OutputFile::beside`], with these readers.
    pub(super) fn beside_for(&self, readers: Readers, ending: &str) -> io::Result<Option<Self>> {
        let Place::Folder(InFolder { folder, name, .. }) = &self.place else { return Ok(None) };
        let mut name = name.clone();
        name.push(ending);
        Self::in_folder(folder.try_clone()?, &name, readers).map(Some)
    }

    fn in_folder(folder: Folder, name: &OsStr, readers: Readers) -> io::Result<Self> {
        let (file, temporary) = match folder.create_unnamed(readers)? {
            Some(file) => (file, None),
            None => {
                let (file, temporary) = create_new(&folder, name, readers)?;
                (file, Some(temporary))
            }
        };
        let place = InFolder { folder, name: name.to_owned(), readers, temporary };
        let output = Self { file, place: Place::Folder(place) };
        check_room(&output.file, ROOM)?;
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
        let Place::Folder(InFolder { folder, name, readers, .. }) = &self.place else { return Ok(None) };
        let (file, temporary) = create_new(folder, name, *readers)?;
        folder.rename(&temporary, name)?;
        Ok(Some(file))
    }

    /// Removes what [`OutputFile::forerunner`] made, if it is still there.
    pub(super) fn remove_forerunner(&self, forerunner: &File) {
        if let Place::Folder(InFolder { folder, name, .. }) = &self.place
            && folder.has(forerunner, name)
        {
            folder.remove(name);
        }
    }

    /// Puts the file in its place, where it takes that of a file that was there.
    ///
    /// # Errors
    /// What stands in the way, and where the file is instead.
    pub(super) fn put_in_place(mut self) -> Result<(), String> {
        let Place::Folder(place) = &mut self.place else { return Ok(()) };
        let temporary = place.give_a_name(&self.file).map_err(|error| error.to_string())?;
        let renamed = place.folder.rename(&temporary, &place.name);
        renamed.map_err(|error| format!("{error}; it is in {} instead", place.folder.path_of(&temporary).display()))
    }

    /// Puts the file in its place if nothing is there, or else under a name that begins with its own. Gives its path; `None`
    /// if it was written as it is.
    pub(super) fn keep(mut self) -> io::Result<Option<PathBuf>> {
        let Place::Folder(place) = &mut self.place else { return Ok(None) };
        let temporary = place.give_a_name(&self.file)?;
        let name = match place.folder.rename_to_new(&temporary, &place.name) {
            Ok(()) => &place.name,
            Err(_) => &temporary,
        };
        Ok(Some(place.folder.path_of(name)))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Place::Folder(InFolder { folder, temporary: Some(temporary), .. }) = &self.place
            && folder.has(&self.file, temporary)
        {
            folder.remove(temporary);
        }
    }
}

impl InFolder {
    /// Makes sure that the file has a name in the folder, and gives it.
    fn give_a_name(&mut self, file: &File) -> io::Result<OsString> {
        if let Some(temporary) = self.temporary.take()
            && self.folder.has(file, &temporary)
        {
            return Ok(temporary);
        }
        loop {
            let name = new_name(&self.name);
            match self.folder.give_name(file, &name) {
                Ok(()) => return Ok(name),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                // The guest has taken the file's only name away, or there is no /proc.
                Err(_) => return self.copy(file),
            }
        }
    }

    fn copy(&self, mut file: &File) -> io::Result<OsString> {
        let (mut copy, name) = create_new(&self.folder, &self.name, self.readers)?;
        io::Seek::rewind(&mut file)?;
        match io::copy(&mut file, &mut copy) {
            Ok(_) => Ok(name),
            Err(error) => {
                self.folder.remove(&name);
                Err(error)
            }
        }
    }
}

/// Makes a new file in `folder`, with a name that begins with `name`.
fn create_new(folder: &Folder, name: &OsStr, readers: Readers) -> io::Result<(File, OsString)> {
    loop {
        let name = new_name(name);
        match folder.create_new(&name, readers) {
            Ok(file) => return Ok((file, name)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
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

#[cfg(all(test, unix))]
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
        let output = OutputFile::create(&path, Readers::AsUsual).unwrap();
        output.file().write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        output.put_in_place().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["profile"]);
    }

    #[test]
    fn what_is_not_finished_is_gone() {
        let folder = folder();
        let output = OutputFile::create(&folder.path().join("profile"), Readers::AsUsual).unwrap();
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
        let output = OutputFile::create(&path, Readers::AsUsual).unwrap();
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
        let output = OutputFile::create(&inner.join("profile"), Readers::AsUsual).unwrap();
        std::fs::rename(&inner, folder.path().join("moved")).unwrap();
        symlink("/", &inner).unwrap();
        output.put_in_place().unwrap();
        assert_eq!(names(&folder.path().join("moved")), ["profile"]);
    }

    #[test]
    fn what_is_for_the_owner_is_for_nobody_else_in_any_of_its_forms() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let path = |name: &str| folder.path().join(name);
        // What a stranger could read, a new one takes the place of.
        std::fs::write(path("placed"), "old").unwrap();
        std::fs::set_permissions(path("placed"), PermissionsExt::from_mode(0o644)).unwrap();
        let placed = OutputFile::create(&path("placed"), Readers::Owner).unwrap();
        placed.forerunner().unwrap().unwrap();
        assert_eq!(mode(&path("placed")), 0o600);
        let beside = placed.beside(".elf").unwrap().unwrap();
        placed.put_in_place().unwrap();
        beside.put_in_place().unwrap();
        let usual = OutputFile::create(&path("usual"), Readers::AsUsual).unwrap();
        let kept = usual.beside_for(Readers::Owner, ".kept").unwrap().unwrap();
        usual.put_in_place().unwrap();
        kept.keep().unwrap().unwrap();
        let modes = ["placed", "placed.elf", "usual.kept"].map(|name| mode(&path(name)));
        assert_eq!(modes, [0o600; 3]);
        // As any file of this process.
        std::fs::write(path("any"), "").unwrap();
        assert_eq!(mode(&path("usual")), mode(&path("any")));
    }

    #[test]
    fn a_folder_in_its_place_does_not_cost_the_file() {
        let folder = folder();
        let path = folder.path().join("profile");
        let output = OutputFile::create(&path, Readers::AsUsual).unwrap();
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
        let output = OutputFile::create(&path, Readers::AsUsual).unwrap();
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
            let output = OutputFile::create(&path, Readers::AsUsual).unwrap();
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
        let held = Folder::open(folder.path()).unwrap();
        let (mut file, temporary) = create_new(&held, OsStr::new("profile"), Readers::Owner).unwrap();
        file.write_all(b"contents").unwrap();
        std::fs::remove_file(folder.path().join(&temporary)).unwrap();
        std::fs::write(folder.path().join(&temporary), "the guest's").unwrap();
        let place =
            InFolder { folder: held, name: "profile".into(), readers: Readers::Owner, temporary: Some(temporary) };
        OutputFile { file, place: Place::Folder(place) }.put_in_place().unwrap();
        assert_eq!(std::fs::read(folder.path().join("profile")).unwrap(), b"contents");
    }
}
