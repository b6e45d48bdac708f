//! Options of where profiles go and what they show.

use super::formats::{CodeFormat, FILES, Format, files_help};
use super::showing::DisplayOptions;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use wlprof_export::Exporter;
use wlprof_recording as recording;
use wlprof_show::table::TableOptions;

/// Where profiles go.
#[derive(Debug, Default, Args)]
pub(crate) struct Output {
    #[arg(short = 'o', long = "output", value_name = "FILE", help = FILES, long_help = files_help(), help_heading = "Output")]
    pub(crate) files: Vec<PathBuf>,
    /// Write the call graph here: a picture (.svg), which Graphviz draws, or what it draws it of (.dot)
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Output")]
    pub(crate) graph: Option<PathBuf>,
    /// Format of files whose ending tells none. Or what `perf record` needs of a guest that runs; wlprof then samples only
    /// for -o
    #[arg(long, value_name = "FORMAT", value_parser = Format::parser(), hide_short_help = true, help_heading = "Output")]
    pub(crate) format: Option<Format>,
    /// Show sources that are in this folder, by any end of their names; may repeat. Firefox profiles have their texts in them
    #[arg(long = "source-dir", value_name = "DIR", hide_short_help = true, help_heading = "Output")]
    pub(crate) source_dirs: Vec<PathBuf>,
    /// Which frames to show
    #[arg(long, value_enum, default_value_t = FramesChoice::Guest, hide_short_help = true, help_heading = "Output")]
    pub(crate) frames: FramesChoice,
    #[command(flatten)]
    pub(crate) showing: DisplayOptions,
    /// Print no table
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FramesChoice {
    /// Those of the guest's own language, and native code that it calls
    #[default]
    Guest,
    /// Those of its interpreter as well
    Merged,
    /// Wasm's alone
    Native,
}

impl FramesChoice {
    /// The view of the recording that shows them. In a run, `native` records nothing but wasm frames as well.
    pub(crate) fn view(self) -> recording::View {
        match self {
            Self::Guest => recording::View::Guest,
            Self::Merged => recording::View::All,
            Self::Native => recording::View::Native,
        }
    }
}

impl Output {
    /// Whether the user names files to write.
    pub(crate) fn names_files(&self) -> bool {
        !self.files.is_empty() || self.graph.is_some()
    }

    /// The format of files whose ending tells none.
    pub(crate) fn profile_format(&self) -> Option<&'static dyn Exporter> {
        match self.format {
            Some(Format::Profile(exporter)) => Some(exporter),
            _ => None,
        }
    }

    /// How the table is to be; `None` if there is to be none.
    pub(crate) fn table(&self) -> Option<TableOptions> {
        (!self.quiet).then(|| self.showing.table(self.frames != FramesChoice::Guest))
    }

    /// The format in which to write the guest's machine code.
    pub(crate) fn code_format(&self) -> Option<CodeFormat> {
        match self.format {
            Some(Format::Code(format)) => Some(format),
            _ => None,
        }
    }
}
