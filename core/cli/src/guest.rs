//! Loads and starts a guest as the options say, and reports how it ended: what `wlprof GUEST` and `wlprof dump` share.

use super::available_plugins::Plugins;
use super::compiling::CompileProgress;
use super::failure::{CANNOT_RUN, FAILED, Failure, NO_GUEST};
use super::options::guest::GuestOptions;
use super::trap::Failures;
use super::{library, say};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use wlprof::heap::{NamedAllocator, Rate};
use wlprof::languages::{self, Choice, Library};
use wlprof::sampler::SamplerOptions;
use wlprof_module::ModuleError;
use wlprof_plugin::{self as plugin, Detection};
use wlprof_recording::Journal;
use wlprof_run::guest::{Allocators, Entry, Guest, LoadError, LoadOptions, Program};
use wlprof_run::profile::{Run, RunOptions};
use wlprof_show::escape;
use wlprof_wasi::{Exit, Stdio, WasiOptions};

/// What languages know of each of a guest's modules.
pub(super) type Programs = Vec<Option<Arc<dyn plugin::Program>>>;

/// A guest that can be started.
pub(super) struct LoadedGuest {
    pub(super) guest: Guest,
    pub(super) programs: Programs,
    /// The language of those, if there are any.
    pub(super) language: Option<String>,
    /// The library that the first module looks for.
    pub(super) library: Option<Library>,
    /// The functions that it exports and that are not called, if its main function is.
    pub(super) not_called: Vec<String>,
}

/// How a guest is to be loaded.
pub(super) struct LoadSettings<'a> {
    /// What is to be called of it.
    pub(super) entry: Entry<'a>,
    /// What it is to be called with.
    pub(super) arguments: &'a [String],
    /// Whose stacks it is to be looked for.
    pub(super) choice: &'a Choice,
    /// No language's own frames are wanted.
    pub(super) native: bool,
    /// It is for the epoch sampler.
    pub(super) epoch_interruption: bool,
    /// How what it allocates is to be profiled, if it is.
    pub(super) heap: Option<(Rate, Vec<NamedAllocator>)>,
    /// As little as possible is to be said.
    pub(super) quiet: bool,
}

/// Reads the guest, attaches its language and, if nothing is in the way of a run, compiles it.
pub(super) fn load(
    options: &GuestOptions,
    plugins: &Plugins,
    loading: &LoadSettings<'_>,
) -> Result<LoadedGuest, Failure> {
    let path = Path::new(&options.guest_and_arguments[0]);
    let wasmtimes = options.wasmtime.load_options(loading.entry)?;
    let how = LoadOptions {
        debug_file: options.debug_file.clone(),
        epoch_interruption: loading.epoch_interruption,
        no_cache: options.no_cache,
        preloads: options.preloads.clone(),
        ..wasmtimes
    };
    let program = Program::read(path, &how).map_err(|error| cannot_load(path, &error))?;
    if loading.entry == Entry::Handler && program.image().is_some() {
        let message = "it is a core module; `wlprof serve` serves components with a `wasi:http` handler";
        return Err(Failure::new(CANNOT_RUN, format!("{}: {message}", path.display())));
    }
    let checked = program.check(loading.entry, loading.arguments);
    let chosen = languages::choose_each(loading.choice, &plugins.languages(), program.name(), &program.modules());
    if let Err(error) = checked {
        // What is known of its language may say why it does not run.
        chosen.iter().flat_map(|chosen| &chosen.notes).for_each(|note| print_note(note));
        return Err(cannot_load(path, &error));
    }
    let chosen = chosen.map_err(|error| {
        // A plugin that fails does not know its guests.
        let failures = plugins.failures(&[]);
        if failures.is_empty() { Failure::new(CANNOT_RUN, error) } else { Failure::new(FAILED, failures.join("\n")) }
    })?;
    let mut notes = chosen.notes;
    if options.invoke.is_none() {
        notes.extend(program.note_without_main());
    }
    if *loading.choice != Choice::Native {
        let languages = plugins.languages();
        for (name, image) in program.preloads() {
            let known = languages.iter().find(|language| matches!(language.detect(image), Detection::Yes(_)));
            notes.extend(known.map(|language| {
                let language = language.name();
                format!("{name} is given with --preload: what it has of {language} is shown as wasm frames, for a language is looked for in the guest alone")
            }));
        }
    }
    if *loading.choice == Choice::Auto {
        notes.extend(program.image().into_iter().flat_map(|image| plugins.strangers(image)));
        if chosen.programs.iter().all(Option::is_none) {
            notes.extend(
                program.image().and_then(|image| languages::note_of_unwalked_interpreter(image, &plugins.languages())),
            );
        }
    }
    // What the language's runtime counts itself is read, and its functions are left as they are.
    let counts_itself = |rate: Rate| {
        chosen.programs.iter().flatten().any(|program| !program.switch_heap_profiler_on(rate.get()).is_empty())
    };
    let heap = loading.heap.clone().filter(|(rate, _)| loading.native || !counts_itself(*rate));
    let first = chosen.programs.first().and_then(Option::as_deref);
    let heap = heap.as_ref().map(|(_, named)| Allocators { named, program: first });
    // Of a reactor a note says so in any case.
    let has_main = options.invoke.is_none() && program.note_without_main().is_none();
    let not_called = if has_main { program.other_functions() } else { Vec::new() };
    let compiling = CompileProgress::begin(path, &program, !options.no_cache, loading.quiet);
    let mut guest = program.compile(loading.entry, heap).map_err(|error| cannot_load(path, &error))?;
    compiling.end();
    guest.notes.extend(notes);
    let failures = plugins.failures(&guest.notes);
    guest.notes.extend(failures);
    // Native frames alone are wanted; the library that a named language brings is needed all the same.
    let (programs, language) = if loading.native { (Vec::new(), None) } else { (chosen.programs, chosen.language) };
    Ok(LoadedGuest { guest, programs, language, library: chosen.library, not_called })
}

/// Starts the guest with these arguments, its name not among them, and records what is sampled into what `journal` gives
/// at the last moment before it begins. `library` is what the guest looks for; it gets it if it is walked, or if the user
/// says what language it is in.
pub(super) fn start(
    options: &GuestOptions,
    guest: &Guest,
    library: Option<Library>,
    arguments: &[String],
    programs: Programs,
    sampler: Option<SamplerOptions>,
    journal: impl FnOnce() -> Result<Journal, Failure>,
) -> Result<Run, Failure> {
    let mut wasi = wasi(options, guest, arguments);
    let is_named = Choice::from(options.language.as_str()) != Choice::Auto;
    if let Some(library) = library.filter(|_| is_named || sampler.is_some()) {
        let path = Path::new(&options.guest_and_arguments[0]);
        wasi.directories.extend(library::beside(path, &library, &options.directories));
    }
    let run = RunOptions { wasi, invoke: options.invoke.clone(), sampler };
    // Said here, a folder that cannot be opened is a wrong option and not a guest that cannot run.
    run.wasi.build().map_err(|error| Failure::new(FAILED, format!("{error:#}")))?;
    Run::start_recording(journal()?, guest, programs, run).map_err(|error| Failure::new(FAILED, format!("{error:#}")))
}

/// Prints what there is to say of a guest.
pub(super) fn print_notes(guest: &Guest) {
    guest.notes.iter().for_each(|note| print_note(note));
}

fn print_note(note: &str) {
    say::line(format_args!("note: {}", escape::single_line(note)));
}

/// The code that wlprof ends with after the guest.
pub(super) fn exit_code(exit: &Exit) -> u8 {
    exit.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(CANNOT_RUN)
}

pub(super) fn cannot_load(path: &Path, error: &LoadError) -> Failure {
    if !error.is_not_found() {
        let is_option = matches!(error, LoadError::Module(ModuleError::DebugFile(_)));
        return Failure::new(if is_option { FAILED } else { CANNOT_RUN }, error);
    }
    let hint = match path.to_str() {
        // What perf, samply and wasmtime call it.
        Some("run" | "record") => "to run a guest give its path alone: wlprof [OPTIONS] GUEST [ARGS]",
        _ => "give the path of a .wasm or .wat file",
    };
    Failure::new(NO_GUEST, format!("{error}; {hint}"))
}

/// The guest's arguments, without its name.
pub(super) fn arguments(options: &GuestOptions) -> Result<Vec<String>, Failure> {
    let text = |argument: &std::ffi::OsString| {
        argument.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::new(FAILED, format!("the argument {argument:?} is not UTF-8, and WASI passes nothing else"))
        })
    };
    options.guest_and_arguments[1..].iter().map(text).collect()
}

/// The variables that `--env` names.
pub(super) fn environment(options: &[String]) -> Vec<(String, String)> {
    let variable = |variable: &String| match variable.split_once('=') {
        Some((name, value)) => Some((name.to_owned(), value.to_owned())),
        None => std::env::var(variable).ok().map(|value| (variable.clone(), value)),
    };
    options.iter().filter_map(variable).collect()
}

pub(super) fn wasi(options: &GuestOptions, guest: &Guest, arguments: &[String]) -> WasiOptions {
    let own = std::iter::once(options.argv0.clone().unwrap_or_else(|| guest.name.clone()));
    let rest = arguments.iter().cloned();
    let inherits = guest.flags.wasi.inherit_env == Some(true);
    let inherited = inherits.then(std::env::vars_os).into_iter().flatten();
    let inherited = inherited.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    WasiOptions {
        arguments: own.chain(rest).collect(),
        environment: inherited.chain(environment(&options.environment)).collect(),
        directories: options.directories.clone(),
        stdio: Stdio::Inherit,
        flags: guest.flags.clone(),
    }
}

/// Says how the guest ended where that is not for its exit code to say.
pub(super) fn report_exit(exit: &Exit, guest: &Guest, options: &GuestOptions) -> Result<(), Failure> {
    match exit {
        Exit::Returned(results) => {
            for result in results {
                // As `wasmtime run --invoke`: the results are the guest's output.
                let _ = writeln!(std::io::stdout(), "{result}");
            }
            Ok(())
        }
        Exit::Code(_) => Ok(()),
        Exit::Trapped(error) => {
            let text = format!("wlprof: {} {}", guest.name, Failures::of(&guest.code).how_it_failed(error));
            say::line(format_args!("{}", escape::multi_line(&text)));
            Ok(())
        }
        Exit::NotCallable(error) => Err(Failure::new(
            CANNOT_RUN,
            format!("{}: {error:#}", Path::new(&options.guest_and_arguments[0]).display()),
        )),
    }
}
