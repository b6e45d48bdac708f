//! The suites: tests that `cargo xtask test` leaves out, because they need more than it does or find little for their time.
//!
//! Every test belongs to one suite. The others name theirs, and all the rest are the main suite's, so a new test is one of those.

use anyhow::Result;

use crate::recipes::GuestSet::{self, Components, JavaScript, Main, Releases, ThirdParty};
use crate::tools::Tool::{
    self, Browser, Graphviz, HostPackages, Perf, Pprof, PushPackages, Speedscope, Wasmtime, WasmtimePackages,
};
use crate::{cross, tests_and_lints};

/// A group of tests that need the same guests and programs.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// Its subject and its needs, as `--help` lists them.
    pub(crate) about: &'static str,
    /// Names of its tests, or parts of them; with `::` at the end, modules of the end-to-end tests. A test that several suites name
    /// belongs to the first of them.
    pub(crate) tests: &'static [&'static str],
    pub(crate) guests: &'static [GuestSet],
    pub(crate) tools: &'static [Tool],
    /// Checks that `cargo test` does not run. They come before the tests.
    pub(crate) checks: &'static [fn() -> Result<()>],
}

/// The tests of `cargo xtask test`, which come after its formatting and lints.
pub(crate) const MAIN: Suite = Suite {
    name: "main",
    about: "every test of no other suite",
    tests: &[],
    guests: &[Main],
    tools: &[Pprof],
    checks: &[],
};

/// All others, in the order in which they run: those that find most for their time come first.
pub(crate) const SUITES: [Suite; 14] = [
    Suite {
        name: "releases",
        about: "every other release of Go and CPython, and the walk through every guest",
        tests: &["every_other_release", "every_fixture"],
        guests: &[Main, Components, Releases, JavaScript],
        tools: &[Pprof],
        checks: &[],
    },
    Suite {
        name: "push",
        about: "profiles pushed into receivers with the rules of Pyroscope, Parca and OpenTelemetry collectors (Python packages)",
        tests: &["push::"],
        guests: &[Main, Components],
        tools: &[PushPackages, WasmtimePackages],
        checks: &[],
    },
    Suite {
        name: "as-wasmtime",
        about: "runs compared with those of the wasmtime command, which it builds",
        tests: &[
            "as_wasmtime_run::",
            "bench::guests_return_what_they_return_to_wasmtime_run",
            "serve::answers_are_those_of_wasmtime_serve",
            "serve::headers_and_limits_are_those_of_wasmtime_serve",
            "serve::tasks_of_one_store_are_answered_and_sampled_each_for_itself",
        ],
        guests: &[Main, Components, JavaScript],
        tools: &[Wasmtime],
        checks: &[],
    },
    Suite {
        name: "hosts",
        about: "processes attached to that others wrote: releases of Wasmtime and programs on it (Python packages), and its command",
        tests: &["hosts::", "single_step_tests::"],
        guests: &[Main],
        tools: &[WasmtimePackages, HostPackages, Wasmtime],
        checks: &[],
    },
    Suite {
        name: "perf",
        about: "profiles compared with perf's, objdump's and Graphviz's reading (Debian's packages)",
        tests: &["perf::", "assembly::", "graph::"],
        guests: &[Main],
        tools: &[Perf, Graphviz],
        checks: &[],
    },
    Suite {
        name: "plugins",
        about: "plugins that crash, hang or are wrong, one by one, and the tutorial's commands",
        tests: &[
            "contained::",
            "misbehaving::",
            "plugin_heaps::checks_say_what_is_wrong_with_what_is_told_of_heaps",
            "plugin_kit::what_is_wrong_is_found",
            "tutorial::the_commands_print_what_the_page_says",
        ],
        guests: &[Main],
        tools: &[],
        checks: &[],
    },
    Suite {
        name: "javascript",
        about: "SpiderMonkey's and AssemblyScript's guests and speedscope (npm), and pages in Chromium (Debian's package)",
        tests: &["spidermonkey::", "source_map::lines_of_assemblyscript", "speedscope::", "browser::"],
        guests: &[Main, JavaScript],
        tools: &[Browser, Speedscope],
        checks: &[],
    },
    Suite {
        name: "real-guests",
        about: "third-party programs as they are published (npm)",
        tests: &["real_guests::"],
        guests: &[ThirdParty],
        tools: &[Wasmtime],
        checks: &[],
    },
    Suite {
        name: "stress",
        about: "guests sampled as hard as can be, and a host of many stores",
        tests: &["stress::"],
        guests: &[Main],
        tools: &[],
        checks: &[],
    },
    Suite {
        name: "clocks",
        about: "clocks beside busy processes, and what sampling may take, which other tests beside it would disturb",
        tests: &["clock::"],
        guests: &[Main],
        tools: &[],
        checks: &[],
    },
    Suite {
        name: "packages",
        about: "packages of the crates, documentation with its examples, xtask's lints",
        tests: &[],
        guests: &[],
        tools: &[],
        checks: &[tests_and_lints::check_packages],
    },
    Suite {
        name: "namespaces",
        about: "a full disk, and paths in distributions (user namespaces)",
        tests: &["bad_input::a_full_disk_is_told_before_the_guest_is_compiled", "dist::tests::paths_are_the_same"],
        guests: &[Main],
        tools: &[],
        checks: &[],
    },
    Suite {
        name: "aarch64",
        about: "tests of the walk and the command on aarch64 (emulated; user namespaces)",
        tests: &[],
        guests: &[Main],
        tools: &[],
        checks: &[cross::test_aarch64],
    },
    Suite {
        name: "platforms",
        about: "the compiler's check of all crates for macOS and Windows",
        tests: &[],
        guests: &[],
        tools: &[],
        checks: &[cross::check_platforms],
    },
];

impl Suite {
    /// The suite of a test.
    pub(crate) fn of_test(name: &str) -> &'static Self {
        SUITES.iter().find(|suite| suite.tests.iter().any(|part| is_part_of(part, name))).unwrap_or(&MAIN)
    }
}

/// Whether `part`, which stands in [`Suite::tests`], names the test `name`. Unit tests may be of a module that is called as one of the
/// end-to-end tests.
pub(crate) fn is_part_of(part: &str, name: &str) -> bool {
    if part.ends_with("::") { name.starts_with(part) && !name.contains("::tests::") } else { name.contains(part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_belong_to_the_first_suite_that_names_them() {
        let suites = [
            "perf::samples::the_lines_are_equal",
            "graph::tests::a_line_is_whole",
            "python::lines_have_their_shares",
            "python::lines_have_their_shares_in_every_other_release",
            "sampler::of_every_other_release_stacks_are_whole",
        ]
        .map(|name| Suite::of_test(name).name);
        assert_eq!(suites, ["perf", "main", "main", "releases", "releases"]);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = SUITES.iter().chain([&MAIN]).map(|suite| suite.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SUITES.len() + 1);
    }
}
