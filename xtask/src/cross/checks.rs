//! `cargo xtask check-platforms`: whether all of the workspace compiles for platforms that nothing can be run on here.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::compilers::{AARCH64_LINUX, TARGETS, Target};
use super::toolchain::Toolchain;
use crate::cache::Cache;
use crate::progress::Step;

const CHECK: &[&str] = &["check", "--release", "--quiet", "--workspace", "--all-targets"];

/// Checks all but the one that is built and tested. At once: what of one has to wait for Wasmtime leaves room for another.
pub(crate) fn check_platforms() -> Result<()> {
    let toolchain = Toolchain::get(&Cache::open()?)?;
    let others = TARGETS.into_iter().filter(|target| target.triple != AARCH64_LINUX.triple);
    let targets: Vec<Target> = others.collect();
    let names: Vec<&str> = targets.iter().map(|target| target.triple).collect();
    let step = Step::announced(format!("cargo check for {}", names.join(", ")));
    if let Err(error) = check(&mut toolchain.cargo(CHECK, &targets)) {
        // Cargo does not say for which.
        for target in targets {
            check(&mut toolchain.cargo(CHECK, &[target]))
                .with_context(|| format!("wlprof does not compile for {}", target.triple))?;
        }
        return Err(error);
    }
    step.done();
    Ok(())
}

/// Runs cargo and refuses warnings. By rustc's flags they would be refused at the price of a check of all dependencies.
fn check(cargo: &mut Command) -> Result<()> {
    // A warning begins with its colour where there are colours.
    let output = cargo
        .env("CARGO_TERM_COLOR", "never")
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run `{cargo:?}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    if !output.status.success() {
        bail!("`{cargo:?}` failed ({})", output.status);
    }
    if said.lines().any(|line| line.starts_with("warning")) {
        bail!("there are warnings");
    }
    Ok(())
}
