//! Options of what is shown of a recording: which samples, and how the table is.

use super::table::TableOptions;
use crate::recording::Selection;
use clap::Args;

/// What is shown.
#[derive(Debug, Default, Args)]
pub(super) struct Showing {
    /// Show only samples through a function whose name or file has PATTERN in it; may repeat, all of them then
    #[arg(long, value_name = "PATTERN")]
    pub(super) focus: Vec<String>,
    /// Leave out samples through a function whose name or file has PATTERN in it; may repeat
    #[arg(long, value_name = "PATTERN")]
    pub(super) ignore: Vec<String>,
    /// Show waiting alone, by the line that waits and the host's function it waits in; samples are of wall time then
    #[arg(long)]
    pub(super) off_cpu: bool,
    /// Print who calls FUNCTION and whom it calls; part of a name will do where none is just that
    #[arg(long, value_name = "FUNCTION")]
    callers_of: Option<String>,
    /// Rows of each table
    #[arg(long, value_name = "ROWS", default_value_t = 10)]
    top: usize,
    /// Tell of the sampler as well: what became of every tick, how long it stopped the guest
    #[arg(short, long)]
    verbose: bool,
}

impl Showing {
    /// Which samples are shown.
    pub(super) fn selection(&self) -> Selection {
        Selection { focus: self.focus.clone(), ignore: self.ignore.clone(), off_cpu: self.off_cpu }
    }

    /// How the table is to be.
    pub(super) fn table(&self, shows_interpreter: bool) -> TableOptions {
        TableOptions {
            rows: self.top,
            verbose: self.verbose,
            callers_of: self.callers_of.clone(),
            shows_interpreter,
            ..TableOptions::for_terminal()
        }
    }
}
