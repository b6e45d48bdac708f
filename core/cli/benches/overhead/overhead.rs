//! Runs one guest in all modes.

use super::arguments::Arguments;
use super::mode::Mode;
use super::report;
use super::run::{Between, Measured, World, run};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use wlprof_run::guest::{Guest, LoadOptions};
use wlprof_wasi::Directory;

/// One guest, compiled both ways.
struct Compiled {
    plain: Guest,
    with_epochs: Guest,
    world: World,
}

impl Compiled {
    fn load(path: &Path, times: Option<u64>) -> Result<Self> {
        let load =
            |epoch_interruption| Guest::load(path, &LoadOptions { epoch_interruption, ..LoadOptions::default() });
        Ok(Self { plain: load(false)?, with_epochs: load(true)?, world: world(path, times) })
    }

    fn run(&self, mode: Mode) -> Result<Measured> {
        run(if mode.needs_epochs() { &self.with_epochs } else { &self.plain }, &self.world, mode)
    }
}

/// Rounds of the script that take about as long as the other guests do.
const SCRIPT_ROUNDS: u64 = 300;

/// What the guest at `path` is run with: `times` as its argument; an interpreter with a script and its library.
fn world(path: &Path, times: Option<u64>) -> World {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    if !name.starts_with("python-") {
        return World { arguments: times.iter().map(u64::to_string).collect(), ..World::default() };
    }
    let rounds = SCRIPT_ROUNDS * times.unwrap_or(1);
    let folder = |host: PathBuf, guest: &str| Directory { host, guest: guest.to_owned(), read_only: true };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python");
    let library = path.with_file_name(format!("{name}-lib"));
    World {
        arguments: vec!["bench.py".to_owned(), rounds.to_string()],
        directories: vec![folder(scripts, "."), folder(library, "/usr/local/lib")],
    }
}

/// Runs the guest at `path` in every mode that is asked for, each between two plain runs, until there are `rounds`
/// that nothing disturbed, or twice as many; prints the table of the `rounds` least disturbed ones.
pub(crate) fn bench(path: &Path, arguments: &Arguments) -> Result<()> {
    let guest = Compiled::load(path, arguments.times)?;
    let rounds = arguments.rounds;
    let is_asked_for = |name: &str| arguments.ways.is_empty() || arguments.ways.iter().any(|way| name.contains(way));
    let modes: Vec<Mode> = Mode::all().into_iter().filter(|mode| is_asked_for(&mode.name())).collect();
    if modes.is_empty() {
        bail!("there is no such way to run a guest: {}", arguments.ways.join(", "));
    }
    // The first run of each pays for what the system reads and maps once.
    guest.run(Mode::EpochChecks)?;
    guest.run(Mode::Plain)?;
    let mut before = guest.run(Mode::Plain)?;
    let mut runs: Vec<Vec<Between>> = vec![Vec::new(); modes.len()];
    let lacks = |runs: &[Between]| runs.iter().filter(|run| !run.is_disturbed()).count() < rounds;
    for round in 0..2 * rounds {
        let lacking = runs.iter().filter(|runs| lacks(runs)).count();
        if lacking == 0 {
            break;
        }
        eprintln!("{}: round {}, {lacking} of {} ways lack runs", guest.plain.name, round + 1, modes.len());
        for turn in 0..modes.len() {
            let mode = (round + turn) % modes.len();
            if lacks(&runs[mode]) {
                let run = guest.run(modes[mode])?;
                let after = guest.run(Mode::Plain)?;
                runs[mode].push(Between { before, run, after });
                before = after;
            }
        }
    }
    let ran = runs.iter().map(Vec::len).sum();
    for runs in &mut runs {
        runs.sort_by(|a, b| a.without_processor().total_cmp(&b.without_processor()));
        runs.truncate(rounds);
    }
    report::print(&guest.plain.name, &modes, &runs, ran);
    Ok(())
}
