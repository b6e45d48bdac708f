//! The parts that a recording's pages are made of.

use serde::{Deserialize, Serialize};

/// A part, which is made when it is first asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Part {
    /// The profile for the Firefox Profiler.
    Profile,
    /// The flame graph, an SVG.
    FlameGraph,
    /// The call tree, as HTML.
    CallTree,
    /// The files with samples, as HTML.
    Files,
    /// The lines of a file, as HTML.
    Source {
        /// Its place among [`Part::Files`].
        file: usize,
        /// All lines, and not only those around samples.
        whole: bool,
    },
    /// The table that a run prints, as HTML.
    Table,
}
