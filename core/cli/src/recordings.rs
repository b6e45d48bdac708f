//! Recordings that commands read, and why one cannot be.

use super::failure::{FAILED, Failure};
use super::options::output::FramesChoice;
use super::os::limits;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use wlprof_recording::{RawRecording, Recording};

/// Reads the recording at `path` and sets limits for this process, which is to work on it.
pub(super) fn read_within_limits(path: &Path) -> Result<RawRecording, Failure> {
    let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    limits::set(size).map_err(|error| Failure::new(FAILED, error))?;
    RawRecording::read(&mut BufReader::new(file)).map_err(|error| cannot_read(path, &error))
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

/// `path` is not the program that was asked for.
pub(super) fn other_program(path: &Path) -> Failure {
    let reason = "it is not the program that was run, or another build of it. Of a program that ran without its symbols, give the one that \
                  ran with --guest, and the one with the symbols with --debug-file";
    cannot_read(path, &reason)
}

pub(super) fn cannot_read(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(FAILED, format!("{}: {error}", path.display()))
}
