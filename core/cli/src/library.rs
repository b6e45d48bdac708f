//! The folder beside a guest with its language's library, which the guest is given though the user has not named it. So it is
//! plainly that, and nothing that a link or the guest's name could make of it. A link is followed where the user has named the guest by
//! one, too: whoever made that chose the guest already.

use super::say;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use wlprof::languages::Library;
use wlprof_show::escape;
use wlprof_wasi::Directory;

/// What there is beside a guest.
enum LibraryPlace {
    Library(PathBuf),
    /// A folder of that name, and why it is not given.
    Refused(PathBuf, String),
    Nothing,
}

/// The folder to give to the guest at `guest`, if there is one and none of `given` takes its place. Says what becomes of it.
pub(super) fn beside(guest: &Path, library: &Library, given: &[Directory]) -> Option<Directory> {
    if is_given(library, given) {
        return None;
    }
    let (note, host) = match find(guest, library) {
        LibraryPlace::Library(host) => {
            (format!("note: {} is the guest's {}, read-only", host.display(), library.folder), Some(host))
        }
        LibraryPlace::Refused(host, refusal) => {
            let (host, folder) = (host.display(), &library.folder);
            let option = format!("--dir {host}::{folder} gives it");
            (format!("note: {host} is not given to the guest as its {folder}: {refusal}; {option}"), None)
        }
        LibraryPlace::Nothing => return None,
    };
    say::line(format_args!("{}", escape::single_line(&note)));
    host.map(|host| Directory { host, guest: library.folder.clone(), read_only: true })
}

/// Names the option that gives the guest its library, if it is given none: for a guest that fails. It may have one within itself.
pub(super) fn hint(guest: &Path, library: &Library, given: &[Directory]) -> Option<String> {
    let folder = &library.folder;
    let is_missing = !is_given(library, given) && matches!(find(guest, library), LibraryPlace::Nothing);
    is_missing.then(|| {
        format!("note: the guest was given no folder as its {folder}; if its library is missing, --dir FOLDER::{folder} gives it")
    })
}

fn find(guest: &Path, library: &Library) -> LibraryPlace {
    let Some(host) = beside_itself(guest) else { return LibraryPlace::Nothing };
    let is_library = |folder: &Path| library.files.iter().any(|file| folder.join(file).is_file());
    match fs::symlink_metadata(&host).map(|found| found.file_type()) {
        Ok(kind) if kind.is_symlink() => LibraryPlace::Refused(host, "it is a link".to_owned()),
        Ok(kind) if kind.is_dir() && is_library(&host) => LibraryPlace::Library(host),
        Ok(kind) if kind.is_dir() => {
            LibraryPlace::Refused(host, format!("it has none of {}", library.files.join(", ")))
        }
        _ => beside_link(guest).filter(|host| is_library(host)).map_or(LibraryPlace::Nothing, LibraryPlace::Library),
    }
}

/// Returns whether a folder that the user names is where the guest looks for its library, or around it.
fn is_given(library: &Library, given: &[Directory]) -> bool {
    given.iter().any(|given| {
        let given = given.guest.trim_matches('/');
        !given.is_empty() && Path::new(library.folder.trim_start_matches('/')).starts_with(given)
    })
}

/// The path of the library's folder beside the guest itself. The real path is what is looked at, told and opened. What is no file has no
/// place of its own.
fn beside_itself(guest: &Path) -> Option<PathBuf> {
    let guest = guest.canonicalize().ok()?;
    Some(guest.with_file_name(folder_name(&guest)?))
}

/// The real path of the folder beside the link by which the user has named the guest.
fn beside_link(guest: &Path) -> Option<PathBuf> {
    if guest.is_symlink() { guest.with_file_name(folder_name(guest)?).canonicalize().ok() } else { None }
}

fn folder_name(guest: &Path) -> Option<OsString> {
    let mut name = guest.file_stem()?.to_owned();
    name.push("-lib");
    Some(name)
}
