//! `wlprof top`: runs a guest, or takes a process that runs already, and shows what is hot in it, in a table that refreshes.
//!
//! # Overhead
//! That of a profile at the same rate, and a process that names what was sampled, once for each picture: another processor's work
//! if there is one. Where naming takes long, pictures come less often.

mod display;
mod keys;
#[cfg(target_os = "linux")]
mod process;
mod rows;
mod screen;
mod snapshots;
#[cfg_attr(not(target_os = "linux"), path = "no_terminal.rs")]
mod terminal;

use super::available_plugins::Plugins;
use super::failure::{FAILED, Failure};
use super::guest::{self, LoadedGuest};
use super::interrupt::{self, Interrupts};
use super::live_guest::OwnGuest;
use super::options::formats;
use super::options::guest::GuestOptions;
use super::options::output::FramesChoice;
use super::options::sampling::Sampling;
use super::output::Target;
use super::source_folders;
use super::window_profiles::GuestView;
use clap::Args;
use display::{Display, Subject};
use screen::Heading;
use std::fmt::Display as Message;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terminal::{GuestStreams, Screen};
use wlprof::languages::Choice;
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_export::{self as export, Exporter};
use wlprof_recording::sources::SourceFolders;
use wlprof_recording::{Clock, Journal, Selection};
use wlprof_run::guest::Entry;
use wlprof_run::profile::{Run, RunEnd};
use wlprof_show::table::TableOptions;
use wlprof_wasi::Exit;

/// How often a signal is looked for once the guest has ended.
const LOOK: Duration = Duration::from_millis(50);
/// How long the screen may take to be given back once a signal has come: a terminal that is gone, or that nobody reads any more,
/// takes for ever.
const GIVEN_BACK: Duration = Duration::from_secs(2);
/// What a run is interrupted with that the user has seen enough of: no signal.
const ENOUGH: i32 = 0;

/// Arguments that say how a guest is run, and nothing of a process that runs already.
#[cfg(target_os = "linux")]
const OF_A_RUN: [&str; 15] = [
    "sampler",
    "guest_and_arguments",
    "language",
    "debug_file",
    "no_cache",
    "directories",
    "environment",
    "invoke",
    "preloads",
    "argv0",
    "opts_raw",
    "codegen_raw",
    "debug_raw",
    "wasm_raw",
    "wasi_raw",
];

/// Options of `wlprof top`.
#[derive(Args)]
#[cfg_attr(target_os = "linux", command(mut_arg("guest_and_arguments", |guest| guest.required(false).required_unless_present("pid"))))]
pub(super) struct Top {
    /// Show a process that runs already, and run no guest: `wlprof ps` lists those that run Wasmtime
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "PID", conflicts_with_all = OF_A_RUN)]
    pid: Option<i32>,
    /// File that a guest of the process was compiled from; may repeat. Files that the process names are found without it
    #[cfg(target_os = "linux")]
    #[arg(long = "guest", value_name = "FILE", requires = "pid")]
    files: Vec<PathBuf>,
    /// What the key w writes, of the whole run so far. The ending tells the format, as with -o of a run [default: profile.json]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Which frames to show
    #[arg(long, value_enum, default_value_t = FramesChoice::Guest)]
    frames: FramesChoice,
    /// Source files in this folder are in profiles that the key w writes; may repeat
    #[arg(long = "source-dir", value_name = "DIR")]
    source_dirs: Vec<PathBuf>,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    guest: GuestOptions,
}

/// Runs the guest, or samples the process, and gives the guest's exit code; 0 if the user ended it.
pub(super) fn run(top: &Top) -> Result<u8, Failure> {
    #[cfg(target_os = "linux")]
    if let Some(pid) = top.pid {
        return process::run(top, pid).map(|()| 0);
    }
    let failed = |error: &dyn Message| Failure::new(FAILED, error);
    let output = output(top)?;
    let arguments = guest::arguments(&top.guest)?;
    let sampler = sampler(top)?;
    let sources = source_folders::of_dirs(&top.source_dirs)?;
    let native = top.frames == FramesChoice::Native;
    let choice = match top.guest.language.as_str().into() {
        Choice::Auto if native => Choice::Native,
        choice => choice,
    };
    let plugins = Plugins::for_run(&top.guest.plugins, &choice)?;
    let loading = guest::LoadSettings {
        entry: Entry::function_or_main(top.guest.invoke.as_deref()),
        heap: None,
        arguments: &arguments,
        choice: &choice,
        native,
        epoch_interruption: sampler.kind == SamplerKind::Epoch,
        quiet: true,
    };
    let LoadedGuest { guest, programs, language, library, .. } = guest::load(&top.guest, &plugins, &loading)?;
    let screen = Screen::new().map_err(|error| failed(&error))?;
    let streams = GuestStreams::divert().map_err(|error| failed(&error))?;
    let journal = || Ok(Journal::of_windows());
    let run = guest::start(&top.guest, &guest, library, &arguments, programs, Some(sampler.clone()), journal)?;
    let interrupter = run.interrupter();
    Interrupts::default().watch(move |signal| interrupter.interrupt(signal), 1).map_err(|error| failed(&error))?;
    let profiler = run.profiler().ok_or_else(|| failed(&"nothing is sampled"))?;
    let shown = top.shown(language, &plugins, sources);
    let live = Arc::new(OwnGuest { profiler, images: guest.images() });
    let heading = Heading::new(&guest.name, &arguments);
    let subject = Subject { guest: live, heading, clock: sampler.clock, shown, output };
    let interrupter = run.interrupter();
    let display = Display::start(subject, screen, Arc::new(move |reason| interrupter.interrupt(reason)))?;
    let ended = wait(&run, &display);
    let shown = display.end(|| drop(streams));
    run.finish();
    shown.map_err(|error| failed(&error))?;
    match ended {
        RunEnd::Exit(exit) => {
            guest::report_exit(&exit, &guest, &top.guest)?;
            guest::print_notes(&guest);
            Ok(guest::exit_code(&exit))
        }
        RunEnd::Interrupted(ENOUGH) => Ok(0),
        RunEnd::Interrupted(signal) => interrupt::die_of(signal),
    }
}

impl Top {
    /// What is shown of a guest of this language, with the texts of `sources`.
    fn shown(&self, language: Option<String>, plugins: &Plugins, sources: SourceFolders) -> GuestView {
        GuestView {
            profiles_memory: false,
            plugins: language.iter().flat_map(|language| plugins.files_of(language)).collect(),
            language,
            sources,
            view: self.frames.view(),
            selection: Selection::default(),
            table: TableOptions::default(),
        }
    }
}

/// Waits until the guest has ended and the user has seen enough.
fn wait(run: &Run, display: &Display) -> RunEnd {
    let mut ended = run.wait();
    match &ended {
        RunEnd::Exit(exit) => display.guest_has_ended(how(exit)),
        RunEnd::Interrupted(_) => display.quit(),
    }
    let mut since = Instant::now();
    while !display.is_over() {
        if let RunEnd::Interrupted(signal) = ended
            && signal != ENOUGH
            && since.elapsed() > GIVEN_BACK
        {
            interrupt::die_of(signal);
        }
        if let Some(signal) = run.late_interruption() {
            display.quit();
            if signal != ENOUGH {
                (ended, since) = (RunEnd::Interrupted(signal), Instant::now());
            }
        }
        std::thread::sleep(LOOK);
    }
    ended
}

/// How the guest ended, for the heading.
fn how(exit: &Exit) -> String {
    match exit {
        Exit::Returned(_) => "returned".to_owned(),
        Exit::Code(code) => format!("ended with code {code}"),
        Exit::Trapped(_) => "trapped".to_owned(),
        Exit::NotCallable(_) => "cannot be run".to_owned(),
    }
}

/// What w writes. Tried here, so that a misspelt ending is told before the guest runs.
fn output(top: &Top) -> Result<(PathBuf, &'static dyn Exporter), Failure> {
    let Some(path) = &top.output else {
        let exporter = export::EXPORTERS[0];
        return Ok((formats::default_file(exporter).into(), exporter));
    };
    let exporter = export::by_path(path).ok_or_else(|| {
        let text = format!("{}: its ending tells no format (known: {})", path.display(), formats::endings());
        Failure::new(FAILED, text)
    })?;
    if exporter.companion_ending().is_some() {
        let text =
            format!("{} is two files, which `wlprof top` does not write; give -o another ending", exporter.name());
        return Err(Failure::new(FAILED, text));
    }
    Target::open(path, exporter)?;
    Ok((path.clone(), exporter))
}

fn sampler(top: &Top) -> Result<SamplerOptions, Failure> {
    top.sampling.check().map_err(|reason| Failure::new(FAILED, reason))?;
    let mut options = top
        .sampling
        .options(Clock::Cpu)
        .ok_or_else(|| Failure::new(FAILED, "there is nothing to show without samples; leave out --sampler=off"))?;
    let (kind, _) = options.kind.resolve().map_err(|error| Failure::new(FAILED, format!("{error:#}")))?;
    options.kind = kind;
    options.on_demand = true;
    Ok(options)
}
