//! The files of a run: the recording, which grows while the guest runs, and the profiles that are made of it at the end.

use super::failure::{FAILED, Failure};
use super::finish::{FinishOptions, FinishedProfile, Settings};
use super::interrupt::Interrupts;
use super::options::output::Output;
use super::os::Readers;
use super::output::{self, Target};
use super::output_file::OutputFile;
use super::say;
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wlprof::sampler::SessionOutcome;
use wlprof_module::ModuleImage;
use wlprof_recording::file::EXTENSION;
use wlprof_recording::sources::SourceFolders;
use wlprof_recording::{Journal, Selection, View};
use wlprof_show::escape;
use wlprof_show::table::TableOptions;
use wlprof_symbols::ProgramNames;

pub(super) struct RunOutputs {
    journal: OutputFile,
    /// Which target the recording itself is, if one is.
    recording: Option<usize>,
    /// The file under the name of that target, which grows, too: what is found if wlprof is killed.
    forerunner: Option<File>,
    targets: Vec<Target>,
    view: View,
    selection: Selection,
    /// How the table is to be; `None` for none.
    table: Option<TableOptions>,
}

/// What a profile is made of besides the recording.
pub(super) struct ProfileOf<'a> {
    pub(super) images: &'a [Arc<ModuleImage>],
    /// The language that was walked.
    pub(super) language: Option<String>,
    /// The files of plugins that know it.
    pub(super) plugins: Vec<PathBuf>,
    /// Where its sources may be.
    pub(super) sources: SourceFolders,
}

/// The journal of a run, which windows are asked of as well if somebody `listens`. To be asked for as [`RunOutputs::begin_journal`] is.
pub(super) fn begin_journal(outputs: &mut Option<RunOutputs>, listens: bool) -> Result<Journal, Failure> {
    match (outputs, listens) {
        (Some(outputs), false) => outputs.begin_journal(),
        (Some(outputs), true) => outputs.begin_journal().map(Journal::with_windows),
        (None, true) => Ok(Journal::of_windows()),
        (None, false) => Ok(Journal::default()),
    }
}

impl RunOutputs {
    /// Opens all that the user wants, to show that of it.
    pub(super) fn open(output: &Output, selection: Selection) -> Result<Self, Failure> {
        let targets = output::open(output)?;
        let recording =
            targets.iter().position(|target| target.exporter.is_recording() && !target.is_written_as_it_is());
        let journal = match recording {
            Some(index) => targets[index].file.beside(""),
            None => new_journal(&targets).map(Some),
        };
        let journal = journal.and_then(|journal| journal.ok_or_else(|| io::ErrorKind::Unsupported.into()));
        let journal = journal.map_err(no_place)?;
        Ok(Self {
            journal,
            recording,
            forerunner: None,
            targets,
            view: output.frames.view(),
            selection,
            table: output.table(),
        })
    }

    /// The journal to record into. To be asked for when the guest is about to begin: a recording of the same name is gone
    /// from then on.
    pub(super) fn begin_journal(&mut self) -> Result<Journal, Failure> {
        if self.recording.is_some() {
            self.forerunner = self.journal.forerunner().map_err(no_place)?;
        }
        let copy = self.forerunner.as_ref().map(File::try_clone).transpose().map_err(no_place)?;
        Ok(Journal::in_file(self.journal.file().try_clone().map_err(no_place)?, copy))
    }

    /// The guest cannot be run: nothing is to be found where its recording would have been.
    pub(super) fn remove_forerunner(&self) {
        self.forerunner.iter().for_each(|forerunner| self.journal.remove_forerunner(forerunner));
    }

    /// Closes what was recorded and makes the profiles of it. Gives what [`RunOutputs::make`] gives.
    pub(super) fn finish(
        self,
        finished: SessionOutcome,
        of: ProfileOf<'_>,
        interrupts: &Interrupts,
    ) -> (Vec<String>, Result<(), Failure>) {
        let mut names = ProgramNames::new(&finished.programs, of.images).until(interrupts.hurry());
        let journal = finished.recorder.close(finished.meta, finished.ticks, &mut names);
        if let Some(error) = journal.failure() {
            say::line(format_args!("wlprof: not all of what was sampled could be written: {error}"));
        }
        drop(journal);
        self.make(of, interrupts)
    }

    /// Makes the profiles and puts them in their places. Gives what they say to their readers, if those have been told.
    fn make(self, of: ProfileOf<'_>, interrupts: &Interrupts) -> (Vec<String>, Result<(), Failure>) {
        let ProfileOf { images, language, plugins, sources } = of;
        let making = FinishOptions {
            journal: self.journal.file(),
            images,
            destinations: self.targets.iter().map(Target::destination).collect(),
            settings: Settings {
                view: self.view,
                selection: self.selection,
                is_window: false,
                table: self.table.clone(),
                language,
                plugins,
                sources,
            },
        };
        let made = making.make(interrupts);
        // Windows lets no file take the place of one that is open.
        drop(self.forerunner);
        match made {
            Ok(FinishedProfile { written, table, notes }) => {
                let placed = output::put_in_place(self.targets, written);
                let has_recording = self.recording.is_some_and(|index| placed[index].is_ok());
                let (lines, placed) = output::lines_and_failure(placed);
                let placed = placed.map_err(|failure| match (!has_recording).then(|| keep(self.journal, None)) {
                    Some(Ok(path)) => {
                        Failure::new(FAILED, format!("{}\nwlprof: {}", failure.message, where_it_is(&path)))
                    }
                    Some(Err(_)) | None => failure,
                });
                if self.table.is_none() {
                    return (Vec::new(), placed);
                }
                say::text(&table);
                lines.iter().for_each(|line| say::line(format_args!("{line}")));
                (notes, placed)
            }
            Err(how) => {
                let name = self.recording.map(|index| self.targets[index].name.as_path());
                (Vec::new(), keep_for_want_of_a_profile(self.journal, name, &how))
            }
        }
    }
}

/// Keeps the recording where no profile could be made of it. That is no failure of the run.
fn keep_for_want_of_a_profile(journal: OutputFile, name: Option<&Path>, how: &str) -> Result<(), Failure> {
    let no_profile = |what: &str| format!("no profile could be made: {how}; {what}");
    let path = keep(journal, name)
        .map_err(|error| Failure::new(FAILED, no_profile(&format!("what was sampled is lost: {error}"))))?;
    say::line(format_args!("wlprof: {}", escape::single_line(&no_profile(&where_it_is(&path)))));
    Ok(())
}

fn where_it_is(recording: &Path) -> String {
    let path = recording.display();
    format!("what was sampled is in {path}: `wlprof render --guest GUEST {path}` shows it")
}

/// Keeps a recording: in its own place, which is called `name`; if it has none, where nothing else is; and if that cannot be,
/// in the system's folder for such files. Gives its path.
fn keep(journal: OutputFile, name: Option<&Path>) -> io::Result<PathBuf> {
    let mut contents = journal.file().try_clone()?;
    let kept = match name {
        Some(name) => journal.put_in_place().map(|()| Some(name.to_owned())).map_err(io::Error::other),
        None => journal.keep(),
    };
    match kept {
        Ok(Some(path)) => Ok(path),
        _ => {
            let copy = in_temporary_folder()?;
            contents.rewind()?;
            io::copy(&mut contents, &mut copy.file())?;
            copy.keep()?.ok_or_else(|| io::ErrorKind::Unsupported.into())
        }
    }
}

/// A new file for the recording of a run: beside the first of `targets` that lies in a folder, or in the system's folder for
/// such files. It is kept where no profile can be made of it, and has the guest's arguments in it: nobody but its owner may read it.
fn new_journal(targets: &[Target]) -> io::Result<OutputFile> {
    for target in targets {
        if let Ok(Some(file)) = target.file.beside_for(Readers::Owner, &format!(".{EXTENSION}")) {
            return Ok(file);
        }
    }
    in_temporary_folder()
}

fn in_temporary_folder() -> io::Result<OutputFile> {
    OutputFile::create(&std::env::temp_dir().join(format!("profile.{EXTENSION}")), Readers::Owner)
}

fn no_place(error: io::Error) -> Failure {
    Failure::new(FAILED, format!("there is no place for the recording: {error}"))
}
