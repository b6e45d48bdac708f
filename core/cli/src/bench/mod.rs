//! `wlprof bench`: runs guests many times and writes how long each run took, as the microbenchmark runner of Faasm does.

mod profiles;
mod results;
mod runs;
mod spec;

use super::compiling::CompileProgress;
use super::failure::{CANNOT_RUN, FAILED, Failure};
use super::guest::{cannot_load, environment};
use super::os::Readers;
use super::output_file::OutputFile;
use super::progress::Spinner;
use super::{interrupt, library, output, say};
use clap::Args;
use profiles::{Profile, profile_path};
use results::{Results, table};
use runs::Runs;
use spec::Row;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wlprof::languages::{self, Choice};
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_run::guest::{Entry, Guest, LoadError, LoadOptions, Program};
use wlprof_show::escape;
use wlprof_wasi::{Directory, Flags, Stdio, WasiOptions};

/// As large as the stack of a guest that is run alone.
const STACK_SIZE: usize = 8 << 20;

/// What became of a run.
struct Times {
    /// The code that `wasmtime run` ends with, or the results of the function that was named.
    returned: String,
    failed: bool,
    execution: Duration,
    /// What it took to make another instance afterwards.
    reset: Duration,
}

/// A guest that rows of the spec run.
struct CompiledGuest {
    guest: Guest,
    directories: Vec<Directory>,
}

/// A row with what it runs.
struct PreparedRow {
    row: Row,
    invoke: Option<String>,
    arguments: Vec<String>,
}

/// Options of `wlprof bench`.
#[derive(Debug, Args)]
pub(super) struct Bench {
    /// Write a profile of all runs of a line beside OUT, as OUT.row3-GUEST.json; the runs are then some percent slower
    #[arg(long)]
    pub(super) profile: bool,
    /// Compile guests afresh instead of taking them from Wasmtime's cache
    #[arg(long)]
    pub(super) no_cache: bool,
    /// Give the guests a folder; may repeat
    #[arg(long = "dir", value_name = "HOST[::GUEST]")]
    pub(super) directories: Vec<Directory>,
    /// Give the guests an environment variable, or pass on one of this process; may repeat
    #[arg(long = "env", value_name = "K[=V]")]
    pub(super) environment: Vec<String>,
    /// What to run: lines of guest,export-or-arguments,runs,input. The second field is an exported function and its
    /// parameters, or else the guest's arguments; the last is what it reads from standard input
    #[arg(value_name = "SPEC.csv")]
    pub(super) spec: PathBuf,
    /// Where to write a line for each run
    #[arg(value_name = "OUT.csv")]
    pub(super) out: PathBuf,
}

/// Runs what the spec says and writes how long it took.
pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(FAILED, error);
    let cannot = |path: &Path, error: io::Error| Failure::new(FAILED, format!("{}: {error}", path.display()));
    interrupt::survive_large_files().map_err(|error| failed(&error))?;
    let sampler = bench.profile.then(sampler_options).transpose()?;
    let spec = std::fs::read(&bench.spec).map_err(|error| cannot(&bench.spec, error))?;
    let rows = spec::read(&spec).map_err(|errors| told(&bench.spec, &errors, FAILED))?;
    let (rows, guests) = prepare(rows, bench, &sampler)?;
    let mut profiles = Vec::new();
    for (index, PreparedRow { row, .. }) in rows.iter().enumerate() {
        let path = profile_path(&bench.out, index + 1, Path::new(&row.guest));
        profiles.push(sampler.as_ref().map(|sampler| Profile::open(path, sampler.clone())).transpose()?);
    }
    let out = created(&bench.out).map_err(|error| cannot(&bench.out, error))?;
    let mut results = Results::begin(out).map_err(|error| cannot(&bench.out, error))?;
    let mut done = Vec::new();
    for (prepared, profile) in rows.into_iter().zip(profiles) {
        let PreparedRow { row, invoke, arguments } = prepared;
        let CompiledGuest { guest, directories } = &guests[&row.guest];
        let spinner = Spinner::new(format!("running {}", escape::single_line(&row.guest)));
        let wasi = WasiOptions {
            arguments: std::iter::once(guest.name.clone()).chain(arguments).collect(),
            environment: environment(&bench.environment),
            directories: directories.clone(),
            stdio: Stdio::Input(row.input.clone().into_bytes()),
            flags: Flags::default(),
        };
        let profile = profile.map(|profile| profile.begin(guest, &wasi)).transpose()?;
        let runs = Runs { guest, wasi, invoke, profiler: profile.as_ref().map(profiles::Begun::profiler) };
        let mut all = Vec::new();
        let mut unwritten = None;
        let each = |times: Times| {
            if let Err(error) = results.add(&row, &times) {
                unwritten = Some(error);
                wasmtime::bail!("a result was not written");
            }
            all.push(times);
            Ok(())
        };
        let ran = on_guests_thread(|| runs.run(row.runs, each)).map_err(|error| failed(&error))?;
        if let Some(error) = unwritten {
            // Not the guest's fault.
            return Err(cannot(&bench.out, error));
        }
        ran.map_err(|error| Failure::new(CANNOT_RUN, format!("{}: {error:#}", row.guest)))?;
        drop(spinner);
        profile.map_or(Ok(()), |profile| profile.finish(guest))?;
        done.push((row, all));
    }
    // Nobody may be reading it.
    let _ = io::stdout().write_all(table(&done).as_bytes());
    say::line(format_args!("wrote {}", escape::single_line(&bench.out.to_string_lossy())));
    Ok(())
}

/// The file of results, in its place at once: each is in it when its run is over, whatever becomes of later ones. A link at its name
/// is replaced, not followed.
fn created(path: &Path) -> io::Result<File> {
    let file = OutputFile::create(&output::real_path(path)?, Readers::AsUsual)?;
    let results = file.file().try_clone()?;
    file.put_in_place().map_err(io::Error::other)?;
    Ok(results)
}

/// Looks whether all rows can be run, and compiles each guest once.
fn prepare(
    rows: Vec<Row>,
    bench: &Bench,
    sampler: &Option<SamplerOptions>,
) -> Result<(Vec<PreparedRow>, BTreeMap<String, CompiledGuest>), Failure> {
    let how = LoadOptions {
        epoch_interruption: sampler.as_ref().is_some_and(|sampler| sampler.kind == SamplerKind::Epoch),
        no_cache: bench.no_cache,
        ..LoadOptions::default()
    };
    let (mut prepared, mut guests, mut errors, mut code) = (Vec::new(), BTreeMap::new(), Vec::new(), FAILED);
    for row in rows {
        let mut one = || -> Result<PreparedRow, LoadError> {
            let path = Path::new(&row.guest);
            let program = Program::read(path, &how)?;
            let mut arguments: Vec<String> = row.call.split_whitespace().map(str::to_owned).collect();
            let is_exported = arguments.first().is_some_and(|first| program.exports_function(first));
            let invoke = is_exported.then(|| arguments.remove(0));
            program.check(Entry::function_or_main(invoke.as_deref()), &arguments)?;
            if invoke.is_none()
                && let Some(note) = program.note_without_main()
            {
                let exported = arguments.first().map(|first| format!(", and no function {first} either"));
                errors.push((row.line, format!("{note}{}", exported.unwrap_or_default())));
            }
            if !guests.contains_key(&row.guest) {
                guests.insert(row.guest.clone(), compiled(program, path, bench)?);
            }
            Ok(PreparedRow { row: row.clone(), invoke, arguments })
        };
        match one() {
            Ok(row) => prepared.push(row),
            Err(error) => {
                let failure = cannot_load(Path::new(&row.guest), &error);
                code = failure.code;
                errors.push((row.line, failure.message));
            }
        }
    }
    if errors.is_empty() { Ok((prepared, guests)) } else { Err(told(&bench.spec, &errors, code)) }
}

fn compiled(program: Program, path: &Path, bench: &Bench) -> Result<CompiledGuest, LoadError> {
    let chosen = program.image().map(|image| languages::choose(&Choice::Auto, languages::BUILT_IN, image));
    let library = chosen.and_then(|chosen| chosen.ok()?.library);
    let compiling = CompileProgress::begin(path, &program, true, true);
    let guest = program.compile(Entry::Main, None)?;
    compiling.end();
    let beside = library.and_then(|library| library::beside(path, &library, &bench.directories));
    let directories = bench.directories.iter().cloned().chain(beside).collect();
    Ok(CompiledGuest { guest, directories })
}

fn sampler_options() -> Result<SamplerOptions, Failure> {
    let mut options = SamplerOptions::default();
    let (kind, note) = options.kind.resolve().map_err(|error| Failure::new(FAILED, format!("{error:#}")))?;
    note.iter().for_each(|note| say::line(format_args!("note: {}", escape::single_line(note))));
    options.kind = kind;
    Ok(options)
}

/// All that is wrong with the lines of a spec.
fn told(spec: &Path, errors: &[(u64, String)], code: u8) -> Failure {
    let lines = errors.iter().map(|(line, error)| format!("{}:{line}: {error}", spec.display()));
    Failure::new(code, lines.collect::<Vec<_>>().join("\nwlprof: "))
}

/// Does `work` on a thread as guests have it.
fn on_guests_thread<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("guest".into()).stack_size(STACK_SIZE);
        let thread = thread.spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the guest's thread panicked"))
    })
}
