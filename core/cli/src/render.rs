//! `wlprof render`: a recording in other formats.

use super::failure::{FAILED, Failure};
use super::options::formats::{Format, rendered_files_help};
use super::options::names::Names;
use super::options::output::Output;
use super::options::showing::ShowChoice;
use super::os;
use super::output::{self, OutputSummary, Target};
use super::recordings::{cannot_read, check_frames, other_program, read_within_limits};
use super::say::print;
use super::{naming, say, source_folders};
use clap::Args;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use wlprof_recording::{RawRecording, Recording};
use wlprof_show::table::{TableOptions, table};

/// Options of `wlprof render`: those of a run that are about its profile, in words that are about no run.
#[derive(Debug, Args)]
#[command(
    mut_arg("files", |files| files.long_help(rendered_files_help())),
    mut_arg("format", |format| {
        format.help("Format of files whose ending tells none").long_help(None).value_parser(Format::rendered_parser())
    }),
)]
pub(super) struct Render {
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) names: Names,
    /// The recording
    #[arg(value_name = "FILE")]
    pub(super) recording: PathBuf,
}

/// Renders a recording.
pub(super) fn run(render: &Render) -> Result<(), Failure> {
    let path = &render.recording;
    refuse_code(&render.output)?;
    let raw = read_within_limits(path)?;
    let wants_files = render.output.names_files() || render.output.format.is_some();
    let targets = if wants_files { output::open(&render.output)? } else { Vec::new() };
    write_to(targets, naming::named(raw, &render.names)?, &render.output, path)
}

/// Refuses formats of machine code, of which a recording has none.
fn refuse_code(output: &Output) -> Result<(), Failure> {
    output.code_format().map_or(Ok(()), |format| {
        let message = format!(
            "--format={} describes the code of a guest that runs: give it to `wlprof GUEST`; \
             --format=perf writes a recording's samples for perf",
            format.name()
        );
        Err(Failure::new(FAILED, message))
    })
}

/// Reads recordings with the names that they have, or that the program in `names` has for its own frames.
pub(super) fn read_all<'a>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
    names: &Names,
) -> Result<Vec<Recording>, Failure> {
    let mut is_of_program = false;
    let read = |path: &PathBuf| {
        let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
        let raw = RawRecording::read(&mut BufReader::new(file)).map_err(|error| cannot_read(path, &error))?;
        if !raw.is_named() && names.guest.is_none() {
            let reason =
                "the run was cut short, and no functions are named in it; `wlprof render --guest GUEST` names them";
            return Err(cannot_read(path, &reason));
        }
        let (recording, is_it) = naming::named_as_far_as_it_is(raw, names)?;
        is_of_program |= is_it;
        Ok(recording)
    };
    let recordings: Vec<Recording> = paths.into_iter().map(read).collect::<Result<_, _>>()?;
    match names.guest.as_deref() {
        Some(guest) if !is_of_program => Err(other_program(guest)),
        _ => Ok(recordings),
    }
}

/// Writes a recording to the files of `output`, and prints its table. It was read from `path`.
pub(super) fn write(recording: Recording, output: &Output, path: &Path) -> Result<(), Failure> {
    refuse_code(output)?;
    write_to(output::open(output)?, recording, output, path)
}

fn write_to(targets: Vec<Target>, mut recording: Recording, output: &Output, path: &Path) -> Result<(), Failure> {
    check_frames(&recording, output.frames, path)?;
    if targets.iter().any(|target| target.exporter.shows_sources()) {
        recording.sources = source_folders::named(output, &[])?.texts(&recording);
    }
    let destinations: Vec<_> = targets.iter().map(Target::destination).map(Ok).collect();
    let selection = output.showing.selection(ShowChoice::of(&recording));
    let shown = output::write(recording, output.frames.view(), &selection, &destinations);
    let OutputSummary { recording, selected, written } = shown.map_err(|reason| cannot_read(path, &reason))?;
    drop(destinations);
    let output_is_taken = targets.iter().any(Target::is_standard_output);
    let (lines, placed) = output::lines_and_failure(output::put_in_place(targets, written));
    if let Some(options) = output.table() {
        if output_is_taken {
            say::text(&table(&recording, selected.as_ref(), &options));
        } else {
            // No guest has it.
            let options = TableOptions { width: os::columns(&std::io::stdout()), ..options };
            print(table(&recording, selected.as_ref(), &options).as_bytes())?;
        }
        lines.iter().for_each(|line| say::line(format_args!("{line}")));
    }
    placed
}
