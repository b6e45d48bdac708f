//! `cargo xtask test-tools`: puts the programs that tests compare with into `target/tools`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache::{Cache, Key};
use crate::debian_tools::{GRAPHVIZ, PERF};
use crate::links::symlink;
use crate::{browser, checkout, pprof, progress, speedscope, wasmtime, wheels};

/// A program, or programs that come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `perf`, and `addr2line` and `objdump`, which it calls.
    Perf,
    /// `dot`.
    Graphviz,
    /// The `wasmtime` command.
    Wasmtime,
    /// What `go tool pprof` runs.
    Pprof,
    /// What reads profiles as speedscope does.
    Speedscope,
    /// What opens pages in Chromium.
    Browser,
    /// Wasmtime's Python package, of several releases.
    WasmtimePackages,
    /// Python packages that run WebAssembly of their own.
    HostPackages,
    /// Python packages of the servers that profiles are pushed to.
    PushPackages,
}

impl Tool {
    /// Every one.
    pub(crate) const ALL: [Self; 9] = [
        Self::Perf,
        Self::Graphviz,
        Self::Wasmtime,
        Self::Pprof,
        Self::Speedscope,
        Self::Browser,
        Self::WasmtimePackages,
        Self::HostPackages,
        Self::PushPackages,
    ];

    /// Its programs with their paths, after building or downloading what neither the machine nor the cache has.
    fn programs(self, cache: &Cache) -> Result<Vec<(&'static str, PathBuf)>> {
        Ok(match self {
            Self::Perf => PERF.programs(cache)?,
            Self::Graphviz => GRAPHVIZ.programs(cache)?,
            Self::Wasmtime => vec![("wasmtime", wasmtime::program(cache)?)],
            Self::Pprof => vec![("pprof", pprof::program(cache)?)],
            Self::Speedscope => vec![("speedscope-read", speedscope::program(cache)?)],
            Self::Browser => vec![("browse", browser::program(cache)?)],
            Self::WasmtimePackages => vec![("wasmtime-packages", wasmtime_packages(cache)?)],
            Self::HostPackages => vec![
                ("itk-packages", wheels::packages(cache, "requirements-itk.txt", &["itkwasm_downsample_wasi"])?),
                ("sandbox-packages", wheels::packages(cache, "requirements-sandbox.txt", &["sandbox"])?),
            ],
            Self::PushPackages => {
                vec![("push-packages", wheels::packages(cache, "requirements-push.txt", &["grpc", "opentelemetry"])?)]
            }
        })
    }
}

/// A folder for each release of Wasmtime's Python package.
fn wasmtime_packages(cache: &Cache) -> Result<PathBuf> {
    let requirements = checkout::testdata().join("requirements-hosts.txt");
    let pins = fs::read(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    let folder = cache.toolchain(&format!("wasmtime-packages-{}", Key::of([pins.as_slice()]).short()));
    cache.once(&folder, || wheels::install_each(cache, "Wasmtime's Python packages", &requirements, &folder))?;
    Ok(folder)
}

/// Links the programs of `tools`.
pub(crate) fn provide(tools: &[Tool]) -> Result<()> {
    if tools.is_empty() {
        return Ok(());
    }
    let cache = Cache::open()?;
    let folder = checkout::root().join("target/tools");
    fs::create_dir_all(&folder)?;
    let mut names = Vec::new();
    for tool in tools {
        for (program, path) in tool.programs(&cache)? {
            let link = folder.join(program);
            if fs::read_link(&link).ok().as_ref() != Some(&path) {
                // Whatever is there is an older link of ours.
                let _ = fs::remove_file(&link);
                symlink(&path, &link).with_context(|| format!("cannot make {}", link.display()))?;
            }
            names.push(program);
        }
    }
    progress::say(format_args!("{} in target/tools", names.join(", ")));
    Ok(())
}
