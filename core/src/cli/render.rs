//! `wlprof render`: a recording in other formats.

use super::arguments::Render;
use super::{FAILED, Failure, output};
use crate::recording::file;

/// Renders a recording.
pub(super) fn run(render: &Render) -> Result<(), Failure> {
    let path = &render.recording;
    let targets = if render.output.files.is_empty() && render.output.format.is_none() {
        Vec::new()
    } else {
        output::targets(&render.output)?
    };
    let fail = |error: &dyn std::fmt::Display| Failure::new(FAILED, format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| fail(&error))?;
    let recording = file::read(&bytes).map_err(|error| fail(&error))?;
    output::write_all(&recording, targets, render.output.quiet)
}
