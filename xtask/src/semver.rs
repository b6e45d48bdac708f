//! `cargo xtask semver [REVISION]`: whether the crates' public interfaces changed as their versions say, by cargo-semver-checks.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{self, Cache};
use crate::progress::Step;
use crate::{checkout, process};

/// The release that reads what the rustdoc of `rust-version` writes.
const RELEASE: &str = "0.51.0";
const REMEDY: &str = "cargo-semver-checks is built from crates.io; is it in reach?";

/// Compares the checkout with `revision`: unless told, with the last tag.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let baseline = match arguments {
        [] => last_tag()?,
        [revision] => revision.clone(),
        _ => bail!("one revision of the repository is compared with at a time"),
    };
    let program = program(&Cache::open()?)?;
    let mut check = Command::new(program);
    check.current_dir(checkout::root()).args(["semver-checks", "--workspace", "--exclude", "xtask"]);
    // What a registry does not have yet.
    process::visibly(check.args(["--baseline-rev", &baseline]))
}

fn last_tag() -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(checkout::root()).args(["describe", "--tags", "--abbrev=0"]);
    let tag =
        process::text(&mut git, "install git").context("there is no release yet: give a revision to compare with")?;
    Ok(tag.trim().to_owned())
}

/// The command. Built if the cache does not have it.
fn program(cache: &Cache) -> Result<PathBuf> {
    let program = cache.toolchain(&format!("cargo-semver-checks-{RELEASE}"));
    if program.exists() {
        return Ok(program);
    }
    let _lock = cache.lock()?;
    // Another process may have built it while this one waited for the lock.
    if program.exists() {
        return Ok(program);
    }
    let step = Step::announced(format!("building cargo-semver-checks {RELEASE}"));
    let workplace = cache.workplace("semver")?;
    // Whoever works on the machine meanwhile comes first.
    let mut install = Command::new("nice");
    // Outside of the checkout: its settings for cargo are wlprof's own.
    install.arg(checkout::cargo().get_program()).current_dir(&workplace.path).env_remove("CARGO_TARGET_DIR");
    install.args(["install", "cargo-semver-checks", "--version", &format!("={RELEASE}"), "--locked", "--no-track"]);
    install.arg("--root").arg(&workplace.path).arg("--target-dir").arg(workplace.path.join("target"));
    install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    process::output(&mut install, REMEDY)?;
    cache::publish(&workplace.path.join("bin/cargo-semver-checks"), &program)?;
    step.done();
    Ok(program)
}
