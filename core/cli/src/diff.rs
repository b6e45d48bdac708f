//! `wlprof diff`: which functions took another share of the time, by more than chance.

use super::arguments::{FramesChoice, Names};
use super::escape::single_line;
use super::os::{Readers, limits};
use super::output;
use super::output_file::OutputFile;
use super::showing::ShowChoice;
use super::table::{Row, Table, TableOptions, differences, seconds, shown};
use super::wrapping::wrapped;
use super::{FAILED, Failure, print, render, say};
use clap::Args;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use wlprof_export::{self as export, Exporter, short_path};
use wlprof_recording::{Difference, Recording, Selection};

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
    let width = TableOptions::for_terminal().for_output().width;
    if let Some(part) = diff.show.part() {
        print(differences([&before, &after], part, diff.top, width).as_bytes())?;
    } else {
        Recording::check_clocks([(names[0].as_str(), &before), (names[1].as_str(), &after)])
            .map_err(|error| Failure::new(FAILED, error))?;
        print(table(&before, &after, diff.top, width).as_bytes())?;
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
    render::check_frames(&recording, diff.frames, path)?;
    let recording = recording.bounded().view(diff.frames.view());
    let (recording, _) = recording.select(&selection).map_err(|reason| render::cannot_read(path, &reason))?;
    Ok(recording)
}

fn table(before: &Recording, after: &Recording, rows: usize, width: Option<usize>) -> String {
    let differences = Difference::of(before, after);
    let count = |count: usize| if count == 1 { "1 function".to_owned() } else { format!("{count} functions") };
    let all = count(differences.len());
    let real: Vec<&Difference> = differences.iter().filter(|row| row.is_real).collect();
    let mut text = String::new();
    // Writing to a string cannot fail.
    if real.is_empty() {
        let _ = writeln!(text, "\nno difference above chance in the own time of {all} (5 % level, all together)");
        return wrapped(&text, width);
    }
    let _ = writeln!(
        text,
        "\nself: the function's own code; {} of {all} with a difference above chance (5 % level, all together), {} shown; ± is \
         the 95 % bound",
        real.len(),
        real.len().min(rows),
    );
    let mut table = Table::new(&["before", "after", "more"], "function").without_bars();
    for row in real.into_iter().take(rows) {
        let [one, other] = [0, 1].map(|side| format!("{} {:>8}", shown(row.shares[side]), seconds(row.times_ns[side])));
        let file = row.file.as_deref().map_or_else(String::new, |file| format!("  {}", single_line(short_path(file))));
        table.rows.push(Row {
            cells: vec![one, other, More(row).to_string()],
            name: single_line(&row.name),
            after: file,
            ..Row::default()
        });
    }
    let _ = table.write(width, &mut text);
    wrapped(&text, width)
}

/// A difference with its sign and bound.
struct More<'a>(&'a Difference);

impl std::fmt::Display for More<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0.more.percent < 0.0 { "" } else { "+" };
        write!(f, "{sign}{}", shown(self.0.more))
    }
}
