//! `wlprof attach PID`: samples the guests of a process that runs already.

pub(super) mod guests;
mod program_cache;
pub(super) mod ps;

pub(super) use guests::ProcessGuests;
pub(super) use program_cache::ProgramCache;

use super::available_plugins::Plugins;
use super::failure::{FAILED, Failure};
use super::http::ListenAddress;
use super::interrupt::{self, Interrupts};
use super::live::{self, Live};
use super::live_guest::LiveGuest;
use super::options::output::{FramesChoice, Output};
use super::options::push::PushOptions;
use super::options::sampling::{ClockChoice, parse_overhead};
use super::options::showing::ShowChoice;
use super::os::signals::Suspension;
use super::pushing::{PushCounter, RunPush};
use super::run_outputs::{self, ProfileOf, RunOutputs};
use super::window_profiles::GuestView;
use super::{say, source_folders};
use clap::Args;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wlprof::languages::Choice;
use wlprof::sampler::{Dump, SessionOutcome};
use wlprof_attach::Options;
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;
use wlprof_push::{Push, Resource, Windows};
use wlprof_recording::sources::SourceFolders;
use wlprof_recording::{Clock, Journal, Selection};
use wlprof_show::escape;
use wlprof_show::table::TableOptions;

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
    /// Load a language plugin, a dynamic library; may repeat. Its code runs in wlprof, with all rights of yours
    #[arg(long = "plugin", value_name = "FILE", hide_short_help = true)]
    plugins: Vec<PathBuf>,
    /// Samples a second
    #[arg(long, value_name = "HZ", default_value_t = 100.0, value_parser = rate)]
    rate: f64,
    /// For how much of its time a thread may stand still, in percent; the rate is lowered to keep it
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = parse_overhead, hide_short_help = true)]
    max_overhead: f64,
    /// Show the host's own functions around those of its guests, as far as it has unwind tables
    #[arg(long, hide_short_help = true)]
    host_frames: bool,
    /// Which time counts
    ///
    /// [default: cpu, or wall to show only waiting]
    #[arg(long, value_enum)]
    clock: Option<ClockChoice>,
    /// Show the process while it is sampled, at http://ADDR:PORT/
    ///
    /// As of a run. Without -o and --format nothing else is shown or written.
    #[arg(long, value_name = "[ADDR:]PORT")]
    listen: Option<ListenAddress>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    pushing: PushOptions,
}

/// Samples the process and writes its profile.
pub(super) fn run(attach: &Attach) -> Result<u8, Failure> {
    let fail = |error| Failure::new(FAILED, error);
    interrupt::survive_large_files().map_err(fail)?;
    check(attach).map_err(|message| Failure::new(FAILED, message))?;
    let listener = attach.listen.map(live::listen).transpose()?;
    let plugins = Plugins::for_run(&attach.plugins, &Choice::Auto)?;
    let push = attach.pushing.push("", attach.output.frames.view())?;
    let mut outputs = match attach.is_only_shown() {
        true => None,
        false => Some(RunOutputs::open(&attach.output, attach.output.showing.selection(ShowChoice::Time))?),
    };
    let sources = source_folders::named(&attach.output, &[])?;
    let journal = || run_outputs::begin_journal(&mut outputs, listener.is_some() || push.is_some());
    let guests = ProcessGuests::open(attach.pid, &attach.guests, &plugins, attach.options(), journal);
    let interrupts = Interrupts::default();
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let interrupted = is_interrupted.clone();
    let prepared = guests.and_then(|guests| {
        interrupts.watch(move |_| interrupted.store(true, Ordering::Relaxed), 1).map_err(fail)?;
        let pushed = push.map(|push| begin_push(attach, push, &guests)).transpose()?;
        let counter = pushed.as_ref().map(RunPush::counter);
        let show = |listener| attach.show(listener, &guests, &plugins, sources.clone(), counter);
        let live = listener.map(show).transpose()?;
        Ok((guests, live, pushed, Suspension::caught().map_err(fail)?))
    });
    let (guests, live, pushed, suspension) =
        prepared.inspect_err(|_| outputs.iter().for_each(RunOutputs::remove_forerunner))?;
    if !attach.output.quiet {
        say_what_is_sampled(attach, &guests.images());
        interrupt::note_if_ignored();
    }
    // One beyond all that the clock can show never comes.
    let end = attach.duration.and_then(|duration| Instant::now().checked_add(duration));
    let ends = || is_interrupted.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
    let sampled = loop {
        let sampled = guests.session.sample_until(|| ends() || suspension.is_due());
        if !suspension.is_due() {
            break sampled;
        }
        // Threads of the process would stand still for as long, if it were done while sampling.
        suspension.suspend();
    };
    drop(suspension);
    interrupts.run_is_over();
    if sampled.is_ok() && !ends() && !attach.output.quiet {
        say::line(format_args!("process {} has ended", attach.pid));
    }
    live.into_iter().for_each(Live::end);
    pushed.into_iter().for_each(RunPush::end);
    let written = match (guests.session.finish(), outputs) {
        (Some(wlprof_attach::SessionOutcome { recorder, meta, ticks, modules, programs }), Some(outputs)) => {
            let language = guests.language();
            let plugins = language.iter().flat_map(|language| plugins.files_of(language)).collect();
            let of = ProfileOf { images: &modules, language, plugins, sources };
            outputs.finish(SessionOutcome { recorder, meta, ticks, programs }, of, &interrupts).1
        }
        _ => Ok(()),
    };
    // What was sampled before is shown, and then what ended it.
    written.and(sampled.map_err(guests::failed)).map(|()| 0)
}

/// Begins to push what is sampled of the process, by what is known of it.
fn begin_push(attach: &Attach, push: Push, guests: &ProcessGuests) -> Result<RunPush, Failure> {
    let server = push.target().to_string();
    let resource = attach.pushing.with_attributes(Resource::of_process(attach.pid));
    let mut windows = guests.windows();
    // Before anything is sampled: the first window has the first sample.
    windows.begin();
    let pushing = push.of(resource).windows(windows);
    let pushing = pushing.map_err(|error| Failure::new(FAILED, format!("--push: {error}")))?;
    Ok(RunPush::new(pushing, server, attach.output.quiet))
}

/// Returns what the threads of process `pid` have on their stacks now, and the modules that wasm frames are of. `files` are those that they
/// may have been compiled from.
pub(super) fn dump(pid: i32, files: &[PathBuf]) -> Result<(Dump, Vec<Arc<ModuleImage>>), Failure> {
    let plugins = Plugins::for_run(&[], &Choice::Auto)?;
    let guests = ProcessGuests::open(pid, files, &plugins, Options::default(), || Ok(Journal::default()))?;
    let dump = guests.dump().map_err(|error| Failure::new(FAILED, error))?;
    Ok((dump, guests.images()))
}

impl Attach {
    /// Whether nothing is written or printed: who asks is shown what there is meanwhile.
    fn is_only_shown(&self) -> bool {
        let is_looked_at = self.listen.is_some() || self.pushing.is_on();
        is_looked_at && !self.output.names_files() && self.output.format.is_none()
    }

    fn options(&self) -> Options {
        let unless_told = if self.output.showing.off_cpu { Clock::Wall } else { Clock::Cpu };
        let clock = self.clock.map_or(unless_told, ClockChoice::clock);
        Options {
            rate_hz: self.rate,
            clock,
            max_overhead: self.max_overhead / 100.0,
            host_frames: self.host_frames,
            ..Options::default()
        }
    }

    /// Shows the guests at `listener` while they are sampled.
    fn show(
        &self,
        listener: TcpListener,
        guests: &ProcessGuests,
        plugins: &Plugins,
        sources: SourceFolders,
        pushed: Option<PushCounter>,
    ) -> Result<Live, Failure> {
        let Output { frames, showing, quiet, .. } = &self.output;
        let language = guests.language();
        let shown = GuestView {
            plugins: language.iter().flat_map(|language| plugins.files_of(language)).collect(),
            language,
            sources,
            view: frames.view(),
            selection: Selection { off_cpu: false, ..showing.selection(ShowChoice::Time) },
            profiles_memory: false,
            table: TableOptions { width: None, ..showing.table(*frames != FramesChoice::Guest) },
        };
        let command = vec![format!("process {}", self.pid)];
        Live::start(listener, Arc::new(guests.clone()), command, shown, pushed, *quiet)
    }
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

fn say_what_is_sampled(attach: &Attach, modules: &[Arc<ModuleImage>]) {
    let names: Vec<_> = modules.iter().map(|module| module.name()).collect();
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

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|duration| !duration.is_zero()).ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| RATES.contains(rate));
    rate.ok_or_else(|| format!("expected samples a second, from {} to {}", RATES.start(), RATES.end()))
}
