//! A profile of all runs of a row.

use crate::failure::{FAILED, Failure};
use crate::interrupt::Interrupts;
use crate::options::output::Output;
use crate::run_outputs::{ProfileOf, RunOutputs};
use crate::say;
use std::path::{Path, PathBuf};
use wlprof::languages::{self, Choice};
use wlprof::profiler::Profiler;
use wlprof::sampler::SamplerOptions;
use wlprof_recording::Selection;
use wlprof_recording::sources::SourceFolders;
use wlprof_run::guest::Guest;
use wlprof_run::profile;
use wlprof_show::escape;
use wlprof_wasi::WasiOptions;

/// Where the profile of a row is to be, opened before any guest runs.
pub(super) struct Profile {
    path: PathBuf,
    outputs: RunOutputs,
    sampler: SamplerOptions,
}

/// The profile of a row that is being run.
pub(super) struct Begun {
    path: PathBuf,
    outputs: RunOutputs,
    profiler: Profiler,
    language: Option<String>,
}

/// `out.row3-fib.json` beside `out.csv` for its third row, which runs `fib.wasm`.
pub(super) fn profile_path(out: &Path, row: usize, guest: &Path) -> PathBuf {
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
    let guest: String = stem(guest).chars().map(plain).collect();
    out.with_file_name(format!("{}.row{row}-{guest}.json", stem(out)))
}

impl Profile {
    pub(super) fn open(path: PathBuf, sampler: SamplerOptions) -> Result<Self, Failure> {
        let output = Output { files: vec![path.clone()], quiet: true, ..Output::default() };
        Ok(Self { path, outputs: RunOutputs::open(&output, Selection::default())?, sampler })
    }

    /// Begins to record runs of `guest`.
    pub(super) fn begin(self, guest: &Guest, wasi: &WasiOptions) -> Result<Begun, Failure> {
        let Self { path, mut outputs, sampler } = self;
        let journal = outputs.begin_journal()?;
        let chosen = languages::choose(&Choice::Auto, languages::BUILT_IN, &*guest.code.images[0]);
        let chosen = chosen.unwrap_or_default();
        let profiler = profile::profiler(guest, journal, vec![chosen.program], wasi, sampler);
        let profiler = profiler.map_err(|error| Failure::new(FAILED, format!("{error:#}")))?;
        chosen.notes.iter().for_each(|note| profiler.note(note));
        Ok(Begun { path, outputs, profiler, language: chosen.language })
    }
}

impl Begun {
    /// What samples the runs.
    pub(super) fn profiler(&self) -> &Profiler {
        &self.profiler
    }

    /// Writes it.
    pub(super) fn finish(self, guest: &Guest) -> Result<(), Failure> {
        let Self { path, outputs, profiler, language } = self;
        let of =
            ProfileOf { images: &guest.code.images, language, plugins: Vec::new(), sources: SourceFolders::default() };
        let (_, written) = outputs.finish(profiler.finish(), of, &Interrupts::default());
        written?;
        say::line(format_args!("wrote {}", escape::single_line(&path.to_string_lossy())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_beside_the_results() {
        let path = |out: &str, guest: &str| profile_path(Path::new(out), 3, Path::new(guest));
        assert_eq!(path("a/out.csv", "b/fib.wasm"), Path::new("a/out.row3-fib.json"));
        assert_eq!(path("out", "/x/go 1,2.wasm"), Path::new("out.row3-go_1_2.json"));
        assert_eq!(path("out.csv", ".."), Path::new("out.row3-.json"));
    }
}
