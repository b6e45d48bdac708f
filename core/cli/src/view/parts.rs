//! Makes the parts of a recording's pages, in the process that has limits.

use super::options::View;
use super::renderer::{FOUND, MISSING};
use crate::failure::{FAILED, Failure};
use crate::options::output::FramesChoice;
use crate::options::showing::ShowChoice;
use crate::os;
use crate::{naming, recordings, source_folders};
use std::io::{self, BufRead, Write};
use wlprof_recording::Selection;
use wlprof_show::pages::Parts;

/// Reads the recording, says so, and answers requests until there are no more.
pub(in super::super) fn run_child(view: &View) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(FAILED, error);
    os::die_with_parent().map_err(failed)?;
    let folders = source_folders::of_dirs(&view.source_dirs)?;
    let recording = naming::named(recordings::read_within_limits(&view.file)?, &view.names)?;
    recordings::check_frames(&recording, view.frames, &view.file)?;
    let recording = recording.bounded().view(view.frames.view());
    let show = view.show.unwrap_or_else(|| ShowChoice::of(&recording));
    let of_time = show.part().is_some().then(|| recording.clone());
    let selection = Selection { part: show.part(), ..Selection::default() };
    let (recording, _) = recording.select(&selection).map_err(|reason| recordings::cannot_read(&view.file, &reason))?;
    let parts = Parts::new(&view.file, recording, folders, view.frames != FramesChoice::Guest).with_time(of_time);
    answer(parts, &mut io::stdin().lock(), &mut io::stdout().lock()).map_err(failed)
}

fn answer(mut parts: Parts, requests: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<()> {
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
