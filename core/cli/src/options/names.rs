//! Options of where names come from that a recording lacks.

use clap::Args;
use std::path::PathBuf;

/// Where names come from that a recording lacks.
#[derive(Debug, Args)]
pub(crate) struct Names {
    /// The program that was run: it names what a run that was cut short could not name, and with --debug-file what a stripped one could not
    #[arg(long, value_name = "GUEST")]
    pub(crate) guest: Option<PathBuf>,
    /// File with the program's debug sections, if they are not in the program
    #[arg(long, value_name = "FILE", requires = "guest")]
    pub(crate) debug_file: Option<PathBuf>,
}
