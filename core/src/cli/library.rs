//! The folder beside a guest with its language's library, which the guest is given though the user has not named it. So it is
//! plainly that, and nothing that a link or the guest's name could make of it.

use super::{escape, say};
use crate::languages::Library;
use std::fs;
use std::path::Path;
use wlprof_wasi::Directory;

/// The folder to give to the guest at `guest`, if there is one and none of `given` takes its place. Says what becomes of it.
pub(super) fn beside(guest: &Path, library: &Library, given: &[Directory]) -> Option<Directory> {
    let takes_its_place = |given: &Directory| {
        let given = given.guest.trim_matches('/');
        !given.is_empty() && Path::new(library.folder.trim_start_matches('/')).starts_with(given)
    };
    if given.iter().any(takes_its_place) {
        return None;
    }
    // The real path is what is looked at, told and opened. What is no file has no place of its own.
    let guest = guest.canonicalize().ok()?;
    let mut name = guest.file_stem()?.to_owned();
    name.push("-lib");
    let host = guest.with_file_name(name);
    let kind = fs::symlink_metadata(&host).ok()?.file_type();
    let is_library = || library.files.iter().any(|file| host.join(file).is_file());
    let refusal = if kind.is_symlink() {
        "it is a link".to_owned()
    } else if !kind.is_dir() {
        return None;
    } else if !is_library() {
        format!("it has none of {}", library.files.join(", "))
    } else {
        let note = format!("note: {} is the guest's {}, read-only", host.display(), library.folder);
        say::line(format_args!("{}", escape::single_line(&note)));
        return Some(Directory { host, guest: library.folder.clone(), read_only: true });
    };
    let note = format!(
        "note: {0} is not given to the guest as its {1}: {refusal}; --dir {0}::{1} gives it",
        host.display(),
        library.folder
    );
    say::line(format_args!("{}", escape::single_line(&note)));
    None
}
