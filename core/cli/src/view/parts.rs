//! Makes the parts of a recording's pages, in the process that has limits.

use super::part::Part;
use super::renderer::{FOUND, MISSING};
use super::{call_tree, lines};
use crate::arguments::{FramesChoice, View};
use crate::http::escaped;
use crate::os;
use crate::table::{TableOptions, table};
use crate::{FAILED, Failure};
use crate::{naming, render, source_folders};
use lines::SampledFiles;
use std::io::{self, BufRead, Write};
use std::path::Path;
use wlprof_export as export;
use wlprof_recording::Recording;
use wlprof_recording::sources::SourceFolders;

/// Reads the recording, says so, and answers requests until there are no more.
pub(in super::super) fn run_child(view: &View) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(FAILED, error);
    os::die_with_parent().map_err(failed)?;
    let folders = source_folders::of_dirs(&view.source_dirs)?;
    let recording = naming::named(render::read_within_limits(&view.file)?, &view.names)?;
    render::check_frames(&recording, view.frames, &view.file)?;
    let recording = recording.bounded().view(view.frames.view());
    let parts = Parts { path: &view.file, frames: view.frames, recording, folders, files: None };
    answer(parts, &mut io::stdin().lock(), &mut io::stdout().lock()).map_err(failed)
}

fn answer(mut parts: Parts<'_>, requests: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&[FOUND])?;
    out.flush()?;
    for request in requests.lines() {
        let part = parts.make(serde_json::from_str(&request?)?)?;
        let found = if part.is_some() { FOUND } else { MISSING };
        let content = part.unwrap_or_default();
        out.write_all(&[found])?;
        out.write_all(&(content.len() as u64).to_le_bytes())?;
        out.write_all(&content)?;
        out.flush()?;
    }
    Ok(())
}

struct Parts<'a> {
    path: &'a Path,
    frames: FramesChoice,
    recording: Recording,
    folders: SourceFolders,
    /// The lines' times, once somebody has asked for them.
    files: Option<SampledFiles>,
}

impl Parts<'_> {
    fn make(&mut self, part: Part) -> io::Result<Option<Vec<u8>>> {
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
                let shows_interpreter = self.frames != FramesChoice::Guest;
                let options = TableOptions { width: None, shows_interpreter, ..TableOptions::for_terminal() };
                Some(format!("<pre>{}</pre>\n", escaped(&table(&self.recording, None, &options))))
            }
        };
        Ok(text.map(String::into_bytes))
    }

    fn exported(&mut self, format: &str) -> io::Result<Option<Vec<u8>>> {
        let exporter = export::by_name(format).ok_or(io::ErrorKind::Unsupported)?;
        if exporter.shows_sources() && self.recording.sources.is_empty() {
            self.recording.sources = self.folders.texts(&self.recording);
        }
        let mut file = Vec::new();
        exporter.export(&self.recording, self.path, &mut file)?;
        Ok(Some(file))
    }

    fn files(&mut self) -> &SampledFiles {
        self.files.get_or_insert_with(|| SampledFiles::of(&self.recording))
    }
}
