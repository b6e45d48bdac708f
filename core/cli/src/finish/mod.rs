//! Makes the profile of a run that is over, so that whatever a guest's names and debug information do to that, the recording, the
//! guest's exit code and a plain sentence remain: on Linux in a process of its own, within limits, elsewhere on a thread of its
//! own, without.

mod making;
#[cfg_attr(not(target_os = "linux"), path = "own_thread.rs")]
mod other_process;

pub(super) use other_process::run_child;

use super::output::Destination;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use wlprof_module::ModuleImage;
use wlprof_recording::sources::SourceFolders;
use wlprof_recording::{Selection, View};
use wlprof_show::table::TableOptions;

/// The subcommand that wlprof starts itself with to make a profile.
pub(super) const MAKE_PROFILE: &str = "make-profile";

/// How a profile is to be made.
pub(super) struct FinishOptions<'a> {
    /// The whole recording, without symbols.
    pub(super) journal: &'a File,
    pub(super) images: &'a [Arc<ModuleImage>],
    pub(super) destinations: Vec<Destination<'a>>,
    pub(super) settings: Settings,
}

/// What a profile is to show, and what of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    /// What readers are shown.
    pub(super) view: View,
    pub(super) selection: Selection,
    /// It is of a window, in which there may be no guest: of memory that is nothing then, and not time in its place.
    pub(super) is_window: bool,
    /// How the table is to be, if it is wanted.
    pub(super) table: Option<TableOptions>,
    /// The language whose plugin named frames in the run, if one did, and the files of plugins that it may be in.
    pub(super) language: Option<String>,
    pub(super) plugins: Vec<PathBuf>,
    /// Where sources may be.
    pub(super) sources: SourceFolders,
}

/// A profile that was made.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FinishedProfile {
    /// For each destination, why it could not be written.
    pub(super) written: Vec<Result<(), String>>,
    /// The table.
    pub(super) table: String,
    /// What the profile says to its readers.
    pub(super) notes: Vec<String>,
}
