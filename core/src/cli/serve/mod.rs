//! `wlprof serve GUEST`: serves a component that answers requests, as `wasmtime serve` does, and profiles it by request.
//!
//! # Accuracy
//! A component of WASI 0.2 answers each request in a store of its own, whose samples are that request's. One of WASI 0.3 answers many in one
//! store, several at a time: its samples are of all kinds of requests that the store has answered, unless
//! `--max-instance-reuse-count=1` gives each a store.
//!
//! # Overhead
//! That of a profile at the same rate, and for each store what it takes to find its instances: some microseconds, with an interpreter
//! some tens.
//!
//! # Security
//! Whoever can connect runs the guest. Paths and methods of requests are in profiles, with what looks like a number or a key left out; there are
//! bounds to how many kinds are told apart.

mod connections;
mod kinds;
mod stores;
mod totals;

use super::arguments::{FramesChoice, GuestOptions, Output};
use super::available_plugins::Plugins;
use super::guest::{self, Loaded};
use super::interrupt::{self, Interrupts};
use super::run_outputs::{ProfileOf, RunOutputs};
use super::sampling::Sampling;
use super::{CANNOT_RUN, FAILED, Failure, say, source_folders};
use crate::guest::{Entry, Guest, Linked};
use crate::languages::Choice;
use crate::profile::{Ended, Interrupter, profiler};
use crate::profiler::Profiler;
use crate::recording::{Clock, Journal, Selection};
use crate::sampler::{SamplerKind, SamplerOptions};
use crate::wasi::{Exit, Stdio, WasiOptions};
use clap::Args;
use connections::{Bounds, Server};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use stores::{Reuse, Stores};
use tokio::sync::watch;
use totals::Totals;
use wasmtime_cli_flags::opt::WasmtimeOptionValue;

/// Options of `wlprof serve`.
#[derive(Args)]
#[command(mut_arg("invoke", |invoke| invoke.hide(true)), mut_arg("argv0", |argv0| argv0.hide(true)), mut_arg("preloads", |preloads| preloads.hide(true)))]
pub(super) struct Serve {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    sampling: Sampling,
    /// Where to listen
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    addr: SocketAddr,
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
    /// How many requests are answered at a time; more wait
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_concurrent_requests: usize,
    /// How many connections there are at a time; more wait
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_concurrent_connections: usize,
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
    let (sampler, fallback) = serve.sampler()?;
    let mut outputs = sampler.as_ref().map(|_| RunOutputs::open(&serve.output, serve.selection())).transpose()?;
    let sources = source_folders::named(&serve.output, &serve.guest.directories)?;
    let listener = TcpListener::bind(serve.addr);
    let listener = listener.map_err(|error| Failure::new(FAILED, format!("--addr {}: {error}", serve.addr)))?;
    let native = serve.output.frames == FramesChoice::Native || sampler.is_none();
    let choice = match serve.guest.language.as_str().into() {
        Choice::Auto if native => Choice::Native,
        choice => choice,
    };
    let plugins = Plugins::for_run(&serve.guest.plugins, &choice)?;
    let loading = guest::Loading {
        entry: Entry::Handler,
        arguments: &[],
        choice: &choice,
        native,
        epoch_interruption: sampler.as_ref().is_some_and(|sampler| sampler.kind == SamplerKind::Epoch),
        heap: None,
        quiet: serve.output.quiet,
    };
    let Loaded { mut guest, walkers, language, .. } = guest::load(&serve.guest, &plugins, &loading)?;
    guest.notes.extend(fallback);
    let wasi = WasiOptions { stdio: Stdio::Null, ..guest::wasi(&serve.guest, &guest, &[]) };
    // Said here, a folder that cannot be opened is a wrong option and no failure of each request.
    wasi.build().map_err(|error| failed(&format!("{error:#}")))?;
    let profiler = match (sampler, &mut outputs) {
        (Some(sampler), Some(outputs)) => {
            let journal: Journal = outputs.begin_journal()?;
            let profiler = profiler(&guest, journal, walkers, &wasi, sampler);
            Some(profiler.map_err(|error| failed(&format!("{error:#}")))?)
        }
        _ => None,
    };
    let images = guest.images();
    let totals = Arc::new(Totals::new(serve.requests));
    let serving = Serving::begin(serve, &guest, wasi, profiler.clone(), totals.clone(), listener)?;
    let interrupts = Interrupts::default();
    interrupts.watch(serving.interrupter.clone()).map_err(|error| failed(&error))?;
    let ended = serving.wait();
    interrupts.run_is_over();
    if let Err(error) = ended {
        outputs.iter().for_each(RunOutputs::remove_forerunner);
        return Err(Failure::new(FAILED, format!("{error:#}")));
    }
    let (Some(profiler), Some(outputs)) = (profiler, outputs) else { return Ok(0) };
    let mut finished = profiler.finish();
    finished.meta.requests = totals.told();
    let plugin_files: Vec<_> = language.iter().flat_map(|language| plugins.files_of(language)).collect();
    let profile = ProfileOf { images: &images, language, plugins: plugin_files, sources };
    let (walkers, seen, written) = outputs.finish(finished, profile, &interrupts);
    // Plugins may end the process when they are told to let go of what they have: nothing else is left to do then.
    drop(walkers);
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
    fn check(&self) -> Result<(), &'static str> {
        self.sampling.check()?;
        if self.guest.invoke.is_some() || self.guest.argv0.is_some() || self.guest.guest_and_arguments.len() > 1 {
            return Err("what is served is called with requests alone: leave out --invoke, --argv0 and arguments");
        }
        if self.output.code_format().is_some() {
            return Err("this format is for perf's samples of a command; serve writes profiles of its own");
        }
        if self.output.showing.names_memory() {
            return Err("--show is for memory, which serve does not profile");
        }
        if self.output.showing.off_cpu {
            return Err("--off-cpu shows where a thread waits, and a request that waits is on no thread");
        }
        if self.guest.wasmtime.sets_timeout() {
            return Err("-W timeout is not for serve: limit how long clients wait instead");
        }
        Ok(())
    }

    fn selection(&self) -> Selection {
        Selection { part: None, ..self.output.showing.selection(super::showing::ShowChoice::Time) }
    }

    /// How to sample, if that is to be done, and what to say of it.
    fn sampler(&self) -> Result<(Option<SamplerOptions>, Option<String>), Failure> {
        let Some(mut options) = self.sampling.options(Clock::Cpu) else { return Ok((None, None)) };
        let resolved = options.kind.resolve();
        let (kind, fallback) =
            resolved.map_err(|error| Failure::new(FAILED, format!("{error:#}; try --sampler=epoch")))?;
        options.kind = kind;
        Ok((Some(options), fallback))
    }
}

/// A guest that is served.
struct Serving {
    events: Receiver<Ended>,
    interrupter: Interrupter,
    stop: watch::Sender<bool>,
}

impl Serving {
    fn begin(
        serve: &Serve,
        guest: &Guest,
        wasi: WasiOptions,
        profiler: Option<Profiler>,
        totals: Arc<Totals>,
        listener: TcpListener,
    ) -> Result<Self, Failure> {
        let Some(Linked::Handler(handler)) = &guest.component else {
            return Err(Failure::new(CANNOT_RUN, "it is no component with a `wasi:http` handler"));
        };
        let failed = |error: std::io::Error| Failure::new(FAILED, error);
        let is_concurrent = handler.is_concurrent();
        let (few, many) = if is_concurrent { (16, 128) } else { (1, 1) };
        let reuse = Reuse {
            requests: serve.max_instance_reuse_count.unwrap_or(many),
            at_a_time: if is_concurrent { serve.max_instance_concurrent_reuse_count.unwrap_or(few) } else { 1 },
            idle: serve.idle_instance_timeout,
        };
        let (engine, handler, name) = (guest.engine.clone(), handler.clone(), guest.name.clone());
        let stores = Stores { engine, handler, name, wasi, profiler, reuse, says_which: !serve.no_logging_prefix };
        let bounds = Bounds { requests: serve.max_concurrent_requests, connections: serve.max_concurrent_connections };
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let (sender, events) = channel();
        let interrupter = Interrupter::of(sender.clone());
        let server = Server::new(stores, bounds, totals, stop.clone());
        std::thread::Builder::new()
            .name("wlprof serve".into())
            .spawn(move || {
                let exit = match server.run(listener, stopped) {
                    Ok(()) => Exit::Returned(Vec::new()),
                    Err(error) => Exit::NotCallable(error.into()),
                };
                // Nobody waits any more if it was interrupted twice.
                let _ = sender.send(Ended::Exit(exit));
            })
            .map_err(failed)?;
        if !serve.output.quiet {
            say::line(format_args!("serving at http://{address}/"));
        }
        Ok(Self { events, interrupter, stop })
    }

    /// Waits until as many requests have been answered as were wanted, or an interruption; and then for those that have begun.
    fn wait(&self) -> wasmtime::Result<()> {
        loop {
            match self.events.recv() {
                Ok(Ended::Interrupted(_)) => {
                    say::line(format_args!("waiting for requests that have begun; once more ends them"));
                    // If it does not hear of it, it has ended.
                    let _ = self.stop.send(true);
                }
                Ok(Ended::Exit(Exit::NotCallable(error))) => return Err(error),
                Ok(Ended::Exit(_)) => return Ok(()),
                Err(_) => wasmtime::bail!("the server panicked"),
            }
        }
    }
}
