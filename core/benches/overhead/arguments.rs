//! The bench's command line.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
cargo xtask bench [OPTIONS]

  --rounds N      rounds to run (default 9)
  --quick         3 rounds
  --guest NAME    only this guest of target/fixtures; may be given several times
  --times N       multiply the guests' work by this (their first argument)
  --plugin-abi    only what a walk costs through the plugins' ABI
  --startup PATH  module whose start-up to measure (default: the largest of target/fixtures)

Prints, for each guest and way of running it, the ratios to the plain run of the same round
(median, and lowest to highest) of
  guest CPU    CPU time of the guest's thread, in its instantiation and its call
  fastest      the same of the fastest run and the fastest plain run of all: others on the
               machine can only slow a run, so with enough rounds this is the steadier number
  process CPU  CPU time of all threads until sampling has ended, wlprof's included
  wall         time of the guest's instantiation and its call
and the medians of samples taken, ticks lost, samples per second of the guest's CPU time, the time
in the signal handler, the cost of a tick as measured before the run, and of both for all samples
as a part of the guest's CPU time.
";

/// Call-heavy; a runtime of its own; an interpreter's loop; host calls.
const GUESTS: [&str; 4] = ["c-calls", "go-bench", "c-interp", "c-hosty"];
const ROUNDS: usize = 9;
const QUICK_ROUNDS: usize = 3;
/// Compiling a large module without a cache takes seconds.
const MOST_STARTUP_ROUNDS: usize = 5;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// Rounds of each guest.
    pub(crate) rounds: usize,
    guests: Vec<String>,
    /// What the guests are given as their first argument, if anything.
    pub(crate) times: Option<String>,
    /// Leave out all that runs guests with and without sampling.
    pub(crate) plugin_abi_only: bool,
    startup: Option<PathBuf>,
    given: Vec<String>,
}

impl Arguments {
    /// Parses the command line; `None` asks for help.
    pub(crate) fn parse(given: &[String]) -> Result<Option<Self>> {
        // `cargo bench` adds this one.
        let given: Vec<String> = given.iter().filter(|argument| *argument != "--bench").cloned().collect();
        let mut arguments = Self {
            rounds: ROUNDS,
            guests: Vec::new(),
            times: None,
            plugin_abi_only: false,
            startup: None,
            given: given.clone(),
        };
        let mut rest = given.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--rounds" => arguments.rounds = value()?.parse().context("--rounds needs a number")?,
                "--quick" => arguments.rounds = QUICK_ROUNDS,
                "--guest" => arguments.guests.push(value()?.clone()),
                "--times" => arguments.times = Some(value()?.clone()),
                "--plugin-abi" => arguments.plugin_abi_only = true,
                "--startup" => arguments.startup = Some(value()?.into()),
                "--help" | "-h" => return Ok(None),
                other => bail!("there is no option `{other}`\n\n{USAGE}"),
            }
        }
        if arguments.rounds == 0 {
            bail!("--rounds needs a number above 0");
        }
        Ok(Some(arguments))
    }

    /// The command that gives this run again.
    pub(crate) fn command(&self) -> String {
        std::iter::once("cargo xtask bench").chain(self.given.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    /// The modules to run.
    pub(crate) fn guests(&self) -> Result<Vec<PathBuf>> {
        let chosen: Vec<&str> = match self.guests.as_slice() {
            [] => GUESTS.to_vec(),
            some => some.iter().map(String::as_str).collect(),
        };
        chosen.into_iter().map(guest).collect()
    }

    /// A program in Go, for the plugin that there is in both forms.
    pub(crate) fn go_guest(&self) -> Result<PathBuf> {
        guest("go-bench")
    }

    /// The module whose start-up is to be measured.
    pub(crate) fn startup_module(&self) -> Result<PathBuf> {
        if let Some(path) = &self.startup {
            return Ok(path.clone());
        }
        let folder = fixtures();
        let mut largest = None;
        for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            // The fixtures are links into a cache, so the entry's own length says nothing.
            let length = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
            largest = largest.max(Some((length, path)));
        }
        largest.map(|(_, path)| path).with_context(|| format!("{} is empty", folder.display()))
    }

    /// How often to start up.
    pub(crate) fn startup_rounds(&self) -> usize {
        self.rounds.min(MOST_STARTUP_ROUNDS)
    }
}

fn guest(name: &str) -> Result<PathBuf> {
    let path = fixtures().join(format!("{name}.wasm"));
    if !path.is_file() {
        bail!("there is no {}; `cargo xtask bench` builds it if there is such a fixture", path.display());
    }
    Ok(path)
}

/// Where xtask puts the test guests.
fn fixtures() -> PathBuf {
    // Cargo sets this when it runs the bench; the path of the build is for direct runs.
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().unwrap_or(Path::new("..")).join("target/fixtures")
}
