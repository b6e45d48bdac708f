//! What windows of a running guest are made into.

use super::finish::{FinishOptions, Settings};
use super::interrupt::Interrupts;
use super::options::output::{FramesChoice, Output};
use super::options::profiling::Profiling;
use super::os::in_memory;
use super::output::Destination;
use super::run_outputs::ProfileOf;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wlprof_export::Exporter;
use wlprof_module::ModuleImage;
use wlprof_recording::sources::SourceFolders;
use wlprof_recording::{HeapPart, Selection, View};
use wlprof_show::table::TableOptions;

/// What is shown of a guest.
pub(super) struct GuestView {
    /// The language that is walked, and the files of plugins that know it.
    pub(super) language: Option<String>,
    pub(super) plugins: Vec<PathBuf>,
    /// Where the texts of sources are.
    pub(super) sources: SourceFolders,
    pub(super) view: View,
    /// Which samples are shown.
    pub(super) selection: Selection,
    /// Whether heaps are profiled.
    pub(super) profiles_memory: bool,
    /// How tables are.
    pub(super) table: TableOptions,
}

impl GuestView {
    /// What is shown of a run while it lasts, with the texts of `sources`.
    pub(super) fn of_run(
        profiling: &Profiling,
        profile: &ProfileOf<'_>,
        sources: SourceFolders,
        hides_heap: bool,
    ) -> Self {
        let Output { frames, showing, .. } = &profiling.output;
        Self {
            language: profile.language.clone(),
            plugins: profile.plugins.clone(),
            sources,
            view: frames.view(),
            profiles_memory: profiling.memory.memory && !hides_heap,
            // Who asks for a window says which clock it goes by.
            selection: Selection { off_cpu: false, part: None, ..profiling.selection() },
            table: TableOptions { width: None, ..showing.table(*frames != FramesChoice::Guest) },
        }
    }
}

/// What a window is made into.
pub(super) enum WindowOutput {
    /// A file of that format.
    File(&'static dyn Exporter),
    /// The table that is printed after a run.
    Table,
}

/// Makes profiles of windows.
pub(super) struct WindowProfiles(GuestView);

impl WindowProfiles {
    pub(super) fn new(shown: GuestView) -> Self {
        Self(shown)
    }

    /// Has the process that makes profiles make this of such a recording of `images`: of the time, or of a part of what was allocated.
    pub(super) fn make(
        &self,
        recording: &[u8],
        images: &[Arc<ModuleImage>],
        made: &WindowOutput,
        part: Option<HeapPart>,
    ) -> io::Result<Vec<u8>> {
        let Self(shown) = self;
        let mut journal = in_memory("wlprof-window")?;
        journal.write_all(recording)?;
        let mut file = in_memory("wlprof-answer")?;
        let exporter = match made {
            WindowOutput::File(exporter) => Some(*exporter),
            WindowOutput::Table => None,
        };
        let path = Path::new("profile");
        let destination = exporter.map(|exporter| Destination { exporter, path, file: &file, companion: None });
        let making = FinishOptions {
            journal: &journal,
            images,
            destinations: destination.into_iter().collect(),
            settings: Settings {
                view: shown.view,
                selection: Selection { part, ..shown.selection.clone() },
                is_window: true,
                table: exporter.is_none().then(|| shown.table.clone()),
                language: shown.language.clone(),
                plugins: shown.plugins.clone(),
                sources: shown.sources.clone(),
            },
        };
        // Signals end this process, and that one with it.
        let done = making.make(&Interrupts::default()).map_err(io::Error::other)?;
        done.written.into_iter().try_for_each(|written| written.map_err(io::Error::other))?;
        if exporter.is_none() {
            return Ok(done.table.into_bytes());
        }
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
