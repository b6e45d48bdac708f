//! Output formats. One file each; only these files know formats.
//!
//! To add one for recordings, write a file with an [`Exporter`] and add it to [`EXPORTERS`]. Exporters are pure: equal
//! recordings give equal bytes. [`jitdump`] and [`perf_map`] are of another kind: they describe the machine code of a
//! guest that runs, for `perf record`.

mod firefox;
mod folded;
pub mod jitdump;
mod perf_data;
pub mod perf_map;
mod plain_text;
mod raw;

use crate::recording::Recording;
use std::io::{self, Write};
use std::path::Path;

/// Writes recordings in one format.
pub trait Exporter: Sync {
    /// The name that `--format` takes.
    fn name(&self) -> &'static str;

    /// File name endings that mean this format, without the leading dot.
    fn extensions(&self) -> &'static [&'static str];

    /// What to do with the file, for the user.
    fn how_to_open(&self, path: &Path) -> String;

    /// Whether files in this format are read by wlprof again and keep all frames that were recorded.
    fn keeps_all_frames(&self) -> bool {
        false
    }

    /// The file that has to be beside this one, for formats that come as two.
    ///
    /// # Errors
    /// If it cannot be made.
    fn companion(&self, recording: &Recording) -> io::Result<Option<Companion>> {
        let _ = recording;
        Ok(None)
    }

    /// Writes `recording` in this format to `out`, which is or will be the file at `path`, an absolute one. Formats whose
    /// files name each other need it.
    ///
    /// # Errors
    /// Whatever `out` fails with.
    fn export(&self, recording: &Recording, path: &Path, out: &mut dyn Write) -> io::Result<()>;
}

/// A second file that belongs to a profile.
pub struct Companion {
    /// What its name has after the profile's.
    pub ending: &'static str,
    /// All of it.
    pub contents: Vec<u8>,
}

/// All formats.
pub static EXPORTERS: &[&dyn Exporter] = &[&firefox::Firefox, &folded::Folded, &perf_data::PerfData, &raw::Raw];

/// The format of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Exporter> {
    EXPORTERS.iter().copied().find(|exporter| exporter.name() == name)
}

/// The format that a file's name means.
pub fn by_path(path: &Path) -> Option<&'static dyn Exporter> {
    let name = path.file_name()?.to_str()?;
    let ends_with = |extension: &str| {
        name.len() > extension.len() + 1
            && name.ends_with(extension)
            && name[..name.len() - extension.len()].ends_with('.')
    };
    EXPORTERS.iter().copied().find(|exporter| exporter.extensions().iter().any(|extension| ends_with(extension)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_ending() {
        let name = |path: &str| by_path(Path::new(path)).map(|exporter| exporter.name());
        assert_eq!(name("a/profile.json"), Some("firefox"));
        assert_eq!(name("x.folded"), Some("folded"));
        assert_eq!(name("x.wlprof"), Some("wlprof"));
        assert_eq!(name("json"), None);
        assert_eq!(name(".json"), None);
        assert_eq!(name("x.unknown"), None);
    }
}
