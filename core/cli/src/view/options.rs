//! Options of `wlprof view`.

use crate::options::names::Names;
use crate::options::output::FramesChoice;
use crate::options::showing::ShowChoice;
use clap::Args;
use std::path::PathBuf;

/// Options of `wlprof view`.
#[derive(Debug, Args)]
pub(crate) struct View {
    /// Print the URL and open no browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// What of a recording to show
    ///
    /// [default: peak if memory was profiled, else time]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) show: Option<ShowChoice>,
    /// Which frames of a recording to show
    #[arg(long, value_enum, default_value_t = FramesChoice::Guest)]
    pub(crate) frames: FramesChoice,
    /// Show sources that are in this folder, by any end of their names; may repeat
    #[arg(long = "source-dir", value_name = "DIR")]
    pub(crate) source_dirs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) names: Names,
    /// The profile: a recording (x.wlprof), or a profile for the Firefox Profiler (.json, .json.gz)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
