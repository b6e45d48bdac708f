//! speedscope, which reads what wlprof writes for it: the pinned release from npm, and a script that has it read a file without a
//! browser.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::cache::{self, Cache, Key};
use crate::process;
use crate::progress::Step;

const RELEASE: &str = "1.25.0";
/// SHA-256 of the release's archive.
const HASH: &str = "2831f1e0d26df914b477e522d78b8485511495a6af81a0b88158f8b48f9e0d03";
const SCRIPT: &str = include_str!("speedscope.js");
const REMEDY: &str = "install Node.js with npm (Debian: apt-get install npm)";

/// The program, which prints what speedscope makes of the file that it is given. Installed if the cache does not have it.
pub(crate) fn program(cache: &Cache) -> Result<PathBuf> {
    let key = Key::of([HASH.as_bytes(), SCRIPT.as_bytes()]);
    let folder = cache.toolchain(&format!("speedscope-{RELEASE}-{}", key.short()));
    let program = folder.join("speedscope-read");
    if program.exists() {
        return Ok(program);
    }
    let _lock = cache.lock()?;
    // Another process may have installed it while this one waited for the lock.
    if program.exists() {
        return Ok(program);
    }
    let step = Step::announced(format!("downloading speedscope {RELEASE}"));
    let workplace = cache.workplace("speedscope")?;
    let mut npm = Command::new("npm");
    npm.current_dir(&workplace.path).args(["pack", "--silent"]).arg(format!("speedscope@{RELEASE}"));
    process::output(&mut npm, REMEDY)?;
    let archive = workplace.path.join(format!("speedscope-{RELEASE}.tgz"));
    let bytes = fs::read(&archive).context("npm has downloaded no archive")?;
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if hash != HASH {
        bail!("speedscope {RELEASE} is not what is pinned in xtask/src/speedscope.rs: its SHA-256 is {hash}");
    }
    let made = workplace.path.join("made");
    fs::create_dir(&made)?;
    process::output(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&made), "install tar")?;
    fs::write(made.join("read.js"), SCRIPT)?;
    let at = folder.display();
    let script = format!("#!/bin/sh\nexec node '{at}/read.js' '{at}/package/dist/release' \"$@\"\n");
    process::write_program(&made.join("speedscope-read"), &script)?;
    cache::publish(&made, &folder)?;
    step.done();
    Ok(program)
}
