//! `wlprof render`: a recording in other formats.

use super::arguments::{FramesChoice, Names, Output, Render};
use super::os::limits;
use super::output::{self, Shown, Target};
use super::showing::ShowChoice;
use super::table::table;
use super::{FAILED, Failure, guest, say, source_folders};
use crate::languages::{self, Choice};
use crate::module::{among, read_binary};
use crate::recording::{RawRecording, Recording};
use crate::symbols::name;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

/// Renders a recording.
pub(super) fn run(render: &Render) -> Result<(), Failure> {
    let path = &render.recording;
    refuse_code(&render.output)?;
    let raw = read_within_limits(path)?;
    let wants_files = render.output.names_files() || render.output.format.is_some();
    let targets = if wants_files { output::open(&render.output)? } else { Vec::new() };
    write_to(targets, named(raw, &render.names)?, &render.output, path)
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

/// Reads a recording with the names that it has.
pub(super) fn read(path: &Path) -> Result<Recording, Failure> {
    let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
    let raw = RawRecording::read(&mut BufReader::new(file)).map_err(|error| cannot_read(path, &error))?;
    if !raw.is_named() {
        let reason =
            "the run was cut short, and no functions are named in it; `wlprof render --guest GUEST` names them";
        return Err(cannot_read(path, &reason));
    }
    Ok(name(raw, &[], Vec::new(), |_| ()))
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
    let (lines, placed) = output::put_in_place(targets, written);
    if let Some(options) = output.table() {
        say::text(&table(&recording, selected.as_ref(), &options));
        lines.iter().for_each(|line| say::line(format_args!("{line}")));
    }
    placed
}

/// The recording with names: its own, or, if the run was cut short before they were found, those that the guest has.
pub(super) fn named(raw: RawRecording, names: &Names) -> Result<Recording, Failure> {
    if raw.is_named() {
        return Ok(name(raw, &[], Vec::new(), |_| ()));
    }
    let Some(path) = names.guest.as_deref() else {
        let mut recording = name(raw, &[], Vec::new(), |_| ());
        let note = "functions have numbers instead of names, since no profile was made of it; give the program that was \
                    run with --guest";
        recording.meta.notes.push(note.to_owned());
        return Ok(recording);
    };
    let (binary, notes) =
        read_binary(path, names.debug_file.as_deref()).map_err(|error| guest::cannot_load(path, &error.into()))?;
    let images: Vec<_> = binary.into_images().into_iter().map(Arc::new).collect();
    let ids: Vec<_> = images.iter().map(|image| image.build_id()).collect();
    // Others may have been loaded beside it, after it.
    let recorded = raw.modules().iter().take(ids.len()).map(|module| &module.build_id);
    if ids.is_empty() || !recorded.eq(&ids) {
        return Err(other_program(path));
    }
    let modules: Vec<_> = (0..images.len()).filter_map(|number| among(&images, number)).collect();
    let chosen = languages::choose_each(&Choice::Auto, languages::BUILT_IN, "", &modules).unwrap_or_default();
    let mut recording = name(raw, &images, chosen.walkers, |_| ());
    recording.meta.notes.extend(notes);
    Ok(recording)
}

/// `path` is not the program that was asked for.
pub(super) fn other_program(path: &Path) -> Failure {
    cannot_read(path, &"it is not the program that was run, or another build of it")
}

pub(super) fn cannot_read(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(FAILED, format!("{}: {error}", path.display()))
}
