//! The folders in which sources may be looked for: those that the user says. [`wlprof_recording::sources`] has the rules.

use super::failure::{FAILED, Failure};
use super::options::output::Output;
use std::path::PathBuf;
use wlprof_recording::sources::SourceFolders;
use wlprof_wasi::Directory;

/// The folders of `--source-dir`, and those that the guest is `given`. To be asked for before the guest begins.
pub(super) fn named(output: &Output, given: &[Directory]) -> Result<SourceFolders, Failure> {
    let mut folders = of_dirs(&output.source_dirs)?;
    for Directory { host, guest, .. } in given {
        // One that is not there, the run itself tells of.
        let _ = folders.add_of_guest(host, guest);
    }
    Ok(folders)
}

/// The folders of `--source-dir` alone.
pub(super) fn of_dirs(source_dirs: &[PathBuf]) -> Result<SourceFolders, Failure> {
    let mut folders = SourceFolders::default();
    for folder in source_dirs {
        let missing = |error| {
            Failure::new(FAILED, format!("--source-dir={}: {error}; name a folder with source files", folder.display()))
        };
        folders.add(folder).map_err(missing)?;
    }
    Ok(folders)
}
