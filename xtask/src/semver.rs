//! `cargo xtask semver [REVISION]`: whether the crates' public interfaces changed as their versions say, by cargo-semver-checks.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::cargo_install::Crate;
use crate::{checkout, process};

/// The release that reads what the rustdoc of `rust-version` writes.
const RELEASE: &str = "0.51.0";

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
    const PROGRAM: &str = "cargo-semver-checks";
    let place = cache.toolchain(&format!("{PROGRAM}-{RELEASE}"));
    Crate { name: PROGRAM, version: RELEASE, program: PROGRAM, arguments: &[] }.install(cache, &place)?;
    Ok(place)
}
