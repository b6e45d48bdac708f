//! `cargo xtask test`: all that has to pass before a change goes in, the same here and in CI.

use anyhow::{Context, Result};

use crate::progress::Step;
use crate::{checkout, chosen_tests, cross, demo, fixtures, header, package, process, real_guests, tidy, tools};

const FORMAT: &[&str] = &["fmt", "--all", "--check"];
/// What is published, and what is not: together they would have other features of shared dependencies, and Wasmtime be checked anew
/// for the packages alone.
const PUBLISHED: &[&str] = &["--workspace", "--exclude", "xtask"];
const TASKS: &[&str] = &["--package", "xtask"];
const LINT: &[&str] = &["clippy", "--release", "--all-targets"];
const DENY_WARNINGS: &[&str] = &["--", "-D", "warnings"];
/// As programs that embed the library build it.
const LINT_LIBRARY: &[&str] = &[
    "clippy",
    "--release",
    "--package",
    "wlprof",
    "--lib",
    "--no-default-features",
    "--features",
    "_dependencies",
    "--",
    "-D",
    "warnings",
];
const DOCUMENT: &[&str] = &["doc", "--release", "--no-deps"];
/// Apart from the rest: together they would have other features of shared dependencies, and Wasmtime be built anew.
const TEST: &[&str] = &["test", "--release", "--package", "wlprof", "--package", "wlprof-wasi"];
const TEST_OTHERS: &[&str] = &["test", "--release", "--workspace", "--exclude", "wlprof", "--exclude", "wlprof-wasi"];

/// All but one that needs user namespaces, which not every system lets everyone have.
const NEED_NOTHING_OF_THE_SYSTEM: &[&str] = &["--", "--skip=dist::tests::paths_are_the_same"];

/// Unit tests that need no guest: neither fixtures nor a run of Wasmtime.
const ARE_FAST: &[&str] = &["--lib", "--bins"];
const NEED_NO_GUEST: &[&str] =
    &["--skip=sampler::reading", "--skip=sampler::code_map_tests", "--skip=heap::rewrite_tests"];

/// Runs what takes less than a minute once it is built.
fn run_fast() -> Result<()> {
    cargo(FORMAT, &[]).context("the code is not formatted: run `cargo fmt --all`")?;
    tidy::run()?;
    cargo(&[TEST_OTHERS, ARE_FAST, NEED_NOTHING_OF_THE_SYSTEM].concat(), &[]).context("tests fail")?;
    chosen_tests::run(NEED_NO_GUEST, |options| {
        let mut cargo = checkout::cargo();
        cargo.args(TEST).arg("--lib").args(options);
        cargo
    })
}

/// Runs everything, up to the first failure, or with `--fast` what needs no guest. `arguments` go to `cargo test`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if arguments.first().is_some_and(|first| first == "--fast") {
        return run_fast();
    }
    match arguments {
        [option, target, others @ ..] if option == "--target" => return cross::test(target, others),
        [option, others @ ..] if option.starts_with("--target") => {
            let target = option.strip_prefix("--target=").context("--target is to have a platform's name after it")?;
            return cross::test(target, others);
        }
        _ => {}
    }
    if arguments.is_empty() {
        // First, as it may be refused here.
        cross::provide()?;
    }
    fixtures::build(&[])?;
    tools::provide()?;
    real_guests::provide()?;
    demo::run(&[])?;
    header::run(&[])?;
    cargo(FORMAT, &[]).context("the code is not formatted: run `cargo fmt --all`")?;
    for crates in [PUBLISHED, TASKS] {
        cargo(&[LINT, crates, DENY_WARNINGS].concat(), &[]).context("clippy has complaints")?;
    }
    cargo(LINT_LIBRARY, &[]).context("clippy has complaints about the library without default features")?;
    package::run()?;
    for crates in [PUBLISHED, TASKS] {
        cargo(&[DOCUMENT, crates].concat(), &[]).context("the documentation has warnings")?;
    }
    cargo(TEST_OTHERS, arguments).context("tests fail")?;
    cargo(TEST, arguments).context("tests fail")?;
    tidy::run()?;
    if arguments.is_empty() {
        cross::check_platforms()?;
        cross::test("aarch64-unknown-linux-gnu", &[])?;
    }
    Ok(())
}

fn cargo(task: &[&str], arguments: &[String]) -> Result<()> {
    let step = Step::announced(format!("cargo {}", task.join(" ")));
    process::visibly(checkout::cargo().args(task).args(arguments).env("RUSTDOCFLAGS", "-D warnings"))?;
    step.done();
    Ok(())
}
