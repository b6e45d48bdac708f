//! The `wasmtime` command, of the release that wlprof is built with: what its tests compare wlprof's runs with.
//!
//! From crates.io, with what the tests need alone and little optimized: with all features, as it is published, it takes
//! several times as long to build.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, Cache};
use crate::progress::Step;
use crate::{checkout, process};

/// `run` and `serve`, a compiler for them, and the proposals that wlprof's engine has.
const FEATURES: &str = "run,serve,cranelift,wat,threads,gc,gc-drc,gc-null,component-model,component-model-async,wasi-http,\
                        pooling-allocator,backtrace";
/// Part of the folder's name in the cache; raised when something else than the release changes.
const BUILD: u32 = 2;
const REMEDY: &str = "wasmtime-cli is built from crates.io; is it in reach?";

/// The command. Built if the cache does not have it.
pub(crate) fn program(cache: &Cache) -> Result<PathBuf> {
    let version = release()?;
    let program = cache.toolchain(&format!("wasmtime-{version}-{BUILD}"));
    if program.exists() {
        return Ok(program);
    }
    let _lock = cache.lock()?;
    // Another process may have built it while this one waited for the lock.
    if program.exists() {
        return Ok(program);
    }
    let step = Step::announced(format!("building wasmtime {version}"));
    let workplace = cache.workplace("wasmtime")?;
    // Whoever works on the machine meanwhile comes first.
    let mut install = Command::new("nice");
    // Outside of the checkout: its settings for cargo are wlprof's own.
    install.arg(checkout::cargo().get_program()).current_dir(&workplace.path).env_remove("CARGO_TARGET_DIR");
    install.args(["install", "wasmtime-cli", "--version", &format!("={version}"), "--locked", "--no-track"]);
    install.args(["--no-default-features", "--features", FEATURES]);
    install.arg("--root").arg(&workplace.path).arg("--target-dir").arg(workplace.path.join("target"));
    install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    process::output(&mut install, REMEDY)?;
    cache::publish(&workplace.path.join("bin/wasmtime"), &program)?;
    step.done();
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
