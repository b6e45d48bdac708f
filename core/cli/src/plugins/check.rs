//! `wlprof plugins check`: prints what a plugin does and does not do as it should.

use super::super::failure::{FAILED, Failure};
use super::super::guest::{cannot_load, environment};
use crate::conformance::{Observer, Outcome, Trial, check};
use clap::Args;
use std::io::{Stdout, Write};
use std::path::PathBuf;
use wlprof::sampler::SamplerKind;
use wlprof_run::guest::LoadOptions;
use wlprof_show::escape;
use wlprof_wasi::{Directory, WasiOptions};

/// The exit code if the plugin failed a check.
const CHECK_FAILED: u8 = 1;

/// Options of `wlprof plugins check`.
#[derive(Debug, Args)]
pub(crate) struct CheckPlugin {
    /// The plugin, a dynamic library
    #[arg(value_name = "FILE")]
    pub(super) plugin: PathBuf,
    /// A program of its language, to walk. Its output is dropped, and it is halted after 20 s
    #[arg(long, value_name = "GUEST")]
    pub(super) guest: Option<PathBuf>,
    /// Give the guest a folder; may repeat
    #[arg(long = "dir", value_name = "HOST[::GUEST]")]
    pub(super) directories: Vec<Directory>,
    /// Give the guest an environment variable, or pass on one of this process; may repeat
    #[arg(long = "env", value_name = "K[=V]")]
    pub(super) environment: Vec<String>,
    /// Call this exported function instead of `_start`; ARGS are its parameters
    #[arg(long, value_name = "NAME")]
    pub(super) invoke: Option<String>,
    /// The guest's arguments; options come before them
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) arguments: Vec<String>,
}

/// Checks a plugin and gives the exit code.
pub(super) fn run(arguments: &CheckPlugin) -> Result<u8, Failure> {
    let trial = match &arguments.guest {
        Some(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let wasi = WasiOptions {
                arguments: std::iter::once(name).chain(arguments.arguments.iter().cloned()).collect(),
                directories: arguments.directories.clone(),
                environment: environment(&arguments.environment),
                ..WasiOptions::default()
            };
            // A folder that cannot be opened is a wrong option, not a wrong plugin.
            wasi.build().map_err(|error| Failure::new(FAILED, format!("{error:#}")))?;
            let (kind, _) = SamplerKind::Auto.resolve().map_err(|error| Failure::new(FAILED, format!("{error:#}")))?;
            let load = LoadOptions { epoch_interruption: kind == SamplerKind::Epoch, ..LoadOptions::default() };
            let trial = Trial::load(path, &load, wasi, arguments.invoke.clone());
            Some(trial.map_err(|error| cannot_load(path, &error))?)
        }
        None if !arguments.arguments.is_empty() => {
            let usage = "wlprof plugins check PLUGIN --guest GUEST [OPTIONS] ARGUMENTS";
            let found = arguments.arguments.join(" ");
            let message = format!("`{found}` is for a guest, and there is none; options come first: {usage}");
            return Err(Failure::new(FAILED, message));
        }
        None => None,
    };
    let mut out = std::io::stdout();
    let _ = writeln!(out, "checking {}", escape::single_line(&arguments.plugin.to_string_lossy()));
    let mut printer = Printer { out, passed: 0, failed: 0 };
    check(&arguments.plugin, trial.as_ref(), &mut printer);
    let Printer { mut out, passed, failed } = printer;
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let _ = writeln!(out, "check result: {result}. {passed} passed; {failed} failed");
    Ok(if failed == 0 { 0 } else { CHECK_FAILED })
}

/// Prints as test runners do. Whoever closed standard output wants no more of it.
struct Printer {
    out: Stdout,
    passed: u32,
    failed: u32,
}

impl Observer for Printer {
    fn begins(&mut self, what: &'static str) {
        let _ = write!(self.out, "check {what} ... ");
        let _ = self.out.flush();
    }

    fn ended(&mut self, outcome: Outcome) {
        let (word, details) = match &outcome {
            Outcome::Passed(details) | Outcome::Warned { seen: details, .. } => ("ok", details),
            Outcome::Failed(details) => ("FAILED", details),
            Outcome::Skipped(details) => ("skipped", details),
        };
        self.passed += u32::from(matches!(outcome, Outcome::Passed(_) | Outcome::Warned { .. }));
        self.failed += u32::from(matches!(outcome, Outcome::Failed(_)));
        let _ = writeln!(self.out, "{word} ({})", escape::single_line(details));
        if let Outcome::Warned { warning, .. } = &outcome {
            let _ = writeln!(self.out, "warning: {}", escape::single_line(warning));
        }
    }
}
