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
    /// Absolute, and no link: what a link points to is replaced, not the link.
    path: PathBuf,
    /// As the user named it, unless that is a link.
    pub(super) name: PathBuf,
    pub(super) exporter: &'static dyn Exporter,
}

impl Target {
    /// Checks what can be checked before a guest runs.
    fn new(name: &Path, exporter: &'static dyn Exporter) -> Result<Self, Failure> {
        let fail =
            |path: &Path, reason: &str| Err(Failure::new(FAILED, format!("cannot write {}: {reason}", path.display())));
        let path = match std::fs::canonicalize(name).or_else(|_| std::path::absolute(name)) {
            Ok(path) => path,
            Err(error) => return fail(name, &error.to_string()),
        };
        let name = if name.is_symlink() { path.clone() } else { name.to_owned() };
        let target = Self { path, name, exporter };
        if target.path.is_dir() {
            return fail(&target.name, "it is a folder");
        }
        if let Some(companion) = target.companion() {
            if is_special(&target.path) {
                return fail(&target.name, "this format comes as two files; name a regular file");
            }
            if is_special(&companion) {
                return fail(&companion, "it is not a regular file");
            }
        }
        Ok(target)
    }

    /// The second file of formats that come as two.
    fn companion(&self) -> Option<PathBuf> {
        self.exporter.companion_ending().map(|ending| with_ending(&self.path, ending))
    }
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
        return Ok(vec![Target::new(&path, exporter)?]);
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
            let exporter = exporter.ok_or_else(|| Failure::new(FAILED, unknown_ending(path, output)))?;
            Target::new(path, exporter)
        })
        .collect()
}

fn unknown_ending(path: &Path, output: &Output) -> String {
    let endings: Vec<String> = export::EXPORTERS
        .iter()
        .map(|exporter| format!(".{} ({})", exporter.extensions()[0], exporter.name()))
        .collect();
    let remedy = if output.code_format().is_some() { "give it one" } else { "name one with --format" };
    format!("{}: its ending tells no format (known: {}); {remedy}", path.display(), endings.join(", "))
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

/// Writes `recording` to `target`. Its files are whole afterwards, or untouched if something fails.
fn write(recording: &Recording, target: &Target) -> Result<(), Failure> {
    let fail =
        |path: &Path, error: std::io::Error| Failure::new(FAILED, format!("cannot write {}: {error}", path.display()));
    if is_special(&target.path) {
        // A pipe or a device such as /dev/stdout: written in place.
        let written = File::options().write(true).open(&target.path).and_then(|file| export(recording, target, file));
        return written.map(drop).map_err(|error| fail(&target.name, error));
    }
    let profile = Replacement::of(&target.path);
    let companion = profile.create().and_then(|file| export(recording, target, file));
    let companion = companion.map_err(|error| fail(&target.name, error))?;
    if let (Some(contents), Some(path)) = (companion, target.companion()) {
        let companion = Replacement::of(&path);
        let written = companion.create().and_then(|mut file| file.write_all(&contents));
        written.and_then(|()| companion.finish()).map_err(|error| fail(&path, error))?;
    }
    profile.finish().map_err(|error| fail(&target.name, error))
}

/// Whether there is something at `path` that cannot be replaced.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(ending);
    name.into()
}

/// A file that takes the place of the one at `path` when it is finished, and is gone if it is not.
struct Replacement<'a> {
    path: &'a Path,
    temporary: PathBuf,
}

impl<'a> Replacement<'a> {
    fn of(path: &'a Path) -> Self {
        Self { path, temporary: with_ending(path, &format!(".{}.tmp", std::process::id())) }
    }

    fn create(&self) -> std::io::Result<File> {
        File::create(&self.temporary)
    }

    fn finish(self) -> std::io::Result<()> {
        std::fs::rename(&self.temporary, self.path)
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        // Not there any more if it was finished.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

fn export(recording: &Recording, target: &Target, file: File) -> std::io::Result<Option<Vec<u8>>> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    let companion = target.exporter.export(recording, &target.path, &mut out)?;
    out.flush()?;
    Ok(companion)
}
