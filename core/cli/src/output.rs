//! The files that the user wants profiles in: opened first, written by an exporter, put in place last.

use super::failure::{FAILED, Failure};
use super::options::formats;
use super::options::output::Output;
use super::os::Readers;
use super::output_file::OutputFile;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use wlprof_export::{self as export, Exporter};
use wlprof_recording::{Recording, Selection, SelectionShare, View};
use wlprof_show::escape;

/// What means standard output.
const STANDARD_OUTPUT: &str = "-";

const STANDARD_OUTPUT_IS_THE_GUESTS: &str =
    "-o -: standard output is the guest's; name a file, or /dev/fd/3 with 3>FILE";

/// A file to write and its format.
pub(super) struct Target {
    pub(super) exporter: &'static dyn Exporter,
    /// As the user named it.
    pub(super) name: PathBuf,
    /// Absolute.
    path: PathBuf,
    /// Whether there was a file before, which this one replaces.
    replaces: bool,
    /// It is this process's standard output.
    is_standard_output: bool,
    pub(super) file: OutputFile,
    /// The second file of formats that come as two.
    pub(super) companion: Option<OutputFile>,
}

/// Where an exporter writes to.
pub(super) struct Destination<'a> {
    pub(super) exporter: &'static dyn Exporter,
    /// Where the file will be.
    pub(super) path: &'a Path,
    pub(super) file: &'a File,
    pub(super) companion: Option<&'a File>,
}

impl Target {
    /// Opens the file at `name`, or those beside which it is to be.
    pub(super) fn open(name: &Path, exporter: &'static dyn Exporter) -> Result<Self, Failure> {
        let fail = |reason: &str| Err(cannot_write(name, &reason));
        let path = real_path(name).map_err(|error| cannot_write(name, &error))?;
        if path.is_dir() {
            return fail("it is a folder");
        }
        exporter.check().map_err(|reason| cannot_write(name, &reason))?;
        let descriptor = own_descriptor(&path);
        if descriptor == Some(1) && path.is_file() {
            return Err(Failure::new(FAILED, STANDARD_OUTPUT_IS_THE_GUESTS));
        }
        let file = match descriptor {
            Some(_) => OutputFile::as_it_is(&path),
            None => OutputFile::create(&path, readers(exporter)),
        };
        let file = file.map_err(|error| cannot_write(name, &explained(&error)))?;
        let replaces = !file.is_written_as_it_is() && std::fs::symlink_metadata(&path).is_ok();
        let companion = match exporter.companion_ending() {
            None => None,
            Some(ending) => {
                let second = with_ending(&path, ending);
                if second.exists() && !second.is_file() {
                    return Err(cannot_write(&second, &"it is not a regular file"));
                }
                match file.beside(ending).map_err(|error| cannot_write(&second, &explained(&error)))? {
                    None => return fail("this format comes as two files; name a regular file"),
                    companion => companion,
                }
            }
        };
        let is_standard_output = descriptor == Some(1);
        Ok(Self { exporter, name: name.to_owned(), path, replaces, is_standard_output, file, companion })
    }

    /// Whether it is this process's standard output, which has no room for a table then.
    pub(super) fn is_standard_output(&self) -> bool {
        self.is_standard_output
    }

    /// Whether it is a pipe, a device, or a file that whoever started wlprof has opened.
    pub(super) fn is_written_as_it_is(&self) -> bool {
        self.file.is_written_as_it_is()
    }

    /// Where its exporter writes to.
    pub(super) fn destination(&self) -> Destination<'_> {
        Destination {
            exporter: self.exporter,
            path: &self.path,
            file: self.file.file(),
            companion: self.companion.as_ref().map(OutputFile::file),
        }
    }

    /// Puts what has been written in its place. Gives a line for the user.
    pub(super) fn put_in_place(self) -> Result<String, Failure> {
        let companion_name = || with_ending(&self.name, self.exporter.companion_ending().unwrap_or_default());
        // The second file first: whoever finds the first looks for it.
        if let Some(companion) = self.companion {
            companion.put_in_place().map_err(|error| cannot_write(&companion_name(), &error))?;
        }
        self.file.put_in_place().map_err(|error| cannot_write(&self.name, &error))?;
        let replaced = if self.replaces { " (in place of an older one)" } else { "" };
        let (name, how) = (self.name.to_string_lossy(), self.exporter.how_to_open(&self.name));
        Ok(format!("wrote {}{replaced}: {}", escape::single_line(&name), escape::single_line(&how)))
    }
}

/// Who may read files in this format.
fn readers(exporter: &dyn Exporter) -> Readers {
    if exporter.is_private() { Readers::Owner } else { Readers::AsUsual }
}

/// `name` as an absolute path through no link but those of the system in `/dev`, such as `/dev/stdout`. One in any other place
/// may be the work of a guest that was run there before.
pub(super) fn real_path(name: &Path) -> io::Result<PathBuf> {
    let in_real_folder = |path: PathBuf| match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(file)) => folder.join(file),
        _ => path,
    };
    let path = in_real_folder(std::path::absolute(name)?);
    match path.parent() {
        Some(folder) if folder == Path::new("/dev") && path.is_symlink() => {
            Ok(in_real_folder(folder.join(std::fs::read_link(&path)?)))
        }
        _ => Ok(path),
    }
}

/// The number of the descriptor of this process that `path` is.
fn own_descriptor(path: &Path) -> Option<u32> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let folder = path.parent()?.canonicalize().ok()?;
    // On Linux they are one, elsewhere there is the second alone.
    let own = ["/proc/self/fd", "/dev/fd"].map(|own| Path::new(own).canonicalize());
    own.into_iter().flatten().any(|own| own == folder).then_some(number)
}

fn cannot_write(path: &Path, reason: &dyn std::fmt::Display) -> Failure {
    Failure::new(FAILED, format!("cannot write {}: {reason}", path.display()))
}

/// An error of opening a file for writing, with what to do where the system's words do not say it.
fn explained(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{error}; make the folder first"),
        io::ErrorKind::StorageFull => format!("{error}; make room, or write to another disk"),
        _ => error.to_string(),
    }
}

/// Opens the files to write. Before the guest runs, so that a misspelt ending or a full disk does not cost a run, and so
/// that the guest has no say in where they are.
pub(super) fn open(output: &Output) -> Result<Vec<Target>, Failure> {
    let named = output.profile_format();
    if !output.names_files() {
        if output.code_format().is_some() {
            return Ok(Vec::new());
        }
        let exporter = named.unwrap_or(export::EXPORTERS[0]);
        return Ok(vec![Target::open(Path::new(&formats::default_file(exporter)), exporter)?]);
    }
    let files = output.files.iter().map(|path| {
        if path.as_os_str() == STANDARD_OUTPUT {
            return Err(Failure::new(FAILED, STANDARD_OUTPUT_IS_THE_GUESTS));
        }
        // With several files the format fills in for the endings that tell nothing; a single one is as it says.
        let exporter = match (named, export::by_path(path)) {
            (Some(named), _) if output.files.len() == 1 => Some(named),
            (named, by_path) => by_path.or(named),
        };
        let exporter = exporter.ok_or_else(|| Failure::new(FAILED, unknown_ending(path, output)))?;
        Target::open(path, exporter)
    });
    let graph = output.graph.iter().map(|path| {
        let no_graph = || Failure::new(FAILED, format!("--graph {}: name a .svg or .dot file", path.display()));
        Target::open(path, export::of_call_graph(path).ok_or_else(no_graph)?)
    });
    files.chain(graph).collect()
}

fn unknown_ending(path: &Path, output: &Output) -> String {
    let endings = formats::endings();
    let remedy = if output.code_format().is_some() { "give it one" } else { "name one with --format" };
    format!("{}: its ending tells no format (known: {endings}); {remedy}", path.display())
}

/// What was written.
pub(super) struct OutputSummary {
    /// What readers were shown.
    pub(super) recording: Recording,
    /// What that is of all, if not all of it.
    pub(super) selected: Option<SelectionShare>,
    /// For each destination, why it could not be written.
    pub(super) written: Vec<Result<(), String>>,
}

/// Writes `recording` to each of `destinations` that could be opened: whole as a recording, else the `selection` of it, as `view`
/// shows it.
///
/// # Errors
/// If there is nothing in it that could be selected so.
pub(super) fn write(
    recording: Recording,
    view: View,
    selection: &Selection,
    destinations: &[Result<Destination<'_>, &io::Error>],
) -> Result<OutputSummary, &'static str> {
    let mut written = vec![Ok(()); destinations.len()];
    let mut write_those = |recording: &Recording, are_meant: &dyn Fn(&dyn Exporter) -> bool| {
        for (destination, written) in destinations.iter().zip(&mut written) {
            match destination {
                Ok(to) if are_meant(to.exporter) => {
                    *written = to.write(recording).map_err(|error| error.to_string());
                }
                Ok(_) => {}
                Err(error) => *written = Err(error.to_string()),
            }
        }
    };
    // Before frames are left out, so that there is one recording in memory and not two.
    let recording = recording.bounded();
    write_those(&recording, &|exporter| exporter.is_recording());
    let mut recording = recording.view(view);
    // Of memory there is another one; it is made only where somebody wants it.
    let is_of_time = |exporter: &dyn Exporter| !exporter.is_recording() && exporter.is_of_time();
    let is_apart = |to: &Destination<'_>| selection.part.is_some() && is_of_time(to.exporter);
    if destinations.iter().flatten().any(is_apart) {
        let (of_time, _) = recording.clone().select(&selection.of_time())?;
        write_those(&of_time, &is_of_time);
    }
    let selected;
    (recording, selected) = recording.select(selection)?;
    let is_left =
        |exporter: &dyn Exporter| !exporter.is_recording() && (selection.part.is_none() || !exporter.is_of_time());
    write_those(&recording, &is_left);
    Ok(OutputSummary { recording, selected, written })
}

impl Destination<'_> {
    fn write(&self, recording: &Recording) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, self.file);
        let companion = self.exporter.export(recording, self.path, &mut out)?;
        out.flush()?;
        match (companion, self.companion) {
            (Some(contents), Some(mut file)) => file.write_all(&contents),
            _ => Ok(()),
        }
    }
}

/// Puts those of `targets` in their places that were written, and gives what to say of each. A target that could not be
/// written costs none of the others: the guest's run is not to be had again.
pub(super) fn put_in_place(
    targets: Vec<Target>,
    written: impl IntoIterator<Item = Result<(), String>>,
) -> Vec<Result<String, Failure>> {
    let place = |(target, written): (Target, Result<(), String>)| match written {
        Ok(()) => target.put_in_place(),
        Err(error) => Err(cannot_write(&target.name, &error)),
    };
    targets.into_iter().zip(written).map(place).collect()
}

/// What to say of those that were put in their places, and the failure of the others.
pub(super) fn lines_and_failure(placed: Vec<Result<String, Failure>>) -> (Vec<String>, Result<(), Failure>) {
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for placed in placed {
        match placed {
            Ok(line) => lines.push(line),
            Err(failure) => failures.push(failure.message),
        }
    }
    let failed = if failures.is_empty() { Ok(()) } else { Err(Failure::new(FAILED, failures.join("\nwlprof: "))) };
    (lines, failed)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(ending);
    name.into()
}
