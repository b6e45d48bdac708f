//! The texts of source files that a recording's functions are in, where they can be had.
//!
//! # Security
//! The names of files come from the guest: from its debug information, or from the memory of its interpreter. A profile is
//! handed on, so a guest that calls a file `/home/me/.ssh/id_rsa` must not get that into one. A file is read only if all of this
//! holds, whatever it is called:
//!
//! * It is in a folder that the user named for this: with `--source-dir`, or with `--dir`, in which the guest itself can read.
//!   No other place is looked at, the working folder neither.
//! * It is really there: links are followed first, and what they lead to has to be in that same folder. Where the folders
//!   themselves are is found out before the guest begins, which may make links in those that it is given.
//! * No part of its path below the folder begins with a dot: `--source-dir .` in a home folder does not mean the keys in it.
//! * It is a regular file of text, UTF-8 without NUL.
//! * It has at most [`MOST_BYTES`], and all files of a recording together at most [`MOST_BYTES_OF_ALL`].

mod below;
mod open;

pub use below::read_below;

use crate::Recording;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Bytes that a file may have.
pub const MOST_BYTES: u64 = 1 << 20;

/// Bytes that all files of a recording may have.
pub const MOST_BYTES_OF_ALL: usize = 16 << 20;

/// Where source files may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFolders {
    folders: Vec<Folder>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Folder {
    /// Its real path.
    host: PathBuf,
    /// What the guest calls it, if it is the guest's.
    guest: Option<PathBuf>,
}

impl SourceFolders {
    /// Adds a folder in which sources are, by any end of their names: `/build/app/src/main.c` may be `src/main.c` there.
    ///
    /// # Errors
    /// If there is no such folder, or its path is not UTF-8.
    pub fn add(&mut self, host: &Path) -> io::Result<()> {
        self.push(host, None)
    }

    /// Adds a folder that the guest is given, in which its own names of files lead to sources.
    ///
    /// # Errors
    /// If there is no such folder, or its path is not UTF-8.
    pub fn add_of_guest(&mut self, host: &Path, guest: &str) -> io::Result<()> {
        self.push(host, Some(inside(Path::new(guest))))
    }

    fn push(&mut self, host: &Path, guest: Option<PathBuf>) -> io::Result<()> {
        let host = host.canonicalize()?;
        if !host.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        // It is told to another process, as text.
        if host.to_str().is_none() {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        self.folders.push(Folder { host, guest });
        Ok(())
    }

    /// The texts of the files that functions of `recording` are in, by the names that they have there. Those of other files,
    /// and of files that cannot be had, are left out.
    pub fn texts(&self, recording: &Recording) -> BTreeMap<String, String> {
        let mut room = MOST_BYTES_OF_ALL;
        let mut texts = BTreeMap::new();
        let names: BTreeSet<&String> =
            recording.functions.iter().filter_map(|function| function.file.as_ref()).collect();
        for name in names {
            if let Some(text) = self.text(name).filter(|text| text.len() <= room) {
                room -= text.len();
                texts.insert(name.clone(), text);
            }
        }
        texts
    }

    /// The text of the file of that name.
    pub fn text(&self, name: &str) -> Option<String> {
        let path = Path::new(name);
        self.folders.iter().find_map(|folder| folder.candidates(path).find_map(|below| folder.read(&below)))
    }
}

impl Folder {
    /// Where a file of that name may be, below the folder.
    fn candidates(&self, name: &Path) -> impl Iterator<Item = PathBuf> {
        let (whole, ends) = match &self.guest {
            Some(guest) => (inside(name).strip_prefix(guest).ok().map(Path::to_owned), None),
            None => (name.strip_prefix(&self.host).ok().map(Path::to_owned), Some(inside(name))),
        };
        let ends = ends.into_iter().flat_map(|name| {
            let parts: Vec<_> = name.iter().map(ToOwned::to_owned).collect();
            (0..parts.len()).map(move |first| parts[first..].iter().collect())
        });
        whole.into_iter().chain(ends)
    }

    /// The text of the file at that path below the folder, if it may be read.
    fn read(&self, below: &Path) -> Option<String> {
        let text = String::from_utf8(read_below(&self.host, below, MOST_BYTES).ok()?).ok()?;
        (!text.contains('\0')).then_some(text)
    }
}

/// `path` as one in a folder: without what says where the folder is, and without steps that lead nowhere. Those that lead out
/// stay, and lead to nothing that may be read.
fn inside(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir)).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A folder `project` with sources, beside others.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for folder in ["project/src", "project/.git", "home/.ssh", "home/project2"] {
            fs::create_dir_all(place.path().join(folder)).unwrap();
        }
        for (file, text) in [
            ("project/src/main.c", "int main;"),
            ("project/top.py", "pass"),
            ("project/.git/config", "secret"),
            ("project/.env", "secret"),
            ("home/.ssh/id_rsa", "secret"),
            ("home/plain", "secret"),
            ("project/binary.c", "a\0b"),
        ] {
            fs::write(place.path().join(file), text).unwrap();
        }
        fs::write(place.path().join("project/latin1.c"), b"\xe9").unwrap();
        fs::write(place.path().join("project/big.c"), "x".repeat(MOST_BYTES as usize + 1)).unwrap();
        fs::write(place.path().join("project/largest.c"), "x".repeat(MOST_BYTES as usize)).unwrap();
        symlink(place.path().join("home/plain"), place.path().join("project/link.c")).unwrap();
        symlink(place.path().join("home"), place.path().join("project/out")).unwrap();
        symlink(place.path().join("project/.env"), place.path().join("project/env.c")).unwrap();
        symlink("src/main.c", place.path().join("project/inner.c")).unwrap();
        place
    }

    fn of_project(place: &tempfile::TempDir) -> SourceFolders {
        let mut folders = SourceFolders::default();
        folders.add(&place.path().join("project")).unwrap();
        folders
    }

    #[test]
    fn sources_are_found_by_the_ends_of_their_names() {
        let place = place();
        let folders = of_project(&place);
        let absolute = place.path().join("project/src/main.c");
        for name in ["src/main.c", "/build/elsewhere/src/main.c", "./src/main.c", "inner.c", absolute.to_str().unwrap()]
        {
            assert_eq!(folders.text(name).as_deref(), Some("int main;"), "{name}");
        }
        assert_eq!(folders.text("main.c"), None, "it is not at the top");
        assert_eq!(folders.text("largest.c").map(|text| text.len()), Some(MOST_BYTES as usize));
    }

    #[test]
    fn a_guests_folder_is_where_the_guest_says() {
        let place = place();
        let mut folders = SourceFolders::default();
        folders.add_of_guest(&place.path().join("project"), "/app").unwrap();
        assert_eq!(folders.text("/app/top.py").as_deref(), Some("pass"));
        assert_eq!(folders.text("app/./src/main.c").as_deref(), Some("int main;"));
        assert_eq!(
            [folders.text("/top.py"), folders.text("/x/app/top.py"), folders.text("/app/.env")],
            [None, None, None]
        );
        let mut folders = SourceFolders::default();
        folders.add_of_guest(&place.path().join("project"), ".").unwrap();
        assert_eq!([folders.text("top.py"), folders.text("/top.py")], [Some("pass".into()), Some("pass".into())]);
    }

    #[test]
    fn nothing_but_text_in_the_folders_is_read_whatever_a_guest_calls_it() {
        let place = place();
        let mut folders = of_project(&place);
        folders.add_of_guest(&place.path().join("project"), "/").unwrap();
        let outside = place.path().join("home/.ssh/id_rsa");
        for name in [
            "/etc/passwd",
            "/etc/hostname",
            outside.to_str().unwrap(),
            place.path().join("home/plain").to_str().unwrap(),
            "../home/plain",
            "src/../../home/plain",
            "/x/../home/plain",
            "link.c",
            "out/plain",
            "out/.ssh/id_rsa",
            ".git/config",
            "src/../.git/config",
            ".env",
            "env.c",
            "binary.c",
            "latin1.c",
            "big.c",
            "src",
            "",
            "/",
            "..",
            "top.py\0",
            "/proc/self/environ",
            "/dev/stdin",
        ] {
            assert_eq!(folders.text(name), None, "{name}");
        }
    }

    #[test]
    fn a_folder_that_the_guest_replaces_with_a_link_is_no_way_out() {
        let place = place();
        let mut folders = SourceFolders::default();
        folders.add_of_guest(&place.path().join("home/project2"), "/p").unwrap();
        fs::remove_dir(place.path().join("home/project2")).unwrap();
        symlink("/etc", place.path().join("home/project2")).unwrap();
        assert!(fs::metadata(place.path().join("home/project2/passwd")).is_ok());
        assert_eq!(folders.text("/p/passwd"), None);
    }

    #[test]
    fn all_files_together_have_an_end() {
        let place = tempfile::tempdir().unwrap();
        let mut recording = crate::example();
        let function = recording.functions[0].clone();
        let count = 2 * MOST_BYTES_OF_ALL / MOST_BYTES as usize;
        recording.functions = (0..count)
            .map(|number| crate::Function { file: Some(format!("{number}.c")), ..function.clone() })
            .collect();
        for number in 0..count {
            fs::write(place.path().join(format!("{number}.c")), "x".repeat(MOST_BYTES as usize)).unwrap();
        }
        let mut folders = SourceFolders::default();
        folders.add(place.path()).unwrap();
        let texts = folders.texts(&recording);
        assert_eq!(texts.values().map(String::len).sum::<usize>(), MOST_BYTES_OF_ALL);
    }

    #[test]
    fn there_have_to_be_such_folders() {
        let place = place();
        let mut folders = SourceFolders::default();
        assert!(folders.add(&place.path().join("nowhere")).is_err());
        assert!(folders.add(&place.path().join("project/top.py")).is_err());
    }
}
