//! `wlprof serve GUEST`: serves a component that answers requests, as `wasmtime serve` does, and profiles it by request.
//!
//! # Accuracy
//! A component of WASI 0.2 answers each request in a store of its own, whose samples are that request's. One of WASI 0.3 answers many in one
//! store, several at a time: its samples are of all kinds of requests that the store has answered, unless
//! `--max-instance-reuse-count=1` gives each a store. A recording grows with the requests that are sampled: a server that runs for days is looked
//! at with `--listen`, which keeps nothing.
//!
//! # Overhead
//! That of a profile at the same rate, and for each store what it takes to find its instances: some microseconds, with an interpreter
//! some tens.
//!
//! # Security
//! Whoever can connect runs the guest, and whoever can connect to `--shutdown-addr` ends the server. Paths and methods of requests are in profiles, with what looks like a number or a key left out; there are
//! bounds to how many kinds are told apart.

mod connections;
mod headers;
mod kinds;
mod serving;
mod stores;
mod totals;
mod turns;

use super::arguments::Arguments;
use super::available_plugins::Plugins;
use super::failure::{FAILED, Failure};
use super::guest::{self, LoadedGuest};
use super::interrupt::{self, Interrupts};
use super::live::{self, Live};
use super::live_guest::OwnGuest;
use super::misplaced::options_behind;
use super::options::guest::GuestOptions;
use super::options::output::FramesChoice;
use super::options::profiling::Profiling;
use super::options::sampling::ClockChoice;
use super::pushing::{self, RunPush};
use super::run_outputs::{self, ProfileOf, RunOutputs};
use super::source_folders;
use super::window_profiles::GuestView;
use clap::{Args, CommandFactory};
use headers::Headers;
use serving::{Ports, ServeOutcome};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use totals::Totals;
use wasmtime_cli_flags::opt::WasmtimeOptionValue;
use wlprof::languages::Choice;
use wlprof::sampler::SamplerKind;
use wlprof_recording::Clock;
use wlprof_run::guest::Entry;
use wlprof_run::profile::{Interrupter, profiler};
use wlprof_wasi::{Stdio, WasiOptions};

/// Options of `wlprof serve`.
#[derive(Args)]
#[command(mut_arg("invoke", |invoke| invoke.hide(true)), mut_arg("argv0", |argv0| argv0.hide(true)), mut_arg("preloads", |preloads| preloads.hide(true)))]
pub(super) struct Serve {
    #[command(flatten)]
    profiling: Profiling,
    /// Where to serve
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    addr: SocketAddr,
    /// End, as at Ctrl-C, when somebody connects to this address
    #[arg(long, value_name = "ADDR:PORT")]
    shutdown_addr: Option<SocketAddr>,
    /// End when so many requests have been answered [default: at Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// How many requests an instance answers before it goes [default: 1 with WASI 0.2, 128 with WASI 0.3]
    #[arg(long, value_name = "N")]
    max_instance_reuse_count: Option<usize>,
    /// How many requests an instance of WASI 0.3 answers at a time [default: 16]
    #[arg(long, value_name = "N")]
    max_instance_concurrent_reuse_count: Option<usize>,
    /// How long an instance waits for another request before it goes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    idle_instance_timeout: Duration,
    /// How many requests at a time have not begun to be answered; more wait
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_concurrent_requests: usize,
    /// How many connections there are at a time; more wait
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_concurrent_connections: usize,
    /// Give all requests this header, in the place of a client's; @FILE has one a line; may repeat
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Write the guest's output as it is, without saying before each line which instance wrote it
    #[arg(long)]
    no_logging_prefix: bool,
    #[command(flatten)]
    guest: GuestOptions,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    Duration::parse(Some(text)).map_err(|error| error.to_string())
}

/// Serves the guest. The exit code is 0 if it served until it was told to end.
pub(super) fn run(serve: &Serve) -> Result<u8, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(FAILED, error);
    serve.check().map_err(|message| failed(&message))?;
    interrupt::survive_large_files().map_err(|error| failed(&error))?;
    let Profiling { output, memory, listen, pushing: push_options, .. } = &serve.profiling;
    let (sampler, fallback) = serve.profiling.sampler(Clock::Cpu)?.unzip();
    let by_epochs = sampler.as_ref().is_some_and(|sampler| sampler.kind == SamplerKind::Epoch);
    let takes_turns = by_epochs || serve.guest.wasmtime.timeout().is_some();
    let listener = listen.map(live::listen).transpose()?;
    let is_only_shown = serve.profiling.is_only_shown();
    let wanted = sampler.as_ref().filter(|_| !is_only_shown);
    let mut outputs = wanted.map(|_| RunOutputs::open(output, serve.profiling.selection())).transpose()?;
    let sources = source_folders::named(output, &serve.guest.directories)?;
    // While the guest runs none of its own, which it can change.
    let named_sources = source_folders::named(output, &[])?;
    let ports = Ports::bind(serve)?;
    let headers = Headers::read(&serve.headers)?;
    let native = output.frames == FramesChoice::Native || sampler.is_none();
    let choice = match serve.guest.language.as_str().into() {
        Choice::Auto if native => Choice::Native,
        choice => choice,
    };
    let plugins = Plugins::for_run(&serve.guest.plugins, &choice)?;
    let loading = guest::LoadSettings {
        entry: Entry::Handler,
        arguments: &[],
        choice: &choice,
        native,
        epoch_interruption: takes_turns,
        heap: memory.heap(),
        quiet: output.quiet,
    };
    let LoadedGuest { mut guest, programs, language, .. } = guest::load(&serve.guest, &plugins, &loading)?;
    guest.notes.extend(fallback.flatten());
    // As under `wasmtime serve`: whom requests call has no arguments.
    let wasi = WasiOptions { arguments: Vec::new(), stdio: Stdio::Null, ..guest::wasi(&serve.guest, &guest, &[]) };
    // Said here, a folder that cannot be opened is a wrong option and no failure of each request.
    wasi.build().map_err(|error| failed(&format!("{error:#}")))?;
    let push = push_options.push(&guest.name, output.frames.view())?;
    let profiler = match sampler {
        Some(sampler) => {
            let journal = run_outputs::begin_journal(&mut outputs, listener.is_some() || push.is_some())?;
            let profiler = profiler(&guest, journal, programs, &wasi, guest.with_known_heap(sampler));
            Some(profiler.map_err(|error| failed(&format!("{error:#}")))?)
        }
        None => None,
    };
    let images = guest.images();
    let plugin_files: Vec<_> = language.iter().flat_map(|language| plugins.files_of(language)).collect();
    let profile = ProfileOf { images: &images, language, plugins: plugin_files, sources };
    let pushed = pushing::begin(push, profiler.as_ref(), output.quiet)?;
    let live = match (listener, &profiler) {
        (Some(listener), Some(profiler)) => {
            let shown = GuestView::of_run(&serve.profiling, &profile, named_sources, guest.hides_heap);
            let own = Arc::new(OwnGuest { profiler: profiler.clone(), images: images.clone() });
            let counter = pushed.as_ref().map(RunPush::counter);
            Some(Live::start(listener, own, vec![guest.name.clone()], shown, counter, output.quiet)?)
        }
        _ => None,
    };
    let totals = Arc::new(Totals::new(serve.requests));
    let (sender, events) = channel();
    let interrupts = Interrupts::default();
    if !output.quiet {
        interrupt::note_if_ignored();
    }
    // The first has it begin no more, the second wait no longer.
    let interrupter = Interrupter::of(sender.clone());
    interrupts.watch(move |signal| interrupter.interrupt(signal), 2).map_err(|error| failed(&error))?;
    let made = (totals.clone(), headers);
    let stop = serving::begin(serve, (&guest, takes_turns), wasi, profiler.clone(), made, ports, sender)?;
    let ended = serving::wait(&events, &stop);
    if let (Ok(ServeOutcome::InPart), Some(profiler)) = (&ended, &profiler) {
        profiler.halt_guests();
    }
    interrupts.run_is_over();
    live.into_iter().for_each(Live::end);
    pushed.into_iter().for_each(RunPush::end);
    if let Err(error) = ended {
        outputs.iter().for_each(RunOutputs::remove_forerunner);
        return Err(Failure::new(FAILED, format!("{error:#}")));
    }
    let (Some(profiler), Some(outputs)) = (profiler, outputs) else { return Ok(0) };
    let mut finished = profiler.finish();
    finished.meta.requests = totals.told();
    let (seen, written) = outputs.finish(finished, profile, &interrupts);
    // Plugins may end the process when they are told to let go of what they have: nothing else is left to do then.
    drop(profiler);
    plugins.print_failures(&seen);
    match interrupts.signal() {
        Some(signal) => {
            written.unwrap_or_else(|failure| failure.print());
            interrupt::die_of(signal)
        }
        None => written.map(|()| 0),
    }
}

impl Serve {
    /// Refuses what makes no sense.
    fn check(&self) -> Result<(), String> {
        self.profiling.check(&self.guest)?;
        let command = Arguments::command();
        let behind =
            command.find_subcommand("serve").and_then(|serve| options_behind(&self.guest.guest_and_arguments, serve));
        if let Some(behind) = behind {
            return Err(behind);
        }
        if self.guest.invoke.is_some() || self.guest.argv0.is_some() || self.guest.guest_and_arguments.len() > 1 {
            return Err("a served guest gets requests and no arguments: leave out --invoke, --argv0 and what stands behind the guest".into());
        }
        if self.profiling.output.code_format().is_some() {
            return Err("this format is for perf's samples of a command; serve writes profiles of its own".into());
        }
        if self.profiling.output.showing.off_cpu || self.profiling.sampling.clock == Some(ClockChoice::Wall) {
            return Err(
                "--off-cpu and --clock=wall are for threads that wait, and a request that waits is on no thread: how long requests take is in the table".into(),
            );
        }
        Ok(())
    }
}
