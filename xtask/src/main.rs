//! `cargo xtask`: wlprof's build automation. One file a task; this one only chooses which to run.

mod architecture;
mod assemblyscript;
mod bench;
mod bounds;
mod browser;
mod cache;
mod cargo_install;
mod checkout;
mod chosen_tests;
mod component;
mod cpython;
mod cross;
mod debian;
mod debian_package;
mod debian_rust;
mod debian_tools;
mod demo;
mod dist;
mod fixtures;
mod fleet;
mod goldens;
mod header;
mod javascript_component;
mod links;
mod npm;
mod package;
mod pprof;
mod process;
mod progress;
mod python_component;
mod python_replays;
mod quickjs;
mod real_guests;
mod recipes;
mod rust_target;
mod semver;
mod source_text;
mod speedscope;
mod strip;
mod suites;
mod tests_and_lints;
mod tidy;
mod tools;
mod wasmtime;
mod wheels;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask TASK

  test-fixtures [NAME…]  build the test guests (all, or those named) into target/fixtures
  test-tools             provide the programs that tests compare with in target/tools: perf, Graphviz,
                         wasmtime, pprof, speedscope, Chromium
  real-guests            provide programs that others built in target/real
  test                   the main tests: formatting, house rules, lints, unit tests and end-to-end tests
                         on guests of each language; builds the guests that it needs
  test NAME… [-- ARGS]   the tests that have one of these in their names, with the guests they need;
                         ARGS go to the tests
  test --all             the main tests, and then every suite, below
  test --suite NAME…     only these suites
  test --suites, --list  print the names of the suites, or every test with its suite
  test --fast            formatting, house rules and the fast unit tests
  test --target TRIPLE [NAME…]
                         tests of wlprof for aarch64-unknown-linux-gnu, emulated, or for
                         x86_64-pc-windows-gnu, under Wine
  check-platforms        have the compiler check everything for macOS and Windows
  bench [ARGS]           run guests with and without sampling and print the ratios;
                         --help says more
  bounds [RUNS]          see in 200 runs, unless told, whether the printed error bounds are honest
  python-replays         capture the Python guests again that the plugin is tested with
  tidy                   check the house rules that rustc and clippy do not know
  demo [--bless]         rebuild the demo guest and compare it with the committed file,
                         or replace that file
  header [--bless]       generate the C header of the plugins' ABI and compare it with the committed
                         file, or replace that file
  package                pack the crates as a registry gets them, and compile what is in the packages
  semver [REVISION]      compare the crates' public interfaces with those of a revision, the last tag unless
                         told, by cargo-semver-checks
  dist                   build an archive and a Debian package for this machine's platform in
                         target/distribution
  fleet                  push to a real collector and Parca, built by Go from the module proxy, and compare what they
                         have stored with the runs; fails where no proxy is reachable
  goldens [--bless]      compare what exporters write of an example recording with the committed
                         files, or replace those files
";

/// Tasks that are always the same.
const WITHOUT_ARGUMENTS: [&str; 8] =
    ["test-tools", "real-guests", "check-platforms", "python-replays", "tidy", "package", "dist", "fleet"];

fn print_usage() {
    println!("{USAGE}\nSuites of tests, in the order in which `test --all` runs them:\n");
    for suite in [&suites::MAIN].into_iter().chain(&suites::SUITES) {
        println!("  {:<12}  {}", suite.name, suite.about);
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    // The benchmark has a text of its own.
    if task != "bench" && rest.first().is_some_and(|first| first == "--help") {
        print_usage();
        return ExitCode::SUCCESS;
    }
    if let (true, Some(first)) = (WITHOUT_ARGUMENTS.contains(&task.as_str()), rest.first()) {
        eprintln!("xtask {task}: takes no arguments, and was given `{first}`");
        return ExitCode::from(2);
    }
    let outcome = match task.as_str() {
        "test-fixtures" => fixtures::build(&rest),
        "test-tools" => tools::provide(&tools::Tool::ALL),
        "real-guests" => real_guests::provide(),
        "test" => tests_and_lints::run(&rest),
        "check-platforms" => cross::check_platforms(),
        "bench" => bench::run(&rest),
        "bounds" => bounds::run(&rest),
        "python-replays" => python_replays::run(),
        "tidy" => tidy::run(),
        "demo" => demo::run(&rest),
        "package" => package::run(),
        "semver" => semver::run(&rest),
        "dist" => dist::run(),
        "fleet" => fleet::run(),
        "header" => header::run(&rest),
        "goldens" => goldens::run(&rest),
        "" | "help" | "--help" | "-h" => {
            print_usage();
            return ExitCode::SUCCESS;
        }
        other => {
            eprintln!("xtask: there is no task `{other}`\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
