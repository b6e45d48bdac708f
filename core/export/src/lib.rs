//! Output formats. One file or folder each; only these know formats.
//!
//! To add one for recordings, write a file with an [`Exporter`] and add it to [`EXPORTERS`]. Exporters are pure: equal
//! recordings, written to the same path, give equal bytes. [`jitdump`] and [`perf_map`] are of another kind: they describe
//! the machine code of a guest that runs, for `perf record`.

#![forbid(unsafe_code)]

mod categories;
mod firefox;
mod flamegraph;
mod folded;
#[cfg(test)]
mod golden;
mod graph;
pub mod jitdump;
mod json;
mod machine;
mod machine_code;
mod module_addresses;
mod otlp;
mod perf_data;
pub mod perf_map;
mod plain_text;
mod pprof;
mod pushed;
mod raw;
mod sample_types;
mod snapshot;
mod speedscope;
mod string_table;

pub use machine_code::{NativeFunction, NativeLine, UnwindInfo};
pub use otlp::otlp_request;
pub use plain_text::short_path;
pub use pprof::{NamedCall, PushedPprof, pushed_pprof, stack_counts};
pub use pushed::{KeptLabels, MAX_SERIES};
pub use snapshot::Snapshot;

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;
use wlprof_recording::{Recording, Store, Thread};

/// The recording with a thread, if it has none: readers of some formats fail where there is no profile at all, and read an empty one.
fn with_a_thread(recording: &Recording) -> Cow<'_, Recording> {
    if !recording.threads.is_empty() {
        return Cow::Borrowed(recording);
    }
    let mut whole = recording.clone();
    if whole.stores.is_empty() {
        whole.stores.push(Store::default());
    }
    whole.threads.push(Thread { name: "guest".to_owned(), ..Thread::default() });
    Cow::Owned(whole)
}

/// Writes recordings in one format.
pub trait Exporter: Sync {
    /// The name that `--format` takes.
    fn name(&self) -> &'static str;

    /// What the format is and what it is for, in a sentence without its end: for help, and for docs/formats.md, whose table of
    /// formats is compared with it.
    fn description(&self) -> &'static str;

    /// File name endings that mean this format, without the leading dot. There is at least one; the first is what wlprof
    /// itself gives to files.
    fn extensions(&self) -> &'static [&'static str];

    /// What to do with the file, for the user.
    fn how_to_open(&self, path: &Path) -> String;

    /// Whether this machine can write it.
    ///
    /// # Errors
    /// What is missing, and what to do.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether files in this format are recordings, which wlprof reads again. They have all frames, whatever view is asked
    /// for.
    fn is_recording(&self) -> bool {
        false
    }

    /// Whether it shows the time, and what was allocated beside it if it can, whatever samples are asked for.
    fn is_of_time(&self) -> bool {
        false
    }

    /// Whether files in this format have the texts of source files in them ([`Recording::sources`]).
    fn shows_sources(&self) -> bool {
        false
    }

    /// Returns whether the program that these files are for makes them for their owner only.
    fn is_private(&self) -> bool {
        false
    }

    /// What the name of the file beside it has after its own, for formats that come as two files.
    fn companion_ending(&self) -> Option<&'static str> {
        None
    }

    /// Writes `recording` in this format to `out`, which is or will be the file at `path`, and gives what has to be in the
    /// file beside it: `path` with [`Exporter::companion_ending`]. Formats of two files name the second by that path in the
    /// first, so it should be absolute.
    ///
    /// # Errors
    /// Whatever `out` fails with.
    fn export(&self, recording: &Recording, path: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>>;

    /// Whether the format can show what two recordings differ in: [`Exporter::export_difference`].
    fn shows_differences(&self) -> bool {
        false
    }

    /// Writes what two recordings differ in, the one before and the one after.
    ///
    /// # Errors
    /// Whatever `out` fails with; always, of formats that cannot show it.
    fn export_difference(&self, _recordings: [&Recording; 2], _out: &mut dyn Write) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} shows no differences", self.name())))
    }
}

/// All formats. The first is for those who choose none, and stays the first; the others have no order.
pub static EXPORTERS: &[&dyn Exporter] = &[
    &firefox::Firefox,
    &flamegraph::FlameGraph,
    &folded::Folded,
    &graph::CallGraph,
    &perf_data::PerfData,
    &pprof::Pprof { is_scraped: false },
    &speedscope::Speedscope,
    &raw::Raw,
];

/// The call graph, as a program that not every machine has draws it. It is none of [`EXPORTERS`], and the ending of its files means
/// a flame graph elsewhere.
static DRAWN_CALL_GRAPH: &dyn Exporter = &graph::DrawnCallGraph;

/// pprof for servers that scrape it. It is none of [`EXPORTERS`]: files have the labels that this leaves out.
static SCRAPED_PPROF: &dyn Exporter = &pprof::Pprof { is_scraped: true };

/// The format of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Exporter> {
    EXPORTERS.iter().chain([&DRAWN_CALL_GRAPH, &SCRAPED_PPROF]).copied().find(|exporter| exporter.name() == name)
}

/// The format that a file's name means: the one with the longest ending that it has.
pub fn by_path(path: &Path) -> Option<&'static dyn Exporter> {
    let name = path.file_name()?.to_str()?;
    let ends_with = |extension: &str| {
        name.len() > extension.len() + 1
            && name.ends_with(extension)
            && name[..name.len() - extension.len()].ends_with('.')
    };
    let endings =
        EXPORTERS.iter().flat_map(|exporter| exporter.extensions().iter().map(move |ending| (*exporter, ending)));
    let (exporter, _) = endings.filter(|(_, ending)| ends_with(ending)).max_by_key(|(_, ending)| ending.len())?;
    Some(exporter)
}

/// The format of a file for the call graph.
pub fn of_call_graph(path: &Path) -> Option<&'static dyn Exporter> {
    let extension = path.extension()?.to_str()?;
    [&graph::CallGraph, DRAWN_CALL_GRAPH].into_iter().find(|exporter| exporter.extensions().contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_ending() {
        let name = |path: &str| by_path(Path::new(path)).map(|exporter| exporter.name());
        assert_eq!(name("a/profile.json"), Some("firefox"));
        assert_eq!(name("x.folded"), Some("folded"));
        assert_eq!(name("flame.svg"), Some("flamegraph"));
        assert_eq!((name("x.speedscope.json"), name("speedscope.json")), (Some("speedscope"), Some("firefox")));
        assert_eq!((name("calls.dot"), name("calls.gv")), (Some("graph"), Some("graph")));
        let graph = |path: &str| of_call_graph(Path::new(path)).map(|exporter| exporter.name());
        assert_eq!((graph("x.dot"), graph("x.svg"), graph("x.json")), (Some("graph"), Some("graph-svg"), None));
        assert_eq!(name("x.wlprof"), Some("wlprof"));
        assert_eq!((name("cpu.pb.gz"), name("x.pprof"), name("x.gz")), (Some("pprof"), Some("pprof"), None));
        assert_eq!(name("json"), None);
        assert_eq!(name(".json"), None);
        assert_eq!(name("x.unknown"), None);
    }
}
