//! `wlprof plugins check`: prints what a plugin does and does not do as it should.

use super::super::arguments::CheckPlugin;
use super::super::guest::cannot_load;
use super::super::{Failure, escape};
use crate::conformance::{Check, Outcome, Trial, check};
use crate::guest::{LoadOptions, WasiOptions};
use std::io::Write;

/// The exit code if the plugin failed a check.
const CHECK_FAILED: u8 = 1;

/// Checks a plugin and gives the exit code.
pub(super) fn run(arguments: &CheckPlugin) -> Result<u8, Failure> {
    let trial = match &arguments.guest {
        Some(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let wasi = WasiOptions {
                arguments: std::iter::once(name).chain(arguments.arguments.iter().cloned()).collect(),
                directories: arguments.directories.clone(),
                ..WasiOptions::default()
            };
            Some(Trial::load(path, &LoadOptions::default(), wasi).map_err(|error| cannot_load(path, &error))?)
        }
        None => None,
    };
    let mut out = std::io::stdout();
    // Whoever closed standard output wants no more of it.
    let _ = writeln!(out, "checking {}", escape::single_line(&arguments.plugin.to_string_lossy()));
    let (mut passed, mut failed) = (0, 0);
    check(&arguments.plugin, trial.as_ref(), &mut |Check { what, outcome }| {
        let (word, details) = match &outcome {
            Outcome::Passed(details) => ("ok", details),
            Outcome::Failed(details) => ("FAILED", details),
            Outcome::Skipped(details) => ("skipped", details),
        };
        passed += u32::from(matches!(outcome, Outcome::Passed(_)));
        failed += u32::from(matches!(outcome, Outcome::Failed(_)));
        let _ = writeln!(out, "check {what} ... {word} ({})", escape::single_line(details));
    });
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let _ = writeln!(out, "check result: {result}. {passed} passed; {failed} failed");
    Ok(if failed == 0 { 0 } else { CHECK_FAILED })
}
