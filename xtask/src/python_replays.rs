//! `cargo xtask python-replays`: captures the Python guests again that `wlprof-cpython` is tested with.
//!
//! By Wasmtime for Python and not by wlprof: what the plugin is compared with should not come out of the same hands.

use std::path::PathBuf;

use anyhow::Result;

use crate::cache::{Cache, Key};
use crate::progress::Step;
use crate::{checkout, fixtures, process, wheels};

/// Releases of which there is a replay.
const RELEASES: [&str; 2] = ["3.11", "3.13"];

/// Builds the guests, runs and captures them, and replaces `testdata/python/replay`.
pub(crate) fn run() -> Result<()> {
    let guests: Vec<String> = RELEASES.iter().map(|release| format!("python-{release}")).collect();
    fixtures::build(&guests)?;
    let cache = Cache::open()?;
    let python = python(&cache)?;
    let (scripts, fixtures) = (checkout::testdata().join("python"), checkout::root().join("target/fixtures"));
    for guest in guests {
        let step = Step::announced(format!("capturing {guest}"));
        let workplace = cache.workplace("replay")?;
        let dumps = workplace.path.join("dumps");
        let mut capture = std::process::Command::new(&python);
        capture
            .arg(checkout::root().join("plugins/cpython/tests/replay/capture.py"))
            .arg(fixtures.join(format!("{guest}-stripped.wasm")))
            .arg(fixtures.join(format!("{guest}-lib")))
            .args([&scripts, &dumps]);
        process::output(&mut capture, "remove the wheels in the cache folder and try again")?;
        let replay = guest.replace("python-", "") + ".replay";
        let mut record = checkout::cargo();
        record.args(["run", "--release", "--quiet", "--package", "wlprof-cpython", "--example", "record", "--"]);
        record.arg(fixtures.join(format!("{guest}.wasm"))).arg(&dumps).arg(scripts.join("replay").join(replay));
        process::visibly(&mut record)?;
        step.done();
    }
    Ok(())
}

/// A Python with Wasmtime in it.
fn python(cache: &Cache) -> Result<PathBuf> {
    let requirements = checkout::testdata().join("requirements-replay.txt");
    let key = Key::of([std::fs::read(&requirements)?.as_slice()]);
    let venv = cache.toolchain(&format!("replay-{}", key.short()));
    if !venv.exists() {
        wheels::install(cache, "Wasmtime for Python", &requirements, &venv, &["wasmtime"])?;
    }
    Ok(venv.join("bin/python"))
}
