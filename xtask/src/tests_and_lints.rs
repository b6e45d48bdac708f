//! `cargo xtask test`: all that has to pass before a change goes in, the same here and in CI.

use anyhow::{Context, Result};

use crate::progress::Step;
use crate::{checkout, demo, fixtures, header, process, real_guests, tidy, tools};

const FORMAT: &[&str] = &["fmt", "--all", "--check"];
const LINT: &[&str] = &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];
/// As programs that embed the library build it.
const LINT_LIBRARY: &[&str] =
    &["clippy", "--release", "--package", "wlprof", "--lib", "--no-default-features", "--", "-D", "warnings"];
const DOCUMENT: &[&str] = &["doc", "--release", "--workspace", "--no-deps"];
/// Apart from the rest: together they would have other features of shared dependencies, and Wasmtime be built anew.
const TEST: &[&str] = &["test", "--release", "--package", "wlprof"];
const TEST_OTHERS: &[&str] = &["test", "--release", "--workspace", "--exclude", "wlprof"];

/// Unit tests that need no guest: neither fixtures nor a run of Wasmtime.
const TEST_OTHERS_FAST: &[&str] = &["test", "--release", "--workspace", "--exclude", "wlprof", "--lib", "--bins"];
const TEST_FAST: &[&str] = &["test", "--release", "--package", "wlprof", "--lib", "--", "--skip", "sampler::signal"];

/// Runs what takes less than a minute once it is built.
fn run_fast() -> Result<()> {
    cargo(FORMAT, &[]).context("the code is not formatted: run `cargo fmt --all`")?;
    tidy::run()?;
    cargo(TEST_OTHERS_FAST, &[]).context("tests fail")?;
    cargo(TEST_FAST, &[]).context("tests fail")
}

/// Runs everything, up to the first failure, or with `--fast` what needs no guest. `arguments` go to `cargo test`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if arguments.first().is_some_and(|first| first == "--fast") {
        return run_fast();
    }
    fixtures::build(&[])?;
    tools::provide()?;
    real_guests::provide()?;
    demo::run(&[])?;
    header::run(&[])?;
    cargo(FORMAT, &[]).context("the code is not formatted: run `cargo fmt --all`")?;
    cargo(LINT, &[]).context("clippy has complaints")?;
    cargo(LINT_LIBRARY, &[]).context("clippy has complaints about the library without default features")?;
    cargo(DOCUMENT, &[]).context("the documentation has warnings")?;
    cargo(TEST_OTHERS, arguments).context("tests fail")?;
    cargo(TEST, arguments).context("tests fail")?;
    tidy::run()
}

fn cargo(task: &[&str], arguments: &[String]) -> Result<()> {
    let step = Step::announced(format!("cargo {}", task.join(" ")));
    process::visibly(checkout::cargo().args(task).args(arguments).env("RUSTDOCFLAGS", "-D warnings"))?;
    step.done();
    Ok(())
}
