//! Options of what is shown of a recording: which samples, and how the table is.

use crate::os;
use clap::{Args, ValueEnum};
use wlprof_recording::{HeapPart, Recording, Selection};
use wlprof_show::table::TableOptions;

/// What is shown.
#[derive(Debug, Default, Args)]
pub(crate) struct DisplayOptions {
    /// Show only samples through a function whose name or file has PATTERN in it; may repeat, all of them then
    #[arg(long, value_name = "PATTERN", hide_short_help = true, help_heading = "What is shown")]
    pub(crate) focus: Vec<String>,
    /// Leave out samples through a function whose name or file has PATTERN in it; may repeat
    #[arg(long, value_name = "PATTERN", hide_short_help = true, help_heading = "What is shown")]
    pub(crate) ignore: Vec<String>,
    /// Show only waiting, by the line that waits
    ///
    /// Beside each line stands the host's function that it waits in. Samples are of wall time then.
    #[arg(long, help_heading = "What is shown")]
    pub(crate) off_cpu: bool,
    /// What to show, in the table and in formats that have room for one thing [default: peak where memory was profiled, time else]
    #[arg(long, value_enum, value_name = "WHAT", hide_short_help = true, help_heading = "What is shown")]
    show: Option<ShowChoice>,
    /// Print who calls FUNCTION and whom it calls
    ///
    /// A part of a name will do where none is just that.
    #[arg(long, value_name = "FUNCTION", help_heading = "What is shown")]
    callers_of: Option<String>,
    /// Rows of each table
    #[arg(long, value_name = "ROWS", default_value_t = 10, help_heading = "What is shown")]
    top: usize,
    /// Print what the sampler did as well: what became of every tick, how long it stopped the guest
    #[arg(short, long, hide_short_help = true, help_heading = "What is shown")]
    verbose: bool,
}

/// What of a recording is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowChoice {
    /// Where the time went
    Time,
    /// Who held memory when most of it was held
    Peak,
    /// Who still held memory at the end
    Held,
    /// Who allocated memory, whether it was freed or not
    Allocated,
    /// Who made linear memory grow
    Grown,
}

impl ShowChoice {
    /// What is shown of a recording unless the user says so: memory if that was profiled.
    pub(crate) fn of(recording: &Recording) -> Self {
        if recording.has_heaps() { Self::Peak } else { Self::Time }
    }

    /// The part of what was allocated that it is, if it is one.
    pub(crate) fn part(self) -> Option<HeapPart> {
        match self {
            Self::Time => None,
            Self::Peak => Some(HeapPart::Peak),
            Self::Held => Some(HeapPart::Held),
            Self::Allocated => Some(HeapPart::Allocated),
            Self::Grown => Some(HeapPart::Grown),
        }
    }
}

impl DisplayOptions {
    /// Which samples are shown: unless the user says so those of `unless_told`.
    pub(crate) fn selection(&self, unless_told: ShowChoice) -> Selection {
        let part = self.show.unwrap_or(unless_told).part();
        Selection { focus: self.focus.clone(), ignore: self.ignore.clone(), off_cpu: self.off_cpu, part }
    }

    /// Whether memory is asked for.
    pub(crate) fn names_memory(&self) -> bool {
        self.show.is_some_and(|show| show.part().is_some())
    }

    /// How the table is to be on standard error. Where that is no terminal, but a file or a pipe, names are in full, as other tools have
    /// them: what reads it (`less`, `grep`) has no width, and what is cut cannot be had again.
    pub(crate) fn table(&self, shows_interpreter: bool) -> TableOptions {
        TableOptions {
            rows: self.top,
            verbose: self.verbose,
            callers_of: self.callers_of.clone(),
            shows_interpreter,
            width: os::columns(&std::io::stderr()),
        }
    }
}
