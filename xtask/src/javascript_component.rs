//! Makes components that run JavaScript, with componentize-js from npm: it starts StarlingMonkey, which is SpiderMonkey with the interfaces of
//! WASI, has it load the program and keeps what memory holds then.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cache::Cache;
use crate::{checkout, component, npm, process};

/// The folder of `testdata` that pins the packages. Of jco, which encodes the component, it is the oldest release that will do: later ones
/// bring three times as many packages.
const FOLDER: &str = "js";
/// The command, in the folder that npm installs into.
const COMMAND: &str = "node_modules/@bytecodealliance/componentize-js/src/cli.js";

/// The texts that pin componentize-js and what it needs.
pub(crate) fn pins() -> Result<String> {
    npm::pins(FOLDER)
}

/// Makes the component of a program in `testdata`, for the world that stands beside it.
pub(crate) fn build(program: &str, flags: &[&str], cache: &Cache, output: &Path) -> Result<()> {
    let packages = npm::packages(FOLDER, "componentize-js", cache)?;
    // Scripts are called as they are given; this folder's path is not to be in the component.
    let workplace = cache.workplace("component")?;
    fs::copy(checkout::testdata().join(program), workplace.path.join("app.js"))?;
    let mut componentize = Command::new("node");
    componentize.current_dir(&workplace.path).arg(packages.join(COMMAND)).arg("app.js");
    componentize.arg("--wit").arg(component::world(program)).arg("--out").arg(output).args(flags);
    process::output(&mut componentize, npm::REMEDY).map(drop)
}
