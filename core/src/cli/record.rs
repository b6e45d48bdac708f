//! `wlprof GUEST`: runs the guest, samples it, writes the profile.

use super::arguments::{FramesChoice, Record};
use super::plugins::Plugins;
use super::progress::Bar;
use super::{FAILED, Failure, guest, interrupt, machine_code, output};
use crate::guest::Guest;
use crate::profile::Ended;
use crate::recording::Recording;
use crate::sampler::{Finished, SamplerKind};
use crate::symbols::symbolize;
use std::sync::Arc;

/// Runs the guest and gives its exit code.
pub(super) fn run(record: &Record) -> Result<u8, Failure> {
    record.check().map_err(|message| Failure::new(FAILED, message))?;
    let targets = output::targets(&record.output)?;
    let arguments = guest::arguments(&record.guest)?;
    let mut sampler = record.sampler_options();
    let mut fallback = None;
    if let Some(options) = &mut sampler {
        (options.kind, fallback) =
            options.kind.resolve().map_err(|error| Failure::new(FAILED, format!("{error:#}; try --sampler=epoch")))?;
    }
    let epoch = sampler.as_ref().is_some_and(|sampler| sampler.kind == SamplerKind::Epoch);
    let plugins = Plugins::for_run(&record.guest.plugins)?;
    let (mut guest, mut walkers) =
        guest::load(&record.guest, &plugins, record.output.frames == FramesChoice::Native, epoch)?;
    guest.notes.extend(fallback);
    let mut code = match record.output.code_format() {
        Some(format) => Some(machine_code::begin(format, record.jitdump_functions, &guest, &mut walkers)?),
        None => None,
    };
    let is_sampled = sampler.is_some();
    let run = guest::start(&record.guest, &plugins, &guest, &arguments, walkers, sampler)?;
    if is_sampled {
        interrupt::watch(run.interrupter()).map_err(|error| Failure::new(FAILED, error))?;
    }
    let ended = run.wait();
    if let Ended::Exit(exit) = &ended {
        // What was found out about the guest may say why it does not run.
        guest::report_exit(exit, &guest, &record.guest).inspect_err(|_| guest::print_notes(&guest))?;
    }
    let (mut written, mut seen) = (Ok(()), Vec::new());
    if let Some(mut finished) = run.finish() {
        let dumped = code.as_mut().map_or(Ok(()), |code| code.add_sampled(&mut finished, &guest));
        code = code.filter(|_| dumped.is_ok());
        let recording = close(finished, &guest, arguments);
        if !record.output.quiet {
            seen.clone_from(&recording.meta.notes);
        }
        written = match (dumped, output::write_all(recording, record.output.frames, targets, record.output.quiet)) {
            (Err(one), Err(other)) => Err(Failure::new(FAILED, format!("{}\nwlprof: {}", one.message, other.message))),
            (dumped, written) => dumped.and(written),
        };
    }
    if let Some(code) = code {
        code.finish(record.output.quiet);
    }
    plugins.print_failures(&seen);
    match ended {
        Ended::Exit(exit) => written.map(|()| guest::exit_code(&exit)),
        Ended::Interrupted(signal) => {
            // Whoever sent the signal waits for a process that died of it, whatever else went wrong.
            written.unwrap_or_else(|failure| failure.print());
            interrupt::die_of(signal)
        }
    }
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
