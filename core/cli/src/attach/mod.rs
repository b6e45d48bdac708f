//! `wlprof attach PID`: samples the guests of a process that runs already.

pub(super) mod ps;

use super::available_plugins::Plugins;
use super::failure::{FAILED, Failure};
use super::interrupt::Interrupts;
use super::options::output::Output;
use super::options::sampling::{ClockChoice, parse_overhead};
use super::options::showing::ShowChoice;
use super::os::signals::Suspension;
use super::run_outputs::{ProfileOf, RunOutputs};
use super::{guest, interrupt, say, source_folders};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wlprof::languages::{self, Choice};
use wlprof::sampler::{Dump, Finished};
use wlprof_attach::{AttachError, Options, Process, ProgramFile, Session, named_files};
use wlprof_module::{Binary, ModuleImage, among, parse_binary, read_binary};
use wlprof_plugin::ModuleView;
use wlprof_recording::{Clock, Journal};
use wlprof_show::escape;

/// Rates that make sense: below, nothing is seen, and above, threads stand still for most of their time.
const RATES: std::ops::RangeInclusive<f64> = 1.0..=1000.0;

/// Options of `wlprof attach`.
#[derive(Args)]
pub(super) struct Attach {
    /// The process; `wlprof ps` lists those that run Wasmtime
    #[arg(value_name = "PID")]
    pid: i32,
    /// End after this many seconds; without it, at Ctrl-C or with the process
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// File that a guest was compiled from, for its lines; may repeat. Files that the process names are found without it
    #[arg(long = "guest", value_name = "FILE")]
    guests: Vec<PathBuf>,
    /// Samples a second
    #[arg(long, value_name = "HZ", default_value_t = 100.0, value_parser = rate)]
    rate: f64,
    /// For how much of its time a thread may stand still, in percent; the rate is lowered to keep it
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = parse_overhead, hide_short_help = true)]
    max_overhead: f64,
    /// Which time counts
    ///
    /// [default: cpu, or wall to show only waiting]
    #[arg(long, value_enum)]
    clock: Option<ClockChoice>,
    #[command(flatten)]
    output: Output,
}

/// Samples the process and writes its profile.
pub(super) fn run(attach: &Attach) -> Result<u8, Failure> {
    interrupt::survive_large_files().map_err(|error| Failure::new(FAILED, error))?;
    check(attach).map_err(|message| Failure::new(FAILED, message))?;
    let process = Process::open(attach.pid).map_err(failed)?;
    let plugins = Plugins::for_run(&[], &Choice::Auto)?;
    let files = files(&attach.guests, &process, &plugins)?;
    let mut outputs = RunOutputs::open(&attach.output, attach.output.showing.selection(ShowChoice::Time))?;
    let sources = source_folders::named(&attach.output, &[])?;
    let clock = match attach.clock {
        Some(ClockChoice::Wall) => Clock::Wall,
        None if attach.output.showing.off_cpu => Clock::Wall,
        Some(ClockChoice::Cpu) | None => Clock::Cpu,
    };
    let options = Options { rate_hz: attach.rate, clock, max_overhead: attach.max_overhead / 100.0 };
    let interrupts = Interrupts::default();
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let interrupted = is_interrupted.clone();
    let journal = outputs.begin_journal()?;
    let prepared = Session::new(process, files, journal, options).map_err(failed).and_then(|session| {
        if session.modules().is_empty() {
            return Err(runs_no_wasm(attach.pid));
        }
        let fail = |error| Failure::new(FAILED, error);
        interrupts.watch(move |_| interrupted.store(true, Ordering::Relaxed), 1).map_err(fail)?;
        Ok((session, Suspension::caught().map_err(fail)?))
    });
    let (mut session, suspension) = prepared.inspect_err(|_| outputs.remove_forerunner())?;
    if !attach.output.quiet {
        say_what_is_sampled(attach, &session);
        interrupt::note_if_ignored();
    }
    // One beyond all that the clock can show never comes.
    let end = attach.duration.and_then(|duration| Instant::now().checked_add(duration));
    let ends = || is_interrupted.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
    let sampled = loop {
        let sampled = session.run(|| ends() || suspension.is_due());
        if !suspension.is_due() {
            break sampled;
        }
        // Threads of the process would stand still for as long, if it were done while sampling.
        suspension.suspend();
    };
    drop(suspension);
    interrupts.run_is_over();
    let wlprof_attach::Finished { recorder, meta, ticks, modules, programs } = session.finish();
    let of = ProfileOf { images: &modules, language: None, plugins: Vec::new(), sources };
    let (_, written) = outputs.finish(Finished { recorder, meta, ticks, programs }, of, &interrupts);
    // What was sampled before is shown, and then what ended it.
    written.and(sampled.map_err(failed)).map(|()| 0)
}

/// Returns what the threads of process `pid` have on their stacks now, and the modules that wasm frames are of. `guests` are files that they
/// may have been compiled from.
pub(super) fn dump(pid: i32, guests: &[PathBuf]) -> Result<(Dump, Vec<Arc<ModuleImage>>), Failure> {
    let process = Process::open(pid).map_err(failed)?;
    let plugins = Plugins::for_run(&[], &Choice::Auto)?;
    let files = files(guests, &process, &plugins)?;
    let mut session = Session::new(process, files, Journal::default(), Options::default()).map_err(failed)?;
    if session.modules().is_empty() {
        return Err(runs_no_wasm(pid));
    }
    let dump = session.dump().map_err(failed)?;
    Ok((dump, session.modules().to_vec()))
}

fn runs_no_wasm(pid: i32) -> Failure {
    let message =
        format!("process {pid} runs no code that Wasmtime 24 or later compiled; `wlprof ps` lists those that do");
    Failure::new(FAILED, message)
}

/// Refuses options that need a guest which wlprof runs itself.
fn check(attach: &Attach) -> Result<(), String> {
    let output = &attach.output;
    if let Some(format) = output.code_format() {
        return Err(format!("--format={} describes the code of a guest that wlprof runs itself", format.name()));
    }
    if output.showing.off_cpu && attach.clock == Some(ClockChoice::Cpu) {
        return Err("--off-cpu shows waiting, which is no CPU time; leave out --clock=cpu".to_owned());
    }
    if output.showing.names_memory() {
        return Err("memory profiles need a guest that wlprof runs itself: leave out --show".to_owned());
    }
    Ok(())
}

/// The files that the user names, and those that the process does.
fn files(guests: &[PathBuf], process: &Process, plugins: &Plugins) -> Result<Vec<ProgramFile>, Failure> {
    let file = |(binary, _): (Binary, _)| {
        let modules: Vec<_> = binary.into_images().into_iter().map(Arc::new).collect();
        let views: Vec<_> = (0..modules.len()).filter_map(|number| among(&modules, number)).collect();
        let chosen = languages::choose_each(&Choice::Auto, &plugins.languages(), "", &views).unwrap_or_default();
        let programs = chosen.programs.into_iter().chain(std::iter::repeat(None));
        ProgramFile { modules: modules.into_iter().zip(programs).collect() }
    };
    let mut files = Vec::new();
    for path in guests {
        let binary = read_binary(path, None).map_err(|error| guest::cannot_load(path, &error.into()))?;
        files.push(file(binary));
    }
    // They may be anything, and are of use only if an image was compiled from them.
    let found = named_files(process).into_iter().filter_map(|(path, bytes)| parse_binary(bytes, &path, None).ok());
    files.extend(found.map(file));
    Ok(files)
}

fn say_what_is_sampled(attach: &Attach, session: &Session) {
    let names: Vec<_> = session.modules().iter().map(|module| module.name()).collect();
    let shown = escape::single_line(&names[..names.len().min(5)].join(", "));
    let more = names.len().saturating_sub(5);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let end = match attach.duration {
        Some(duration) if interrupt::ignores_interrupts() => format!("for {} s", duration.as_secs_f64()),
        Some(duration) => format!("for {} s; Ctrl-C ends it earlier", duration.as_secs_f64()),
        None if interrupt::ignores_interrupts() => "until it ends".to_owned(),
        None => "until Ctrl-C".to_owned(),
    };
    say::line(format_args!("sampling {shown}{more} in process {} {end}", attach.pid));
}

fn failed(error: AttachError) -> Failure {
    Failure::new(FAILED, error)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|duration| !duration.is_zero()).ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| RATES.contains(rate));
    rate.ok_or_else(|| format!("expected samples a second, from {} to {}", RATES.start(), RATES.end()))
}
