//! `wlprof GUEST`: runs the guest, samples it, writes the profile.

use super::arguments::Record;
use super::progress::{Bar, Spinner};
use super::{CANNOT_RUN, FAILED, Failure, NO_GUEST, escape, interrupt, output, summary};
use crate::guest::{Exit, Guest, LoadOptions, WasiOptions};
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
    let sampler = record.sampler_options();
    let load = LoadOptions {
        debug_file: record.debug_file.clone(),
        epoch_interruption: sampler.as_ref().is_some_and(|sampler| {
            sampler.kind == SamplerKind::Epoch
                || !crate::sampler::signal_works_here() && sampler.kind == SamplerKind::Auto
        }),
        no_cache: record.no_cache,
    };
    let spinner = Spinner::new(format!("compiling {}", escape::single_line(&path.to_string_lossy())));
    let guest = Guest::load(path, &load)
        .map_err(|error| Failure::new(if error.is_not_found() { NO_GUEST } else { CANNOT_RUN }, error))?;
    drop(spinner);

    let options = RunOptions { wasi: wasi(record, &guest), invoke: record.invoke.clone(), sampler };
    let fail = |error: std::io::Error| Failure::new(FAILED, error);
    let run = Run::start(&guest, options).map_err(fail)?;
    if record.sampler_options().is_some() {
        interrupt::watch(run.interrupter()).map_err(fail)?;
    }
    let ended = run.wait();
    if let Ended::Exit(exit) = &ended {
        report_exit(exit, &guest, record)?;
    }
    if let Some(finished) = run.finish() {
        let recording = close(finished, &guest, record);
        for target in &targets {
            output::write(&recording, target)?;
        }
        if !record.output.quiet {
            summary::print(&recording, &targets);
        }
    }
    match ended {
        Ended::Exit(exit) => Ok(exit.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(CANNOT_RUN)),
        Ended::Interrupted(signal) => interrupt::die_of(signal),
    }
}

fn wasi(record: &Record, guest: &Guest) -> WasiOptions {
    let own = std::iter::once(guest.name.clone());
    let rest = record.guest_and_arguments[1..].iter().map(|argument| argument.to_string_lossy().into_owned());
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
            let text = format!("{error:?}");
            eprintln!("wlprof: {} trapped: {}", guest.name, escape::multi_line(&text));
            Ok(())
        }
        Exit::NotCallable(error) => {
            Err(Failure::new(CANNOT_RUN, format!("{}: {error:#}", Path::new(&record.guest_and_arguments[0]).display())))
        }
    }
}

/// Symbolizes what was sampled.
fn close(finished: Finished, guest: &Guest, record: &Record) -> Recording {
    let bar = Bar::new("symbolizing", finished.recorder.frame_count());
    let images: Vec<_> = guest.modules.iter().map(|(_, image)| Arc::clone(image)).collect();
    let complete_meta = |meta: &mut crate::recording::Meta| {
        meta.guest = guest.name.clone();
        meta.arguments =
            record.guest_and_arguments[1..].iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    };
    symbolize(finished, &images, complete_meta, |done| bar.set(done))
}
