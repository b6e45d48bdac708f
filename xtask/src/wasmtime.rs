//! The `wasmtime` command, of the release that wlprof is built with: what its tests compare wlprof's runs with.
//!
//! From crates.io, with what the tests need alone and little optimized: with all features, as it is published, it takes
//! several times as long to build.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::cargo_install::Crate;
use crate::checkout;

/// `run` and `serve`, a compiler for them, and the proposals that wlprof's engine has.
const FEATURES: &str = "run,serve,cranelift,wat,threads,gc,gc-drc,gc-null,component-model,component-model-async,wasi-http,\
                        pooling-allocator,backtrace";
/// Part of the folder's name in the cache; raised when something else than the release changes.
const BUILD: u32 = 2;

/// The command. Built if the cache does not have it.
pub(crate) fn program(cache: &Cache) -> Result<PathBuf> {
    let version = release()?;
    let program = cache.toolchain(&format!("wasmtime-{version}-{BUILD}"));
    let arguments = ["--no-default-features", "--features", FEATURES];
    Crate { name: "wasmtime-cli", version: &version, program: "wasmtime", arguments: &arguments }
        .install(cache, &program)?;
    Ok(program)
}

/// The release of Wasmtime in `Cargo.lock`.
fn release() -> Result<String> {
    let path = checkout::root().join("Cargo.lock");
    let lock = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let version = locked_version(&lock, "wasmtime").context("Cargo.lock does not have wasmtime")?;
    Ok(version.to_owned())
}

fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_the_one_that_is_locked() {
        let lock = "[[package]]\nname = \"wasmtime-wasi\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"wasmtime\"\nversion = \"2.0.1\"\n";
        assert_eq!(locked_version(lock, "wasmtime"), Some("2.0.1"));
        assert_eq!(locked_version(lock, "wasm"), None);
    }
}
