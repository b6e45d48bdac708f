//! `wlprof diff`: which functions took another share of the time, by more than chance.

use super::failure::{FAILED, Failure};
use super::options::names::Names;
use super::options::output::FramesChoice;
use super::options::showing::ShowChoice;
use super::os::{self, Readers, limits};
use super::output;
use super::output_file::OutputFile;
use super::say::print;
use super::{recordings, render, say};
use clap::Args;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use wlprof_export::{self as export, Exporter};
use wlprof_recording::{Recording, Selection};
use wlprof_show::difference;
use wlprof_show::escape::single_line;

/// Options of `wlprof diff`.
#[derive(Debug, Args)]
pub(super) struct Diff {
    /// Write a flame graph, red where AFTER has a larger share and blue where it has a smaller one (x.svg), or lines of `STACK
    /// MICROSECONDS MICROSECONDS`, as difffolded.pl does (x.folded)
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Which frames to compare
    #[arg(long, value_enum, default_value_t = FramesChoice::Guest)]
    frames: FramesChoice,
    /// Compare only samples through a function whose name or file has PATTERN in it; may repeat, all of them then
    #[arg(long, value_name = "PATTERN")]
    focus: Vec<String>,
    /// Leave out samples through a function whose name or file has PATTERN in it; may repeat
    #[arg(long, value_name = "PATTERN")]
    ignore: Vec<String>,
    /// What to compare: the share of the time of each function, or the bytes of each
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = ShowChoice::Time)]
    show: ShowChoice,
    /// Rows of the table, which has what differs by more than chance
    #[arg(long, value_name = "ROWS", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    names: Names,
    /// The recording to compare with
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The recording to compare
    #[arg(value_name = "AFTER")]
    after: PathBuf,
}

/// Compares two recordings.
pub(super) fn run(diff: &Diff) -> Result<(), Failure> {
    let target = diff.file.as_deref().map(|path| Ok((path, exporter(path)?))).transpose()?;
    let sizes = [&diff.before, &diff.after].map(|path| path.metadata().map_or(0, |metadata| metadata.len()));
    limits::set(sizes[0].saturating_add(sizes[1])).map_err(|error| Failure::new(FAILED, error))?;
    let paths = [&diff.before, &diff.after];
    let mut shown = Vec::new();
    for (recording, path) in render::read_all(paths, &diff.names)?.into_iter().zip(paths) {
        shown.push(as_shown(diff, recording, path)?);
    }
    let [before, after] = <[Recording; 2]>::try_from(shown).map_err(|_| Failure::new(FAILED, "not two recordings"))?;
    let names = [&diff.before, &diff.after].map(|path| path.display().to_string());
    let width = os::columns(&io::stdout());
    if let Some(part) = diff.show.part() {
        print(difference::of_memory([&before, &after], part, diff.top, width).as_bytes())?;
    } else {
        Recording::check_clocks([(names[0].as_str(), &before), (names[1].as_str(), &after)])
            .map_err(|error| Failure::new(FAILED, error))?;
        print(difference::of_time(&before, &after, diff.top, width).as_bytes())?;
    }
    if let Some((path, exporter)) = target {
        let cannot = |error| Failure::new(FAILED, format!("cannot write {}: {error}", path.display()));
        let file =
            output::real_path(path).and_then(|path| OutputFile::create(&path, Readers::AsUsual)).map_err(cannot)?;
        let mut out = BufWriter::new(file.file());
        exporter.export_difference([&before, &after], &mut out).and_then(|()| out.flush()).map_err(cannot)?;
        drop(out);
        file.put_in_place()
            .map_err(|error| Failure::new(FAILED, format!("cannot write {}: {error}", path.display())))?;
        say::line(format_args!("wrote {}", single_line(&path.to_string_lossy())));
    }
    Ok(())
}

/// The format of the file at `path`, which is to show differences.
fn exporter(path: &Path) -> Result<&'static dyn Exporter, Failure> {
    export::by_path(path).filter(|exporter| exporter.shows_differences()).ok_or_else(|| {
        let able = export::EXPORTERS.iter().filter(|exporter| exporter.shows_differences());
        let endings: Vec<String> = able.map(|exporter| format!("x.{}", exporter.extensions()[0])).collect();
        let message = format!("{}: files of differences are called {}", path.display(), endings.join(" or "));
        Failure::new(FAILED, message)
    })
}

/// What is compared of a recording, which was read from `path`.
fn as_shown(diff: &Diff, recording: Recording, path: &Path) -> Result<Recording, Failure> {
    let selection =
        Selection { focus: diff.focus.clone(), ignore: diff.ignore.clone(), off_cpu: false, part: diff.show.part() };
    recordings::check_frames(&recording, diff.frames, path)?;
    let recording = recording.bounded().view(diff.frames.view());
    let (recording, _) = recording.select(&selection).map_err(|reason| recordings::cannot_read(path, &reason))?;
    Ok(recording)
}
