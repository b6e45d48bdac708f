//! `cargo xtask bench`: what sampling costs, as ratios to the same guest run without, and what the plugins' ABI adds.
//!
//! Every guest is compiled once and then run in every [`Mode`](mode::Mode), round after round, each run in a store and
//! on a thread of its own. A round begins one mode later than the round before, and every run stands between two plain ones,
//! with which alone it is compared: on a machine whose speed drifts, that leaves the least of the drift in the numbers.
//! `plain again` is the plain run once more, and `signals alone` are signals that nothing answers: the least that a profiler
//! with signals can cost on the machine.
//!
//! Nothing here passes or fails by time.

#![forbid(unsafe_code)]

mod arguments;
mod clocks;
#[cfg_attr(not(target_os = "linux"), path = "no_floor.rs")]
mod floor;
mod heap;
mod mode;
mod overhead;
mod perf_record;
mod plugin_abi;
mod report;
mod run;
mod startup;
mod statistics;
mod table;

use anyhow::Result;
use arguments::{Arguments, USAGE, fixtures};
use std::process::ExitCode;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match Arguments::parse(&given) {
        Ok(Some(arguments)) => bench(&arguments),
        Ok(None) => {
            print!("{USAGE}");
            Ok(())
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> Result<()> {
    println!("{}", machine());
    println!("{}", arguments.command());
    if arguments.memory_only {
        return heap::bench(&fixtures(), arguments.rounds);
    }
    if !arguments.plugin_abi_only {
        for guest in arguments.guests()? {
            overhead::bench(&guest, arguments)?;
        }
        let large = arguments.startup_module()?;
        startup::bench(&large, arguments.startup_rounds())?;
    }
    plugin_abi::bench(&arguments.go_guest()?, arguments.rounds)?;
    if !arguments.plugin_abi_only {
        heap::bench(&fixtures(), arguments.rounds)?;
    }
    println!("\n{}", load());
    Ok(())
}

/// What the numbers were measured on.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("processor of unknown name");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{cores} × {}, {} {} {}; {}",
        model.trim_start_matches([' ', '\t', ':']),
        std::env::consts::OS,
        read("/proc/sys/kernel/osrelease").trim(),
        std::env::consts::ARCH,
        load(),
    )
}

/// How busy the machine is.
fn load() -> String {
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load averages now: {}", averages.split(' ').take(3).collect::<Vec<_>>().join(" "))
}
