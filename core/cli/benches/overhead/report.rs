//! The table of what one guest's runs took.

use super::mode::Mode;
use super::run::{Between, Measured};
use super::statistics::{Estimate, Spread};
use super::table::Table;
use std::time::Duration;

const HEADINGS: [&str; 12] = [
    "ratio to plain",
    "guest CPU",
    "process CPU",
    "fastest",
    "wall",
    "samples",
    "lost",
    "per CPU s",
    "pause p50",
    "p99",
    "tick",
    "counted cost",
];

/// Prints the table of a guest: `runs` by mode, the least disturbed of `ran`.
pub(crate) fn print(guest: &str, modes: &[Mode], runs: &[Vec<Between>], ran: usize) {
    let all = || runs.iter().flatten();
    let plain = || all().map(|between| between.before);
    let took = Spread::of(plain().map(|run| run.guest_cpu.as_secs_f64()));
    let (count, disturbed) = (all().count(), all().filter(|between| between.is_disturbed()).count());
    println!(
        "\n{guest}: {:.2} s of CPU time ({:.2}–{:.2}) without sampling; {} runs of each way, {} more left out, {disturbed} of those \
         that count disturbed",
        took.median,
        took.lowest,
        took.highest,
        runs[0].len(),
        ran - count,
    );
    let mut table = Table::new(&HEADINGS);
    for (mode, runs) in modes.iter().zip(runs) {
        let ratio = |time: fn(&Measured) -> Duration| {
            let ratios = runs.iter().map(|Between { before, run, after }| {
                2.0 * time(run).as_secs_f64() / (time(before) + time(after)).as_secs_f64()
            });
            Estimate::of(ratios).to_string()
        };
        let median = |value: fn(&Measured) -> f64| Spread::of(runs.iter().map(|between| value(&between.run))).median;
        let mut cells = vec![
            mode.name(),
            ratio(|run| run.guest_cpu),
            ratio(|run| run.process_cpu),
            format!(
                "{:.3}",
                fastest(runs.iter().map(|between| between.run)) / fastest(runs.iter().map(|between| between.before))
            ),
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
                percent(median(counted_cost)),
            ]);
        } else {
            cells.resize(HEADINGS.len(), String::new());
        }
        table.row(cells);
    }
    for &(peer, process_cpu) in peers(guest) {
        let mut cells = [peer, "", process_cpu].map(str::to_owned).to_vec();
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

/// The least that a run took, in seconds of the process's CPU time.
fn fastest(runs: impl Iterator<Item = Measured>) -> f64 {
    Spread::of(runs.map(|run| run.process_cpu.as_secs_f64())).lowest
}

/// What sampling cost by what was counted, as a part of the guest's CPU time: that of the other threads, that in the handler, and
/// what an interrupt costs for each sample; 0 if that was not measured. Unlike the ratios it has none of the machine's noise, and
/// none of what cannot be counted: caches that interrupts leave cold.
fn counted_cost(run: &Measured) -> f64 {
    if run.pause.tick_ns == 0 {
        return 0.0;
    }
    let interrupts = Duration::from_nanos(run.samples * run.pause.tick_ns);
    let others = run.process_cpu.saturating_sub(run.guest_cpu);
    (others + run.in_handler + interrupts).as_secs_f64() / run.guest_cpu.as_secs_f64()
}

/// A part as a percentage; nothing if it was not measured.
fn percent(part: f64) -> String {
    if part == 0.0 { String::new() } else { format!("{:.2} %", 100.0 * part) }
}

/// Nanoseconds as microseconds; nothing if they were not measured.
fn microseconds(ns: f64) -> String {
    if ns == 0.0 { String::new() } else { format!("{:.1} µs", ns / 1e3) }
}
