//! Writes profiles to the files that the user named.

use super::arguments::{FramesChoice, Output};
use super::{FAILED, Failure, summary};
use crate::export::{self, Exporter};
use crate::recording::Recording;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where the profile goes when the user names no file.
const DEFAULT: &str = "profile.json";

/// A file to write and its format.
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) exporter: &'static dyn Exporter,
}

/// The files to write. Checked before the guest runs, so that a misspelt ending does not cost a run.
pub(super) fn targets(output: &Output) -> Result<Vec<Target>, Failure> {
    let named = output.profile_format();
    if output.files.is_empty() {
        if output.code_format().is_some() {
            return Ok(Vec::new());
        }
        let exporter = named.unwrap_or(export::EXPORTERS[0]);
        let path = match named {
            Some(exporter) => PathBuf::from(format!("profile.{}", exporter.extensions()[0])),
            None => PathBuf::from(DEFAULT),
        };
        return Ok(vec![Target { path, exporter }]);
    }
    output
        .files
        .iter()
        .map(|path| {
            // With several files the format fills in for the endings that tell nothing; a single one is as it says.
            let exporter = match (named, export::by_path(path)) {
                (Some(named), _) if output.files.len() == 1 => Some(named),
                (named, by_path) => by_path.or(named),
            };
            let exporter = exporter.ok_or_else(|| Failure::new(FAILED, unknown_ending(path)))?;
            Ok(Target { path: path.clone(), exporter })
        })
        .collect()
}

fn unknown_ending(path: &Path) -> String {
    let endings: Vec<String> = export::EXPORTERS
        .iter()
        .map(|exporter| format!(".{} ({})", exporter.extensions()[0], exporter.name()))
        .collect();
    format!("{}: its ending tells no format (known: {}); name one with --format", path.display(), endings.join(", "))
}

/// Writes `recording` to all `targets` and prints the summary. A target that cannot be written costs none of the
/// others: the guest's run is not to be had again.
pub(super) fn write_all(
    recording: Recording,
    frames: FramesChoice,
    targets: Vec<Target>,
    quiet: bool,
) -> Result<(), Failure> {
    let (whole, shown) = match frames {
        FramesChoice::Guest if targets.iter().any(|target| target.exporter.keeps_all_frames()) => {
            (Some(recording.clone()), recording.without_interpreter())
        }
        FramesChoice::Guest => (None, recording.without_interpreter()),
        FramesChoice::Merged | FramesChoice::Native => (None, recording),
    };
    let recording = &shown;
    let mut failures = Vec::new();
    let mut written = Vec::new();
    for target in targets {
        let whole = whole.as_ref().filter(|_| target.exporter.keeps_all_frames());
        match write(whole.unwrap_or(recording), &target) {
            Ok(()) => written.push(target),
            Err(failure) => failures.push(failure.message),
        }
    }
    if !quiet {
        summary::print(recording, &written);
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(FAILED, failures.join("\nwlprof: "))) }
}

/// Writes `recording` to `target`, which is whole or untouched afterwards.
fn write(recording: &Recording, target: &Target) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::new(FAILED, format!("cannot write {}: {error}", target.path.display()));
    let companion = target.exporter.companion(recording).map_err(fail)?;
    let is_special = std::fs::metadata(&target.path).is_ok_and(|metadata| !metadata.is_file());
    if is_special {
        if let Some(companion) = companion {
            let message =
                format!("no regular file, and {0}{1} belongs beside it", target.path.display(), companion.ending);
            return Err(fail(std::io::Error::other(message)));
        }
        // A pipe or a device such as /dev/stdout: written in place.
        let file = File::options().write(true).open(&target.path).map_err(fail)?;
        return export(recording, target, &target.path, file).map_err(fail);
    }
    // What a link points to is replaced, not the link.
    let path = std::fs::canonicalize(&target.path).or_else(|_| std::path::absolute(&target.path)).map_err(fail)?;
    if let Some(companion) = companion {
        replace(&with_ending(&path, companion.ending), |mut file| file.write_all(&companion.contents)).map_err(fail)?;
    }
    replace(&path, |file| export(recording, target, &path, file)).map_err(fail)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(ending);
    name.into()
}

/// Puts what `write` writes in the place of the file at `path`, all of it or nothing.
fn replace(path: &Path, write: impl FnOnce(File) -> std::io::Result<()>) -> std::io::Result<()> {
    let temporary = with_ending(path, &format!(".{}.tmp", std::process::id()));
    let written = File::create(&temporary).and_then(write).and_then(|()| std::fs::rename(&temporary, path));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

fn export(recording: &Recording, target: &Target, path: &Path, file: File) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    target.exporter.export(recording, path, &mut out)?;
    out.flush()
}
