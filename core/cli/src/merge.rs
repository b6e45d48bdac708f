//! `wlprof merge`: several recordings as one.

use super::failure::{FAILED, Failure};
use super::options::names::Names;
use super::options::output::Output;
use super::os::limits;
use super::render;
use clap::Args;
use std::path::PathBuf;
use wlprof_recording::Recording;

/// Options of `wlprof merge`.
#[derive(Debug, Args)]
#[command(mut_arg("files", |files| files.help("Where they go as one; the ending tells the format (.wlprof: a recording)").long_help(None).required(true)))]
pub(super) struct Merge {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    names: Names,
    /// The recordings
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    recordings: Vec<PathBuf>,
}

/// Merges recordings.
pub(super) fn run(merge: &Merge) -> Result<(), Failure> {
    let sizes = merge.recordings.iter().map(|path| path.metadata().map_or(0, |metadata| metadata.len()));
    limits::set(sizes.fold(0, u64::saturating_add)).map_err(|error| Failure::new(FAILED, error))?;
    let recordings = render::read_all(&merge.recordings, &merge.names)?;
    let named = merge.recordings.iter().map(|path| path.display().to_string()).zip(recordings).collect();
    let recording = Recording::merge(named).map_err(|reason| Failure::new(FAILED, reason))?;
    render::write(recording, &merge.output, &merge.recordings[0])
}
