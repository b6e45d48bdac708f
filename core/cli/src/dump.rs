//! `wlprof dump GUEST`: runs the guest and shows its stacks when asked, as Go shows them when a program panics.

#[cfg(target_os = "linux")]
use super::attach;
use super::available_plugins::Plugins;
use super::failure::{FAILED, Failure};
use super::guest::{self, LoadedGuest};
use super::interrupt::Signals;
use super::options::guest::GuestOptions;
use super::{interrupt, say, thread_stacks};
use clap::Args;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wlprof::profiler::Profiler;
use wlprof::sampler::{Dump as Stacks, ImportWatch, SamplerKind, SamplerOptions};
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;
use wlprof_recording::Journal;
use wlprof_run::guest::{Entry, Guest};
use wlprof_run::profile::RunEnd;
use wlprof_show::escape;
use wlprof_symbols::Symbols;

/// Ticks a second: how soon a busy guest is read when a dump is asked for.
const RATE_HZ: f64 = 100.0;

/// Options of `wlprof dump`.
#[derive(Args)]
#[cfg_attr(target_os = "linux", command(mut_arg("guest_and_arguments", |guest| guest.required(false).required_unless_present("pid"))))]
pub(super) struct Dump {
    /// Show the stacks of a process that runs already, and run no guest: `wlprof ps` lists those that run Wasmtime
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "PID", conflicts_with_all = ["dump_at", "at_imports", "guest_and_arguments"])]
    pub(super) pid: Option<i32>,
    /// File that a guest of the process was compiled from; may repeat. Files that the process names are found without it
    #[cfg(target_os = "linux")]
    #[arg(long = "guest", value_name = "FILE", requires = "pid")]
    pub(super) files: Vec<std::path::PathBuf>,
    /// Show every thread of the guest's language (goroutine), with what it waits for, instead of the running stack alone
    #[arg(long, visible_alias = "goroutines")]
    pub(super) threads: bool,
    /// Show the stacks this long after the guest began; may repeat
    #[arg(long = "dump-at", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(super) dump_at: Vec<f64>,
    /// Show the stacks where the guest calls this import, as `fd_write` or `wasi_snapshot_preview1.fd_write`; may repeat. The
    /// guest goes on when they are printed
    #[arg(long = "at-import", value_name = "NAME")]
    pub(super) at_imports: Vec<String>,
    /// How many calls of them to show, the first ones
    #[arg(long, value_name = "CALLS", default_value_t = 20, requires = "at_imports")]
    pub(super) at_import_limit: u64,
    #[command(flatten)]
    pub(super) guest: GuestOptions,
}

/// Runs the guest and gives its exit code.
pub(super) fn run(dump: &Dump) -> Result<u8, Failure> {
    #[cfg(target_os = "linux")]
    if let Some(pid) = dump.pid {
        let (stacks, images) = attach::dump(pid, &dump.files)?;
        // No guest has standard output.
        return say::print(text(&stacks, &mut Symbols::new(&images, Vec::new()), dump.threads).as_bytes()).map(|()| 0);
    }
    let fail = |error: io::Error| Failure::new(FAILED, error);
    let arguments = guest::arguments(&dump.guest)?;
    let (kind, _) = SamplerKind::Signal
        .resolve()
        .map_err(|error| Failure::new(FAILED, format!("{error:#}; a dump cannot be taken without it")))?;
    let choice = dump.guest.language.as_str().into();
    let plugins = Plugins::for_run(&dump.guest.plugins, &choice)?;
    let loading = guest::LoadSettings {
        entry: Entry::function_or_main(dump.guest.invoke.as_deref()),
        heap: None,
        arguments: &arguments,
        choice: &choice,
        native: false,
        epoch_interruption: false,
        quiet: false,
    };
    let LoadedGuest { guest, programs, library, .. } = guest::load(&dump.guest, &plugins, &loading)?;
    guest::print_notes(&guest);
    let printer = Arc::new(Printer::new(dump.threads, &guest));
    let import_watch = watch(dump, &guest, &printer)?;
    let sampler = SamplerOptions { kind, import_watch: import_watch.clone(), ..SamplerOptions::at_rate(RATE_HZ) };
    // Before the guest runs: from here on Ctrl-\ no longer ends the process.
    let mut interrupts = Signals::that_ask().map_err(fail)?;
    interrupt::note_if_ignored();
    let journal = || Ok(Journal::default());
    let run = guest::start(&dump.guest, &guest, library, &arguments, programs, Some(sampler), journal)?;
    let (interrupted, profiler) = (printer.clone(), run.profiler());
    let by_signal = move || {
        loop {
            interrupts.wait();
            interrupted.dump(profiler.as_ref());
        }
    };
    std::thread::Builder::new().name("wlprof signals".into()).spawn(by_signal).map_err(fail)?;
    let (mut times, started, timed, profiler) = (dump.dump_at.clone(), Instant::now(), printer.clone(), run.profiler());
    times.sort_by(f64::total_cmp);
    let by_time = move || {
        for time in times {
            std::thread::sleep(Duration::from_secs_f64(time).saturating_sub(started.elapsed()));
            timed.dump(profiler.as_ref());
        }
    };
    std::thread::Builder::new().name("wlprof timer".into()).spawn(by_time).map_err(fail)?;
    let ended = run.wait();
    // What was read is printed before this ends.
    drop(printer.symbols.lock());
    let RunEnd::Exit(exit) = ended else { return Err(Failure::new(FAILED, "the run was interrupted")) };
    let notes = run.finish().map(|finished| finished.meta.notes).unwrap_or_default();
    for note in notes.iter().filter(|note| !guest.notes.contains(note)) {
        say::line(format_args!("note: {}", escape::single_line(note)));
    }
    plugins.print_failures(&[notes, guest.notes.clone()].concat());
    guest::report_exit(&exit, &guest, &dump.guest)?;
    match (import_watch.map(|watch| watch.calls()), printer.asked.load(Ordering::SeqCst)) {
        (Some(0), _) => {
            let message = format!("note: the guest did not call {}", dump.at_imports.join(", "));
            say::line(format_args!("{}", escape::single_line(&message)));
        }
        (Some(calls), _) if calls > dump.at_import_limit => {
            let more = calls - dump.at_import_limit;
            say::line(format_args!("note: {more} more of these calls are not shown; --at-import-limit has them shown"));
        }
        (None, 0) => {
            let message = "note: the guest ended before its stacks were asked for: press Ctrl-\\ while it runs, or give a \
                           time with --dump-at";
            say::line(format_args!("{message}"));
        }
        _ => {}
    }
    Ok(guest::exit_code(&exit))
}

/// What the calls that the user wants to see are watched with; `None` if that is none.
fn watch(dump: &Dump, guest: &Guest, printer: &Arc<Printer>) -> Result<Option<Arc<ImportWatch>>, Failure> {
    let mut functions = Vec::new();
    let mut names = Vec::new();
    for wanted in &dump.at_imports {
        let before = functions.len();
        for (module, image) in (0..).zip(&guest.code.images) {
            for (index, import) in (0..).zip(image.function_imports()) {
                let own = format!("{}.{}", import.module, import.name);
                let name = image.import_name(index).unwrap_or_else(|| own.clone());
                if [&import.name, &own, &name].contains(&wanted) {
                    functions.push((module, index));
                    names.push(name);
                }
            }
        }
        if functions.len() == before {
            let imports = guest.code.images.iter().flat_map(|image| image.function_imports());
            let imports: Vec<&str> = imports.map(|import| import.name.as_str()).collect();
            let message = format!("--at-import {wanted}: {} imports {}", guest.name, imports.join(", "));
            return Err(Failure::new(FAILED, message));
        }
    }
    if functions.is_empty() {
        return Ok(None);
    }
    let printer = printer.clone();
    let tell = move |function: usize, number, stacks| {
        printer.print(&format!("call {number}, {}:\n", escape::single_line(&names[function])), &stacks);
    };
    Ok(Some(Arc::new(ImportWatch::new(functions, dump.at_import_limit, tell))))
}

/// Takes dumps and prints them, one at a time.
struct Printer {
    all: bool,
    images: Vec<Arc<ModuleImage>>,
    /// Made when first needed.
    symbols: Mutex<Option<Symbols>>,
    asked: AtomicU64,
}

impl Printer {
    fn new(all: bool, guest: &Guest) -> Self {
        Self { all, images: guest.images(), symbols: Mutex::new(None), asked: AtomicU64::new(0) }
    }

    /// Asks for a dump and prints it.
    fn dump(&self, profiler: Option<&Profiler>) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut symbols = self.symbols.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(profiler) = profiler else { return };
        match profiler.dump() {
            Ok(stacks) => self.print_with(&mut symbols, "", &stacks),
            Err(reason) => say::line(format_args!("wlprof: no stacks: {reason}")),
        }
    }

    /// Prints what was read, below a heading of whole lines.
    fn print(&self, heading: &str, stacks: &Stacks) {
        self.print_with(&mut self.symbols.lock().unwrap_or_else(PoisonError::into_inner), heading, stacks);
    }

    fn print_with(&self, symbols: &mut Option<Symbols>, heading: &str, stacks: &Stacks) {
        let symbols = symbols.get_or_insert_with(|| Symbols::new(&self.images, Vec::new()));
        let text = text(stacks, symbols, self.all);
        say::text(&escape::multi_line(&format!("{heading}{text}")));
    }
}

/// The threads of `stacks` that run, or all.
fn text(stacks: &Stacks, symbols: &mut Symbols, all: bool) -> String {
    let text = thread_stacks::text(stacks, symbols, |thread| all || thread.is_running);
    if !text.is_empty() {
        return text;
    }
    match stacks.threads.len() {
        0 => "nothing is running\n".to_owned(),
        waiting => format!("nothing is running, {waiting} wait (--threads shows them)\n"),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let range = 0.0..=1e6;
    text.parse().ok().filter(|seconds| range.contains(seconds)).ok_or_else(|| "expected 0 to 1000000".into())
}
