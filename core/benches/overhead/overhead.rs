//! Compares the modes on one guest.

use super::mode::Mode;
use super::run::{Measured, World, run};
use super::statistics::Spread;
use super::table::Table;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wlprof::guest::{Guest, LoadOptions};
use wlprof::wasi::Directory;

const HEADINGS: [&str; 12] = [
    "ratio to plain",
    "guest CPU",
    "fastest",
    "process CPU",
    "wall",
    "samples",
    "lost",
    "per CPU s",
    "pause p50",
    "p99",
    "tick",
    "ticks' cost",
];

/// One guest, compiled both ways.
struct Compiled {
    plain: Guest,
    with_epochs: Guest,
    world: World,
}

impl Compiled {
    fn load(path: &Path, times: Option<&str>) -> Result<Self> {
        let load =
            |epoch_interruption| Guest::load(path, &LoadOptions { epoch_interruption, ..LoadOptions::default() });
        Ok(Self { plain: load(false)?, with_epochs: load(true)?, world: world(path, times) })
    }

    fn run(&self, mode: Mode) -> Result<Measured> {
        run(if mode.needs_epochs() { &self.with_epochs } else { &self.plain }, &self.world, mode)
    }
}

/// What the guest at `path` is run with: `times` as its argument; an interpreter with a script and its library.
fn world(path: &Path, times: Option<&str>) -> World {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let times = times.map(str::to_owned).into_iter();
    if !name.starts_with("python-") {
        return World { arguments: times.collect(), ..World::default() };
    }
    let folder = |host: PathBuf, guest: &str| Directory { host, guest: guest.to_owned(), read_only: true };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/python");
    let library = path.with_file_name(format!("{name}-lib"));
    World {
        arguments: std::iter::once("bench.py".to_owned()).chain(times).collect(),
        directories: vec![folder(scripts, "."), folder(library, "/usr/local/lib")],
    }
}

/// Runs the guest at `path`, with `times` as its argument, in every mode, `rounds` times, and prints the table.
pub(crate) fn bench(path: &Path, times: Option<&str>, rounds: usize) -> Result<()> {
    let guest = Compiled::load(path, times)?;
    let modes = Mode::all();
    // The first run of each pays for what the system reads and maps once.
    guest.run(Mode::Plain)?;
    guest.run(Mode::EpochChecks)?;
    // By mode, then by round.
    let mut runs: Vec<Vec<Measured>> = vec![Vec::new(); modes.len()];
    for round in 0..rounds {
        eprintln!("{}: round {} of {rounds}", guest.plain.name, round + 1);
        for turn in 0..modes.len() {
            let mode = (round + turn) % modes.len();
            runs[mode].push(guest.run(modes[mode])?);
        }
    }
    print(&guest.plain.name, &modes, &runs);
    Ok(())
}

fn print(guest: &str, modes: &[Mode], runs: &[Vec<Measured>]) {
    let plain = &runs[0];
    let took = Spread::of(plain.iter().map(|run| run.guest_cpu.as_secs_f64()));
    println!(
        "\n{guest}: {:.2} s of CPU time ({:.2}–{:.2}) without sampling; medians of {} rounds",
        took.median,
        took.lowest,
        took.highest,
        plain.len()
    );
    let mut table = Table::new(&HEADINGS);
    for (mode, runs) in modes.iter().zip(runs).skip(1) {
        let ratio = |time: fn(&Measured) -> Duration| {
            let ratios = runs.iter().zip(plain).map(|(run, plain)| time(run).as_secs_f64() / time(plain).as_secs_f64());
            Spread::of(ratios).to_string()
        };
        let median = |value: fn(&Measured) -> f64| Spread::of(runs.iter().map(value)).median;
        let mut cells = vec![
            mode.name(),
            ratio(|run| run.guest_cpu),
            format!("{:.3}", fastest(runs) / fastest(plain)),
            ratio(|run| run.process_cpu),
            ratio(|run| run.wall),
        ];
        if median(|run| run.samples as f64) > 0.0 {
            cells.extend([
                format!("{:.0}", median(|run| run.samples as f64)),
                format!("{:.0}", median(|run| run.lost as f64)),
                format!("{:.0}", median(|run| run.samples as f64 / run.guest_cpu.as_secs_f64())),
                microseconds(median(|run| run.pause.handler_p50_ns as f64)),
                microseconds(median(|run| run.pause.handler_p99_ns as f64)),
                microseconds(median(|run| run.pause.tick_ns as f64)),
                percent(median(cost_of_ticks)),
            ]);
        } else {
            cells.resize(HEADINGS.len(), String::new());
        }
        table.row(cells);
    }
    for &(peer, process_cpu) in peers(guest) {
        let mut cells = [peer, "", "", process_cpu].map(str::to_owned).to_vec();
        cells.resize(HEADINGS.len(), String::new());
        table.row(cells);
    }
    table.print();
}

/// What other profilers were measured to cost on like work, each against its own runtime without it: none of them runs on
/// Wasmtime. wzprof (on wazero 1.5) with a Go 1.21 program of trees, maps and sorting, 0.63 s without.
fn peers(guest: &str) -> &'static [(&'static str, &'static str)] {
    if guest.starts_with("go-") {
        &[("wzprof, 1 call in 19 (like work)", "5.0"), ("wzprof, every call (like work)", "69.9")]
    } else {
        &[]
    }
}

/// The least that a run took, in seconds of its thread's CPU time.
fn fastest(runs: &[Measured]) -> f64 {
    Spread::of(runs.iter().map(|run| run.guest_cpu.as_secs_f64())).lowest
}

/// What the samples cost the guest by what one costs, as a part of its CPU time; 0 if that was not measured. Unlike the
/// ratios it has none of the machine's noise, and none of what it does not know of: caches, the call hook.
fn cost_of_ticks(run: &Measured) -> f64 {
    if run.pause.tick_ns == 0 {
        return 0.0;
    }
    let one = run.pause.tick_ns + run.pause.handler_p50_ns;
    run.samples as f64 * one as f64 / 1e9 / run.guest_cpu.as_secs_f64()
}

/// A part as a percentage; nothing if it was not measured.
fn percent(part: f64) -> String {
    if part == 0.0 { String::new() } else { format!("{:.2} %", 100.0 * part) }
}

/// Nanoseconds as microseconds; nothing if they were not measured.
fn microseconds(ns: f64) -> String {
    if ns == 0.0 { String::new() } else { format!("{:.1} µs", ns / 1e3) }
}
