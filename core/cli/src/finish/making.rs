//! Makes a profile of a recording.

use super::{FinishedProfile, Settings};
use crate::available_plugins::Plugins;
use crate::output::{self, Destination, OutputSummary};
use crate::progress::Bar;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use wlprof::languages::{self, Choice};
use wlprof_export::Exporter;
use wlprof_module::{ModuleImage, among};
use wlprof_plugin::Program;
use wlprof_recording::RawRecording;
use wlprof_show::table::table;
use wlprof_symbols::name;

/// All that is needed for it.
pub(super) struct Work {
    pub(super) recording: RawRecording,
    pub(super) images: Vec<Arc<ModuleImage>>,
    /// What to write, where it could be opened.
    pub(super) outputs: Vec<io::Result<OpenOutput>>,
    pub(super) settings: Settings,
}

impl Work {
    /// Does it.
    ///
    /// # Errors
    /// Whatever keeps a profile from being made. What keeps it from being written somewhere is told of that place.
    pub(super) fn make(self) -> io::Result<FinishedProfile> {
        let Settings { view, selection, is_window, table: wanted_table, language, plugins, sources } = self.settings;
        let raw = self.recording.with_used_frames();
        let bar = Bar::new("symbolizing", raw.frame_count());
        let plugins = Plugins::of_files(&plugins);
        let programs = programs(language, &plugins, &self.images);
        let mut recording = name(raw, &self.images, programs, |done| bar.set(done));
        drop(bar);
        let notes = recording.meta.notes.clone();
        if self.outputs.iter().flatten().any(|opened| opened.exporter.shows_sources()) {
            recording.sources = sources.texts(&recording);
        }
        let destinations: Vec<_> =
            self.outputs.iter().map(|opened| opened.as_ref().map(OpenOutput::destination)).collect();
        let selection = if recording.has_heaps() {
            selection
        } else {
            recording = match selection.part.filter(|_| is_window) {
                Some(part) => recording.of_memory(part),
                // What was not profiled, for whatever reason that the notes tell, costs nobody the rest.
                None => recording,
            };
            selection.of_time()
        };
        let OutputSummary { recording: shown, selected, written } =
            output::write(recording, view, &selection, &destinations).map_err(io::Error::other)?;
        let table = wanted_table.as_ref().map_or_else(String::new, |options| table(&shown, selected.as_ref(), options));
        Ok(FinishedProfile { written, table, notes })
    }
}

/// Reads the recording of a run, from where `journal` stands.
///
/// # Errors
/// Those of reading, and what is wrong with the recording.
pub(super) fn read(journal: &File) -> io::Result<RawRecording> {
    RawRecording::read(&mut BufReader::with_capacity(1 << 16, journal)).map_err(io::Error::other)
}

/// What the language that the guest was walked in knows of its modules: it names wasm frames and says what kind of code those are.
fn programs(language: Option<String>, plugins: &Plugins, images: &[Arc<ModuleImage>]) -> Vec<Option<Arc<dyn Program>>> {
    let Some(language) = language else { return Vec::new() };
    let modules: Vec<_> = (0..images.len()).filter_map(|number| among(images, number)).collect();
    languages::choose_each(&Choice::Named(language), &plugins.languages(), "", &modules)
        .map_or_else(|_| Vec::new(), |each| each.programs)
}

/// An output that is open.
pub(super) struct OpenOutput {
    pub(super) exporter: &'static dyn Exporter,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) companion: Option<File>,
}

impl OpenOutput {
    fn destination(&self) -> Destination<'_> {
        let Self { exporter, path, file, companion } = self;
        Destination { exporter: *exporter, path, file, companion: companion.as_ref() }
    }
}
