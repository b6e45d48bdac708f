//! Makes the parts of a recording's pages.

use super::call_tree;
use super::part::Part;
use super::sources::SampledFiles;
use crate::html::escaped;
use crate::table::{TableOptions, table};
use std::io;
use std::path::{Path, PathBuf};
use wlprof_export as export;
use wlprof_recording::Recording;
use wlprof_recording::sources::SourceFolders;

/// A recording whose parts are made when they are asked for.
///
/// ```
/// use std::path::Path;
/// use wlprof_recording::sources::SourceFolders;
/// use wlprof_show::pages::{Part, Parts};
///
/// let mut parts = Parts::new(Path::new("run.wlprof"), wlprof_recording::example(), SourceFolders::default(), false);
/// let table = parts.make(Part::Table)?.expect("every recording has a table");
/// assert!(table.starts_with(b"<pre>"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Parts {
    path: PathBuf,
    recording: Recording,
    /// The recording of time, if `recording` is of memory.
    of_time: Option<Recording>,
    folders: SourceFolders,
    shows_interpreter: bool,
    /// The lines' times, once somebody has asked for them.
    files: Option<SampledFiles>,
}

impl Parts {
    /// Parts of `recording`, which was read from `path`. Source texts are those in `folders`. `shows_interpreter` is the option of that
    /// name of the [table](TableOptions).
    #[must_use]
    pub fn new(path: &Path, recording: Recording, folders: SourceFolders, shows_interpreter: bool) -> Self {
        Self { path: path.to_owned(), recording, of_time: None, folders, shows_interpreter, files: None }
    }

    /// Formats that have no memory are made of `of_time`.
    #[must_use]
    pub fn with_time(self, of_time: Option<Recording>) -> Self {
        Self { of_time, ..self }
    }

    /// Makes a part; `None` if there is no such file among its sources.
    ///
    /// # Errors
    /// When the recording cannot be written in the part's format.
    pub fn make(&mut self, part: Part) -> io::Result<Option<Vec<u8>>> {
        let text = match part {
            Part::Profile => return self.exported("firefox"),
            Part::FlameGraph => return self.exported("flamegraph"),
            Part::CallTree => Some(call_tree::part(&self.recording)?),
            Part::Files => Some(self.files().list()),
            Part::Source { file, whole } => {
                let folders = self.folders.clone();
                self.files().source(file, whole, &folders)
            }
            Part::Table => {
                let options = TableOptions { shows_interpreter: self.shows_interpreter, ..TableOptions::default() };
                Some(format!("<pre>{}</pre>\n", escaped(&table(&self.recording, None, &options))))
            }
        };
        Ok(text.map(String::into_bytes))
    }

    fn exported(&mut self, format: &str) -> io::Result<Option<Vec<u8>>> {
        let exporter = export::by_name(format).ok_or(io::ErrorKind::Unsupported)?;
        let of_time = self.of_time.as_mut().filter(|_| exporter.is_of_time());
        let recording = of_time.unwrap_or(&mut self.recording);
        if exporter.shows_sources() && recording.sources.is_empty() {
            recording.sources = self.folders.texts(recording);
        }
        let mut file = Vec::new();
        exporter.export(recording, &self.path, &mut file)?;
        Ok(Some(file))
    }

    fn files(&mut self) -> &SampledFiles {
        self.files.get_or_insert_with(|| SampledFiles::of(&self.recording))
    }
}
