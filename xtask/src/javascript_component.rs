//! Makes components that run JavaScript, with componentize-js from npm: it starts StarlingMonkey, which is SpiderMonkey with the interfaces of
//! WASI, has it load the program and keeps what memory holds then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, Cache, Key};
use crate::progress::Step;
use crate::{checkout, component, process};

/// What npm is to install, in `testdata/js`: the second has the hash of every package. Of jco, which encodes the component, it is the oldest release
/// that will do: later ones bring three times as many packages.
const PINS: [&str; 2] = ["package.json", "package-lock.json"];
/// The command, in the folder that npm installs into.
const COMMAND: &str = "node_modules/@bytecodealliance/componentize-js/src/cli.js";
const REMEDY: &str = "install Node.js with npm (Debian: apt-get install npm)";

/// The texts that pin componentize-js and what it needs.
pub(crate) fn pins() -> Result<String> {
    let read = |name| {
        let file = checkout::testdata().join("js").join(name);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    PINS.into_iter().map(read).collect()
}

/// Makes the component of a program in `testdata`, for the world that stands beside it.
pub(crate) fn build(program: &str, flags: &[&str], cache: &Cache, output: &Path) -> Result<()> {
    let packages = packages(cache)?;
    // Scripts are called as they are given; this folder's path is not to be in the component.
    let workplace = cache.workplace("component")?;
    fs::copy(checkout::testdata().join(program), workplace.path.join("app.js"))?;
    let mut componentize = Command::new("node");
    componentize.current_dir(&workplace.path).arg(packages.join(COMMAND)).arg("app.js");
    componentize.arg("--wit").arg(component::world(program)).arg("--out").arg(output).args(flags);
    process::output(&mut componentize, REMEDY).map(drop)
}

/// The folder with the packages. Installed if the cache does not have it.
fn packages(cache: &Cache) -> Result<PathBuf> {
    let key = Key::of([pins()?.as_bytes()]);
    let folder = cache.toolchain(&format!("componentize-js-{}", key.short()));
    if folder.exists() {
        return Ok(folder);
    }
    let step = Step::announced("installing componentize-js".to_owned());
    let workplace = cache.workplace("componentize-js")?;
    let unfinished = workplace.path.join("installed");
    fs::create_dir(&unfinished)?;
    for name in PINS {
        fs::copy(checkout::testdata().join("js").join(name), unfinished.join(name))?;
    }
    let mut npm = Command::new("npm");
    npm.current_dir(&unfinished).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    process::output(&mut npm, REMEDY).context("npm cannot install componentize-js")?;
    cache::publish(&unfinished, &folder)?;
    step.done();
    Ok(folder)
}
