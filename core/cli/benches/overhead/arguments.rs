//! The bench's command line.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
cargo xtask bench [OPTIONS]

  --rounds N      runs of each guest in each way (default 9)
  --quick         3 rounds
  --guest NAME    only this guest of target/fixtures; may be given several times
  --times N       multiply the guests' work by this
  --way TEXT      only ways of running guests whose names contain this; may be given several times
  --plugin-abi    only what a walk costs through the plugins' ABI
  --memory        only what profiles of memory cost, in whole processes
  --startup PATH  module whose start-up to measure (default: the largest of target/fixtures)

Every run stands between two plain ones, without any profiler, and is compared with their mean.
One of whose three runs a thread had no processor for over 5 % of the time, because others or the
host had it, is disturbed: it is left out and made again, up to twice as many runs as asked for;
if that is not enough the least disturbed ones count, and the table says how many those are.

Prints, for each guest and way of running it, the ratios to plain runs of
  guest CPU    CPU time of the guest's thread, in its instantiation and its call
  process CPU  CPU time of all threads until sampling has ended, wlprof's included, and that of
               perf, which is another process, from its first sample to its end
  fastest      process CPU of the fastest run to that of the fastest of the plain ones before each:
               others on the machine can only slow a run
  wall         time of the guest's instantiation and its call
as medians, in brackets the interval in which the true median is with a probability of 95 %; and
the medians of samples taken, ticks lost, samples per second of the guest's CPU time, the time in
the signal handler, the cost of a tick as measured before the run, and what was counted as a part
of the guest's CPU time: CPU time of other threads, in the handler, and of a tick for each sample.
The last is the steadier figure, but for what cannot be counted: caches that interrupts leave cold. `plain again` shows how far equal runs differ; `signals alone`, with
a timer's signals that nothing answers, the least that any profiler with signals costs here.
";

/// Call-heavy; a runtime of its own, walked; an interpreter's loop; an interpreter, walked; host calls.
const GUESTS: [&str; 5] = ["c-calls", "go-bench", "c-interp", "python-3.13", "c-hosty"];
/// What a module begins with.
const MODULE: [u8; 8] = *b"\0asm\x01\0\0\0";
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
    /// Parts of the names of the ways to run them; all ways if there are none.
    pub(crate) ways: Vec<String>,
    /// What the guests' work is multiplied by, if anything.
    pub(crate) times: Option<u64>,
    /// Leave out all that runs guests with and without sampling.
    pub(crate) plugin_abi_only: bool,
    /// Leave out all but profiles of memory.
    pub(crate) memory_only: bool,
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
            ways: Vec::new(),
            times: None,
            plugin_abi_only: false,
            memory_only: false,
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
                "--way" => arguments.ways.push(value()?.clone()),
                "--times" => arguments.times = Some(value()?.parse().context("--times needs a number")?),
                "--plugin-abi" => arguments.plugin_abi_only = true,
                "--memory" => arguments.memory_only = true,
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
            // Components and texts are no modules.
            if is_module(&path) {
                largest = largest.max(Some((length, path)));
            }
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
pub(crate) fn fixtures() -> PathBuf {
    // Cargo sets this when it runs the bench; the path of the build is for direct runs.
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().unwrap_or(Path::new("..")).join("target/fixtures")
}

fn is_module(path: &Path) -> bool {
    let mut head = [0; MODULE.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == MODULE
}
