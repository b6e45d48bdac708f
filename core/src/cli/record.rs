//! `wlprof GUEST`: runs the guest, samples it, writes the profile.

use super::arguments::Record;
use super::progress::{Bar, Spinner};
use super::{CANNOT_RUN, FAILED, Failure, NO_GUEST, escape, interrupt, output, say};
use crate::guest::{Exit, Guest, LoadError, LoadOptions, WasiOptions};
use crate::languages;
use crate::profile::{Ended, Run, RunOptions};
use crate::recording::Recording;
use crate::sampler::{Finished, SamplerKind};
use crate::symbols::symbolize;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Runs the guest and gives its exit code.
pub(super) fn run(record: &Record) -> Result<u8, Failure> {
    let targets = output::targets(&record.output)?;
    let path = Path::new(&record.guest_and_arguments[0]);
    let arguments = guest_arguments(record)?;
    let mut sampler = record.sampler_options();
    let mut fallback = None;
    if let Some(options) = &mut sampler {
        (options.kind, fallback) =
            options.kind.resolve().map_err(|error| Failure::new(FAILED, format!("{error:#}; try --sampler=epoch")))?;
    }
    let load = LoadOptions {
        debug_file: record.debug_file.clone(),
        epoch_interruption: sampler.as_ref().is_some_and(|sampler| sampler.kind == SamplerKind::Epoch),
        no_cache: record.no_cache,
    };
    let spinner = Spinner::new(format!("compiling {}", escape::single_line(&path.to_string_lossy())));
    let mut guest = Guest::load(path, &load).map_err(|error| cannot_load(path, &error))?;
    drop(spinner);

    guest.notes.extend(fallback);
    let mut walkers = Vec::new();
    for (_, image) in &guest.modules {
        let chosen = languages::choose(&record.language.as_str().into(), languages::BUILT_IN, &**image)
            .map_err(|error| Failure::new(CANNOT_RUN, error))?;
        walkers.push(chosen.walker);
        guest.notes.extend(chosen.notes);
    }
    let options = RunOptions { wasi: wasi(record, &guest, &arguments), invoke: record.invoke.clone(), sampler };
    // Said here, a folder that cannot be opened is a wrong option and not a guest that cannot run.
    options.wasi.build().map_err(|error| Failure::new(FAILED, format!("{error:#}")))?;
    let fail = |error: std::io::Error| Failure::new(FAILED, error);
    let run = Run::start(&guest, walkers, options).map_err(fail)?;
    if record.sampler_options().is_some() {
        interrupt::watch(run.interrupter()).map_err(fail)?;
    }
    let ended = run.wait();
    if let Ended::Exit(exit) = &ended {
        report_exit(exit, &guest, record)?;
    }
    let mut written = Ok(());
    if let Some(finished) = run.finish() {
        let recording = close(finished, &guest, arguments);
        written = output::write_all(&recording, targets, record.output.quiet);
    }
    match ended {
        Ended::Exit(exit) => {
            written.map(|()| exit.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(CANNOT_RUN))
        }
        Ended::Interrupted(signal) => {
            // Whoever sent the signal waits for a process that died of it, whatever else went wrong.
            written.unwrap_or_else(|failure| failure.print());
            interrupt::die_of(signal)
        }
    }
}

fn cannot_load(path: &Path, error: &LoadError) -> Failure {
    if !error.is_not_found() {
        let is_option = matches!(error, LoadError::DebugFile(_));
        return Failure::new(if is_option { FAILED } else { CANNOT_RUN }, error);
    }
    let hint = match path.to_str() {
        // What perf, samply and wasmtime call it.
        Some("run" | "record") => "; to run a guest give its path alone: wlprof [OPTIONS] GUEST [ARGS]",
        _ => "; give the path of a .wasm or .wat file",
    };
    Failure::new(NO_GUEST, format!("{error}{hint}"))
}

/// The guest's arguments, without its name.
fn guest_arguments(record: &Record) -> Result<Vec<String>, Failure> {
    let text = |argument: &std::ffi::OsString| {
        argument.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::new(FAILED, format!("the argument {argument:?} is not UTF-8, and WASI passes nothing else"))
        })
    };
    record.guest_and_arguments[1..].iter().map(text).collect()
}

fn wasi(record: &Record, guest: &Guest, arguments: &[String]) -> WasiOptions {
    let own = std::iter::once(guest.name.clone());
    let rest = arguments.iter().cloned();
    let environment = record.environment.iter().filter_map(|variable| match variable.split_once('=') {
        Some((name, value)) => Some((name.to_owned(), value.to_owned())),
        None => std::env::var(variable).ok().map(|value| (variable.clone(), value)),
    });
    WasiOptions {
        arguments: own.chain(rest).collect(),
        environment: environment.collect(),
        directories: record.directories.clone(),
        ..WasiOptions::default()
    }
}

/// Says how the guest ended where that is not for its exit code to say.
fn report_exit(exit: &Exit, guest: &Guest, record: &Record) -> Result<(), Failure> {
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
            let text = format!("wlprof: {} {}", guest.name, how_it_failed(error));
            say::line(format_args!("{}", escape::multi_line(&text)));
            Ok(())
        }
        Exit::NotCallable(error) => {
            Err(Failure::new(CANNOT_RUN, format!("{}: {error:#}", Path::new(&record.guest_and_arguments[0]).display())))
        }
    }
}

/// The reason first, then where. Not the error's own rendering: with `RUST_BACKTRACE` that shows Wasmtime's stack.
fn how_it_failed(error: &wasmtime::Error) -> String {
    let what = if error.is::<wasmtime::Trap>() { "trapped" } else { "failed" };
    let mut reasons: Vec<String> = error.chain().map(ToString::to_string).collect();
    // The outermost context of a trap is the wasm backtrace, of several lines.
    let place = if reasons.len() > 1 && reasons[0].contains('\n') { reasons.remove(0) } else { String::new() };
    let text = format!("{what}: {}\n{place}", reasons.join(": "));
    text.trim_end().to_owned()
}

/// Symbolizes what was sampled.
fn close(finished: Finished, guest: &Guest, arguments: Vec<String>) -> Recording {
    let bar = Bar::new("symbolizing", finished.recorder.frame_count());
    let images: Vec<_> = guest.modules.iter().map(|(_, image)| Arc::clone(image)).collect();
    let complete_meta = |meta: &mut crate::recording::Meta| {
        meta.guest = guest.name.clone();
        meta.arguments = arguments;
    };
    symbolize(finished, &images, complete_meta, |done| bar.set(done))
}
