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
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.wlprof");
    let run = Command::new(env!("CARGO_BIN_EXE_wlprof"))
        .args(options)
        .arg("-o")
        .arg(&output)
        .arg(fixture(name))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
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

/// Line of the source that ends with `marker`.
pub(crate) fn marked_line(source: &str, marker: &str) -> u32 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(source);
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().position(|line| line.ends_with(marker)).unwrap();
    line as u32 + 1
}
