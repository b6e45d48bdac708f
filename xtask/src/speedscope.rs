//! speedscope, which reads what wlprof writes for it: the pinned release from npm, and a script that has it read a file without a
//! browser.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cache::{self, Cache, Key};
use crate::npm::Package;
use crate::process;
use crate::progress::Step;

const PACKAGE: Package = Package {
    name: "speedscope",
    release: "1.25.0",
    hash: "2831f1e0d26df914b477e522d78b8485511495a6af81a0b88158f8b48f9e0d03",
};
const SCRIPT: &str = include_str!("speedscope.js");

/// The program, which prints what speedscope makes of the file that it is given. Installed if the cache does not have it.
pub(crate) fn program(cache: &Cache) -> Result<PathBuf> {
    let key = Key::of([PACKAGE.hash.as_bytes(), SCRIPT.as_bytes()]);
    let folder = cache.toolchain(&format!("speedscope-{}-{}", PACKAGE.release, key.short()));
    cache.once(&folder, || install(cache, &folder))?;
    Ok(folder.join("speedscope-read"))
}

fn install(cache: &Cache, folder: &Path) -> Result<()> {
    let step = Step::announced(format!("downloading speedscope {}", PACKAGE.release));
    let workplace = cache.workplace("speedscope")?;
    let made = workplace.path.join("made");
    fs::create_dir(&made)?;
    PACKAGE.unpack(&made)?;
    fs::write(made.join("read.js"), SCRIPT)?;
    let at = folder.display();
    let script = format!("#!/bin/sh\nexec node '{at}/read.js' '{at}/package/dist/release' \"$@\"\n");
    process::write_program(&made.join("speedscope-read"), &script)?;
    cache::publish(&made, folder)?;
    step.done();
    Ok(())
}
