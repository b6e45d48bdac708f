//! `cargo xtask bench`: what sampling costs, measured by `core/cli/benches/overhead`.

use anyhow::Result;

use crate::tools::{self, Tool};
use crate::{checkout, fixtures, process, progress};

const BENCH: &[&str] = &["bench", "--quiet", "--package", "wlprof-cli", "--bench", "overhead", "--"];

/// The Go plugin as a library, to compare with the built-in one.
const LIBRARY: &[&str] = &["build", "--quiet", "--release", "--package", "wlprof-go", "--example", "go_plugin"];

/// Runs the bench. `arguments` are its own.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    fixtures::build(&[])?;
    if let Err(error) = tools::provide(&[Tool::Perf]) {
        progress::say(format_args!("perf is left out of the comparison: {error:#}"));
    }
    process::visibly(checkout::cargo().args(LIBRARY))?;
    process::visibly(checkout::cargo().args(BENCH).args(arguments))
}
