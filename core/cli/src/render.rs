//! `wlprof render`: a recording in other formats.

use super::arguments::{FramesChoice, Names, Output, Render};
use super::os::limits;
use super::output::{self, Shown, Target};
use super::showing::ShowChoice;
use super::table::table;
use super::{FAILED, Failure, naming, print, say, source_folders};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use wlprof_recording::{RawRecording, Recording};

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

/// Reads the recording at `path` and sets limits for this process, which is to work on it.
pub(super) fn read_within_limits(path: &Path) -> Result<RawRecording, Failure> {
    let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    limits::set(size).map_err(|error| Failure::new(FAILED, error))?;
    RawRecording::read(&mut BufReader::new(file)).map_err(|error| cannot_read(path, &error))
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

/// Refuses frames that a recording, read from `path`, does not have.
pub(super) fn check_frames(recording: &Recording, frames: FramesChoice, path: &Path) -> Result<(), Failure> {
    if frames == FramesChoice::Native && !recording.has_native() {
        let reason = "it has the frames of the guest's language and none of wasm's beside them; run the guest with \
                      --frames=native";
        return Err(cannot_read(path, &reason));
    }
    Ok(())
}

fn write_to(targets: Vec<Target>, mut recording: Recording, output: &Output, path: &Path) -> Result<(), Failure> {
    check_frames(&recording, output.frames, path)?;
    if targets.iter().any(|target| target.exporter.shows_sources()) {
        recording.sources = source_folders::named(output, &[])?.texts(&recording);
    }
    let destinations: Vec<_> = targets.iter().map(Target::destination).map(Ok).collect();
    let unless_told = if recording.has_heaps() { ShowChoice::Peak } else { ShowChoice::Time };
    let selection = output.showing.selection(unless_told);
    let shown = output::write(recording, output.frames.view(), &selection, &destinations);
    let Shown { recording, selected, written } = shown.map_err(|reason| cannot_read(path, &reason))?;
    drop(destinations);
    let output_is_taken = targets.iter().any(Target::is_standard_output);
    let (lines, placed) = output::put_in_place(targets, written);
    if let Some(options) = output.table() {
        if output_is_taken {
            say::text(&table(&recording, selected.as_ref(), &options));
        } else {
            // No guest has it.
            print(table(&recording, selected.as_ref(), &options.for_output()).as_bytes())?;
        }
        lines.iter().for_each(|line| say::line(format_args!("{line}")));
    }
    placed
}

/// `path` is not the program that was asked for.
pub(super) fn other_program(path: &Path) -> Failure {
    cannot_read(path, &"it is not the program that was run, or another build of it")
}

pub(super) fn cannot_read(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(FAILED, format!("{}: {error}", path.display()))
}
