//! Compiles AssemblyScript, with asc from npm: a module with its source map beside it, and what Binaryen, which asc compiles with, reads in
//! both.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cache::Cache;
use crate::{checkout, npm, process};

/// The folder of `testdata` that pins the packages.
const FOLDER: &str = "assemblyscript";
const COMPILER: &str = "node_modules/assemblyscript/bin/asc.js";
const DISASSEMBLER: &str = "node_modules/binaryen/bin/wasm-dis";

/// What is shown of a guest's folder, and what is added to the guest's name for it: all of it, and the module.
pub(crate) const PARTS: [(&str, &str); 2] = [("", ""), ("shares.wasm", ".wasm")];

/// The texts that pin asc and what it needs.
pub(crate) fn pins() -> Result<String> {
    npm::pins(FOLDER)
}

/// Makes the folder `output` with the module of `program`, which is in `testdata`, its map, and its text with the places in the source.
pub(crate) fn build(program: &str, flags: &[&str], cache: &Cache, output: &Path) -> Result<()> {
    let packages = npm::packages(FOLDER, "assemblyscript", cache)?;
    // Scripts are called as they are given; this folder's path is not to be in the map.
    let workplace = cache.workplace("asc")?;
    fs::copy(checkout::testdata().join(program), workplace.path.join("shares.ts"))?;
    fs::create_dir(output)?;
    let run = |script: &str, arguments: &[&str]| {
        let mut node = Command::new("node");
        node.current_dir(&workplace.path).arg(packages.join(script)).args(arguments);
        process::output(&mut node, npm::REMEDY).map(drop)
    };
    run(COMPILER, &[&["shares.ts", "--outFile", "shares.wasm"], flags].concat())?;
    run(DISASSEMBLER, &["shares.wasm", "--source-map", "shares.wasm.map", "-o", "shares.wat"])?;
    for file in ["shares.wasm", "shares.wasm.map", "shares.wat"] {
        fs::copy(workplace.path.join(file), output.join(file))?;
    }
    Ok(())
}
