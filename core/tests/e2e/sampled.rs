//! Runs `wlprof` on a fixture and reads back what it recorded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wlprof::guest::{ModuleImage, read_module};
use wlprof::recording::{Recording, file};

/// A fixture's path. Panics with what to do if it has not been built.
pub(crate) fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/fixtures").join(name);
    assert!(path.exists(), "{} is missing; run `cargo xtask test-fixtures`", path.display());
    path
}

/// The module of a fixture.
pub(crate) fn image(name: &str) -> ModuleImage {
    ModuleImage::parse(read_module(&fixture(name)).unwrap(), name).unwrap()
}

/// Profiles a fixture: `options` are wlprof's, `arguments` the guest's.
pub(crate) fn profile(name: &str, options: &[&str], arguments: &[&str]) -> Recording {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    command.args(options).arg(fixture(name)).args(arguments);
    profile_command(command, name)
}

/// Runs `command`, a run of wlprof without output files, and reads what it recorded.
pub(crate) fn profile_command(command: Command, name: &str) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.wlprof");
    let mut with_output = Command::new(command.get_program());
    with_output.arg("-o").arg(&output).args(command.get_args()).stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        with_output.current_dir(folder);
    }
    let run = with_output.output().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    let bytes = std::fs::read(&output).unwrap_or_else(|error| panic!("{name}: {error}\n{errors}"));
    let recording = file::read(&bytes).unwrap();
    assert!(recording.ticks.balanced(), "{name}: {:?}", recording.ticks);
    recording
}

/// As [`profile`] at ten times the usual rate, whatever it costs.
pub(crate) fn profile_fast(name: &str, sampler: &str, arguments: &[&str]) -> Recording {
    profile(name, &["--sampler", sampler, "--rate", "10000", "--max-overhead", "100"], arguments)
}

/// Measures up to four times, until `measure` says that the shares it found are right.
///
/// Equal work takes unequal CPU time while other programs share the processor, and shares are off then by more than
/// chance explains, in either direction. What a profiler gets wrong it gets wrong each time.
pub(crate) fn measure_again_if_off(mut measure: impl FnMut() -> Result<(), String>) {
    const ATTEMPTS: usize = 4;
    for attempt in 1..=ATTEMPTS {
        match measure() {
            Ok(()) => return,
            Err(off) if attempt < ATTEMPTS => println!("attempt {attempt}: {off}"),
            Err(off) => panic!("attempt {attempt}: {off}"),
        }
    }
}

/// Whether a share, in percent, is within `points` of what it must be.
pub(crate) fn near(name: &str, share: f64, truth: f64, points: f64) -> Result<(), String> {
    if (share - truth).abs() <= points { Ok(()) } else { Err(format!("{name}: {share:.2} % instead of {truth:.2} %")) }
}

/// Line of the source that ends with `marker`.
pub(crate) fn marked_line(source: &str, marker: &str) -> u32 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(source);
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().position(|line| line.ends_with(marker)).unwrap();
    line as u32 + 1
}
