//! `perf`: a perf.data file, for `perf report`, `perf script` and all that reads their files.
//!
//! It is what `perf record` would have written had it been able to walk the guest's stacks: samples with call chains, on
//! addresses that exist only in the ELF file beside it ([`elf`]), which has their names and lines. That is how frames of
//! an interpreted guest come to perf, which have no address of their own.
//!
//! The layout is that of Linux's `tools/perf/Documentation/perf.data-file-format.txt` and `perf_event.h`, read by perf
//! since 4.x; all numbers are little-endian.

mod addresses;
mod debug_info;
mod elf;
mod file;

use super::Exporter;
use addresses::Addresses;
use std::io::{self, Write};
use std::path::Path;
use wlprof_recording::Recording;

/// What the ELF file's name has after the perf.data file's.
const ELF_ENDING: &str = ".elf";

/// `perf`: see the [module](self).
pub(super) struct PerfData;

impl Exporter for PerfData {
    fn is_of_time(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "perf"
    }

    fn description(&self) -> &'static str {
        "What `perf record` would have written, with the guest's own frames; their names and lines are in a file beside it"
    }

    fn extensions(&self) -> &'static [&'static str] {
        // `perf.data` itself ends with the second.
        &["perf.data", "data"]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("perf report -i {0} (names and lines are in {0}{ELF_ENDING}, keep both)", path.display())
    }

    fn is_private(&self) -> bool {
        true
    }

    fn companion_ending(&self) -> Option<&'static str> {
        Some(ELF_ENDING)
    }

    fn export(&self, recording: &Recording, path: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        let addresses = Addresses::of(recording);
        let symbols = elf::symbols(recording, &addresses)?;
        let mut elf = path.as_os_str().to_owned();
        elf.push(ELF_ENDING);
        file::write(recording, &addresses, &symbols, elf.as_encoded_bytes(), out)?;
        Ok(Some(symbols.file))
    }
}
