//! `wlprof render`: a recording in other formats.

use super::arguments::{FramesChoice, Render};
use super::{FAILED, Failure, output};
use crate::recording::file;

/// Renders a recording.
pub(super) fn run(render: &Render) -> Result<(), Failure> {
    let path = &render.recording;
    if render.output.code_format().is_some() {
        let message = "perfmap and jitdump describe the code of a guest that runs: give them to `wlprof GUEST`; \
                       --format=perf writes a recording's samples for perf";
        return Err(Failure::new(FAILED, message));
    }
    let targets = if render.output.files.is_empty() && render.output.format.is_none() {
        Vec::new()
    } else {
        output::targets(&render.output)?
    };
    let fail = |error: &dyn std::fmt::Display| Failure::new(FAILED, format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| fail(&error))?;
    let recording = file::read(&bytes).map_err(|error| fail(&error))?;
    if render.output.frames == FramesChoice::Native {
        let reason =
            "a recording has no wasm frames where it has the language's own; run the guest with --frames=native";
        return Err(fail(&reason));
    }
    output::write_all(recording, render.output.frames, targets, render.output.quiet)
}
