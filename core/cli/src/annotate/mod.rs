//! `wlprof annotate`: source lines with the time of each beside it.

mod assembly;
mod disassembly;

use super::failure::Failure;
use super::options::names::Names;
use super::options::output::FramesChoice;
use super::say::print;
use super::{naming, recordings, source_folders};
use clap::Args;
use std::path::PathBuf;
use wlprof_recording::sources::SourceFolders;
use wlprof_recording::{LineTotals, RawRecording};
use wlprof_show::annotated::TextPart;

/// Options of `wlprof annotate`.
#[derive(Debug, Args)]
pub(super) struct Annotate {
    /// A folder with source files, which are found in it by any end of their names; may repeat
    #[arg(long = "source-dir", value_name = "DIR")]
    pub(super) source_dirs: Vec<PathBuf>,
    /// Show the machine instructions of a function, which the guest (--guest) is compiled to again as it was for the run, with the
    /// wasm instructions that they are for and the time of these
    #[arg(long, requires = "guest", conflicts_with = "frames")]
    pub(super) asm: bool,
    /// Whose time counts
    #[arg(long, value_enum, default_value_t = FramesChoice::Guest)]
    pub(super) frames: FramesChoice,
    #[command(flatten)]
    pub(super) names: Names,
    /// The recording
    #[arg(value_name = "RECORDING")]
    pub(super) recording: PathBuf,
    /// A function, by its name or a part of it, or a file, by its name. Without it the file, or with --asm the function, with
    /// the most time of its own
    #[arg(value_name = "FUNCTION|FILE")]
    pub(super) what: Option<String>,
}

/// Prints the lines, or the instructions, that the user asks for.
pub(super) fn run(annotate: &Annotate) -> Result<(), Failure> {
    let path = &annotate.recording;
    let folders = source_folders::of_dirs(&annotate.source_dirs)?;
    let raw = recordings::read_within_limits(path)?;
    let text = match &annotate.names.guest {
        Some(guest) if annotate.asm => assembly::annotated(annotate, guest, raw, &folders)?,
        _ => lines(annotate, raw, &folders)?,
    };
    print(text.as_bytes())
}

fn lines(annotate: &Annotate, raw: RawRecording, folders: &SourceFolders) -> Result<String, Failure> {
    let path = &annotate.recording;
    if !raw.is_named() && annotate.names.guest.is_none() {
        let reason =
            "the run was cut short, and no functions are named in it; give the program that was run with --guest";
        return Err(recordings::cannot_read(path, &reason));
    }
    let recording = naming::named(raw, &annotate.names)?;
    recordings::check_frames(&recording, annotate.frames, path)?;
    let recording = recording.bounded().view(annotate.frames.view());
    let totals = LineTotals::of(&recording);
    let parts = TextPart::chosen(&recording, &totals, annotate.what.as_deref());
    let parts = parts.map_err(|error| recordings::cannot_read(path, &error))?;
    Ok(parts.iter().map(|part| part.annotated(&totals, folders.text(part.file()).as_deref())).collect())
}
