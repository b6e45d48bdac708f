//! `cargo xtask test`: the main tests with formatting and lints, and the suites, each by its name or all of them.

use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use crate::progress::{self, Cost, Step};
use crate::recipes::GuestSet;
use crate::suites::{MAIN, SUITES, Suite, is_part_of};
use crate::{checkout, chosen_tests, cross, demo, fixtures, header, package, process, real_guests, tidy, tools};

const FORMAT: &[&str] = &["fmt", "--all", "--check"];
/// What is published, and what is not: together they would have other features of shared dependencies, and Wasmtime be checked anew
/// for the packages alone.
const PUBLISHED: &[&str] = &["--workspace", "--exclude", "xtask"];
const TASKS: &[&str] = &["--package", "xtask"];
const LINT: &[&str] = &["clippy", "--release", "--all-targets"];
const DENY_WARNINGS: &[&str] = &["--", "-D", "warnings"];
const DOCUMENT: &[&str] = &["doc", "--release", "--no-deps"];
const TEST_EXAMPLES: &[&str] = &["test", "--release", "--doc"];
/// The crates of `core`. Their tests are built apart from the rest: together they would have other features of shared dependencies, and
/// Wasmtime be built anew.
const CORE: [&str; 17] = [
    "wlprof",
    "wlprof-attach",
    "wlprof-cli",
    "wlprof-export",
    "wlprof-heap",
    "wlprof-host",
    "wlprof-push",
    "wlprof-inside",
    "wlprof-languages",
    "wlprof-loader",
    "wlprof-module",
    "wlprof-recording",
    "wlprof-run",
    "wlprof-show",
    "wlprof-symbols",
    "wlprof-walk",
    "wlprof-wasi",
];

/// What is tested at once.
#[derive(Clone, Copy)]
enum Crates {
    /// Those of [`CORE`].
    Core,
    /// The rest of the workspace.
    Others,
}

impl Crates {
    const ALL: [Self; 2] = [Self::Others, Self::Core];

    /// Arguments of cargo that choose them.
    fn arguments(self) -> Vec<&'static str> {
        let (mut arguments, option) = match self {
            Self::Core => (Vec::new(), "--package"),
            Self::Others => (vec!["--workspace"], "--exclude"),
        };
        CORE.iter().for_each(|name| arguments.extend([option, name]));
        arguments
    }
}

/// Unit tests that need no guest: neither fixtures nor a run of Wasmtime.
const NEED_NO_GUEST: &[&str] =
    &["--skip=sampler::reading", "--skip=sampler::code_map_tests", "--skip=heap::rewrite_tests"];

/// Runs what `arguments` ask for, up to the first failure: without any the main tests.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => run_main(),
        ["--fast"] => run_fast(),
        ["--all"] => {
            run_main()?;
            SUITES.iter().try_for_each(run_suite)
        }
        ["--suite"] => bail!("--suite needs the name of a suite: {}", names_of_suites()),
        ["--suite", ref names @ ..] => {
            let suites = names.iter().map(|name| suite(name)).collect::<Result<Vec<_>>>()?;
            suites.into_iter().try_for_each(run_suite)
        }
        ["--suites"] => {
            SUITES.iter().for_each(|suite| println!("{}", suite.name));
            Ok(())
        }
        ["--list"] => list(),
        ["--target"] => bail!("--target needs the name of a platform, as rustc knows it"),
        ["--target", target, ref names @ ..] => cross::test(target, names),
        [option, ref rest @ ..] if option.starts_with('-') => match option.split_once('=') {
            Some(("--target", target)) => cross::test(target, rest),
            _ if ["--fast", "--all", "--suites", "--list"].contains(&option) => bail!("{option} takes no arguments"),
            _ => bail!("there is no option {option}: see `cargo xtask help`"),
        },
        _ => run_named(&arguments),
    }
}

fn names_of_suites() -> String {
    SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ")
}

fn suite(name: &str) -> Result<&'static Suite> {
    let mut all = SUITES.iter().chain([&MAIN]);
    all.find(|suite| suite.name == name)
        .with_context(|| format!("there is no suite `{name}`; there are main, {}", names_of_suites()))
}

/// Runs what takes less than a minute once it is built.
fn run_fast() -> Result<()> {
    check_text()?;
    let others = [&Crates::Others.arguments()[..], &["--lib", "--bins"]].concat();
    provide(&MAIN)?;
    // Some systems forbid the user namespaces that the first of them needs.
    let skipped = ["--", "--skip=dist::tests::paths_are_the_same", "--skip=every_other_release"];
    process::visibly(cargo("test").arg("--release").args(others).args(skipped)).context("tests fail")?;
    chosen_tests::run(NEED_NO_GUEST, |options| {
        let mut cargo = cargo("test");
        cargo.arg("--release").args(Crates::Core.arguments()).arg("--lib").args(options);
        cargo
    })
}

/// Formatting and house rules.
fn check_text() -> Result<()> {
    process::visibly(cargo(FORMAT[0]).args(&FORMAT[1..]))
        .context("the code is not formatted: run `cargo fmt --all`")?;
    tidy::run()
}

fn run_main() -> Result<()> {
    let cost = Cost::begin();
    check_text()?;
    header::run(&[])?;
    // At once: downloads and compilers of one thread leave processors idle.
    thread::scope(|scope| {
        let provided = scope.spawn(|| {
            let provided = provide(&MAIN).and_then(|()| demo::run(&[]));
            // The other thread may go on for a quarter of an hour.
            provided.inspect_err(|error| progress::say(format_args!("error: {error:#}")))
        });
        let built = lint_and_build();
        let provided = provided.join().unwrap_or_else(|_| Err(anyhow!("the thread that builds guests panicked")));
        match (provided, built) {
            (Err(guests), Err(built)) => Err(built.context(format!("{guests:#}; and"))),
            (provided, built) => provided.and(built),
        }
    })?;
    run_tests(&MAIN)?;
    progress::say(format_args!("suite {}: {cost}", MAIN.name));
    Ok(())
}

fn lint_and_build() -> Result<()> {
    run_cargo(&[LINT, PUBLISHED, DENY_WARNINGS].concat()).context("clippy has complaints")?;
    for crates in Crates::ALL {
        run_cargo(&[&["test", "--release", "--no-run"], &crates.arguments()[..]].concat())
            .context("the tests do not compile")?;
    }
    Ok(())
}

/// Runs a suite and prints what it cost.
fn run_suite(suite: &Suite) -> Result<()> {
    let cost = Cost::begin();
    progress::say(format_args!("suite {}: {} …", suite.name, suite.about));
    let ran = || {
        provide(suite)?;
        suite.checks.iter().try_for_each(|check| check())?;
        run_tests(suite)
    };
    ran().with_context(|| format!("suite {}; to run it again: cargo xtask test --suite {}", suite.name, suite.name))?;
    progress::say(format_args!("suite {}: {cost}", suite.name));
    Ok(())
}

/// Provides the guests and programs that a suite's tests need.
fn provide(suite: &Suite) -> Result<()> {
    fixtures::build_sets(suite.guests)?;
    if suite.guests.contains(&GuestSet::ThirdParty) {
        real_guests::provide()?;
    }
    tools::provide(suite.tools)
}

/// `cargo test` of these crates with options. With `--no-run` it builds examples, too, which tests start.
fn tests_of(crates: Crates) -> impl Fn(&[&str]) -> Command {
    move |options| {
        let mut cargo = cargo("test");
        cargo.arg("--release").args(crates.arguments());
        if options != ["--no-run"] {
            cargo.arg("--tests");
        }
        cargo.args(options);
        cargo
    }
}

/// Runs a suite's tests in all crates.
fn run_tests(suite: &Suite) -> Result<()> {
    if suite.tests.is_empty() && suite.name != MAIN.name {
        return Ok(());
    }
    let mut all = Vec::new();
    for crates in Crates::ALL {
        let tests = tests_of(crates);
        let mut names = chosen_tests::names(&tests)?;
        names.retain(|name| Suite::of_test(name).name == suite.name);
        chosen_tests::run_exactly(&names, &[], &tests)?;
        all.extend(names);
    }
    match suite.tests.iter().find(|part| !all.iter().any(|name| is_part_of(part, name))) {
        Some(part) => bail!("`{part}` names no test: correct the list in xtask/src/suites.rs"),
        None => Ok(()),
    }
}

/// Runs the tests that have one of the names in theirs, with the guests and programs of their suites. Tests of other suites than the main
/// one are left out if there are some of that. Arguments after `--` go to the tests.
fn run_named(arguments: &[&str]) -> Result<()> {
    let mut parts = arguments.splitn(2, |argument| *argument == "--");
    let (names, options) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if let Some(option) = names.iter().find(|name| name.starts_with('-')) {
        bail!("options of the tests stand after `--`: cargo xtask test NAME -- {option}");
    }
    let mut of_crates = Vec::new();
    for crates in Crates::ALL {
        of_crates.push((crates, chosen_tests::names(&tests_of(crates))?));
    }
    let all: Vec<String> = of_crates.iter().flat_map(|(_, names)| names).cloned().collect();
    chosen_tests::refuse(&chosen_tests::unmatched(names, &all))?;
    let is_named = |test: &String| names.iter().any(|name| test.contains(name));
    let is_main = |test: &String| Suite::of_test(test).name == MAIN.name;
    let only_main = all.iter().any(|test| is_named(test) && is_main(test));
    let mut left_out = 0;
    let mut provided = Vec::new();
    for (_, of_crates) in &mut of_crates {
        of_crates.retain(is_named);
        let named = of_crates.len();
        of_crates.retain(|test| !only_main || is_main(test));
        left_out += named - of_crates.len();
        for suite in of_crates.iter().map(|test| Suite::of_test(test)) {
            if !provided.contains(&suite.name) {
                provided.push(suite.name);
                provide(suite)?;
            }
        }
    }
    if left_out > 0 {
        progress::say(format_args!("{left_out} tests of other suites have such names, too, and are left out"));
    }
    of_crates.iter().try_for_each(|(crates, names)| chosen_tests::run_exactly(names, options, tests_of(*crates)))
}

/// Prints every test after the name of its suite.
fn list() -> Result<()> {
    for crates in Crates::ALL {
        for name in chosen_tests::names(&tests_of(crates))? {
            println!("{} {name}", Suite::of_test(&name).name);
        }
    }
    Ok(())
}

/// Checks packages, the documentation with its examples, and xtask's lints.
pub(crate) fn check_packages() -> Result<()> {
    run_cargo(&[LINT, TASKS, DENY_WARNINGS].concat()).context("clippy has complaints")?;
    package::run()?;
    for crates in [PUBLISHED, TASKS] {
        run_cargo(&[DOCUMENT, crates].concat()).context("the documentation has warnings")?;
    }
    for crates in Crates::ALL {
        run_cargo(&[TEST_EXAMPLES, &crates.arguments()[..]].concat()).context("examples of the documentation fail")?;
    }
    Ok(())
}

fn cargo(task: &str) -> Command {
    let mut cargo = checkout::cargo();
    cargo.arg(task);
    cargo
}

fn run_cargo(task: &[&str]) -> Result<()> {
    let step = Step::announced(format!("cargo {}", task.join(" ")));
    process::visibly(checkout::cargo().args(task).env("RUSTDOCFLAGS", "-D warnings"))?;
    step.done();
    Ok(())
}
