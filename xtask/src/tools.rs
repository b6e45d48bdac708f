//! `cargo xtask test-tools`: puts the programs that tests compare with into `target/tools`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::debian_tools::{GRAPHVIZ, PERF};
use crate::links::symlink;
use crate::{checkout, pprof, progress, speedscope, wasmtime};

/// Links them, after building or downloading what neither the machine nor the cache has.
pub(crate) fn provide() -> Result<()> {
    let cache = Cache::open()?;
    let mut programs = PERF.programs(&cache)?;
    programs.extend(GRAPHVIZ.programs(&cache)?);
    programs.push(("wasmtime", wasmtime::program(&cache)?));
    programs.push(("pprof", pprof::program(&cache)?));
    programs.push(("speedscope-read", speedscope::program(&cache)?));
    link(&programs)
}

/// The same of perf alone.
pub(crate) fn provide_perf() -> Result<()> {
    link(&PERF.programs(&Cache::open()?)?)
}

fn link(programs: &[(&'static str, PathBuf)]) -> Result<()> {
    let tools = checkout::root().join("target/tools");
    fs::create_dir_all(&tools)?;
    for (program, path) in programs {
        let link = tools.join(program);
        if fs::read_link(&link).ok().as_ref() != Some(path) {
            // Whatever is there is an older link of ours.
            let _ = fs::remove_file(&link);
            symlink(path, &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
    }
    let names: Vec<&str> = programs.iter().map(|(program, _)| *program).collect();
    progress::say(format_args!("{} in target/tools", names.join(", ")));
    Ok(())
}
