//! wlprof's own recording, to be rendered later.

use super::Exporter;
use std::io::{self, Write};
use std::path::Path;
use wlprof_recording::{Recording, file};

/// `wlprof`: the recording itself.
pub(super) struct Raw;

impl Exporter for Raw {
    fn name(&self) -> &'static str {
        "wlprof"
    }

    fn is_recording(&self) -> bool {
        true
    }

    fn description(&self) -> &'static str {
        "wlprof's own recording, which `wlprof render` writes in the other formats"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[file::EXTENSION]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("wlprof view {}", path.display())
    }

    fn export(&self, recording: &Recording, _: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        file::write(recording, out).map(|()| None)
    }
}
