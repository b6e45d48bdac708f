//! `wlprof GUEST`: runs the guest, samples it, writes the profile.

use super::arguments::Arguments;
use super::available_plugins::Plugins;
use super::failure::{FAILED, Failure};
use super::guest::{self, LoadedGuest};
use super::interrupt::{self, Interrupts};
use super::live::{self, Live};
use super::live_guest::OwnGuest;
use super::machine_code::{self, DumpedFunctions};
use super::misplaced::options_behind;
use super::options::formats::CodeFormat;
use super::options::guest::GuestOptions;
use super::options::output::FramesChoice;
use super::options::profiling::Profiling;
use super::options::sampling::{ClockChoice, SamplerChoice};
use super::pushing::{self, RunPush};
use super::run_outputs::{self, ProfileOf, RunOutputs};
use super::window_profiles::GuestView;
use super::{library, say, source_folders};
use clap::{Args, CommandFactory};
use std::path::Path;
use std::sync::Arc;
use wlprof::languages::Choice;
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_recording::{Clock, Meta};
use wlprof_run::guest::Entry;
use wlprof_run::profile::RunEnd;
use wlprof_show::escape;
use wlprof_wasi::{Exit, OWN_HOST, shown};

/// Samples of a run that did next to nothing.
const FEW: u64 = 10;

/// Options of a run.
#[derive(Args)]
pub(super) struct Record {
    #[command(flatten)]
    pub(super) profiling: Profiling,
    /// Which functions --format=jitdump writes. perf makes a file of each
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = DumpedFunctions::All, help_heading = "Output", hide_short_help = true)]
    pub(super) jitdump_functions: DumpedFunctions,
    #[command(flatten)]
    pub(super) guest: GuestOptions,
}

impl Record {
    /// Whether wlprof is to take samples: not if it is only to help perf to take them.
    fn samples(&self) -> bool {
        let only_code = match self.profiling.output.code_format() {
            Some(CodeFormat::PerfMap) => true,
            Some(CodeFormat::JitDump) => self.jitdump_functions == DumpedFunctions::All,
            None => false,
        };
        !only_code || self.profiling.output.names_files()
    }

    /// Refuses options that say nothing together.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let profiling @ Profiling { output, sampling, memory, listen, pushing } = &self.profiling;
        profiling.check(&self.guest)?;
        if profiling.samples_on_demand() && output.showing.off_cpu {
            return Err(
                "--off-cpu shows the waits of a whole run: give it with -o, or ask for windows with clock=wall",
            );
        }
        if profiling.is_only_shown() && pushing.is_on() && output.showing.off_cpu {
            return Err("--off-cpu shows the waits of a whole run: give it with -o, or push waits with --clock=wall");
        }
        if pushing.is_on() && output.code_format().is_some() && !output.names_files() {
            return Err("--push takes samples of its own, and this format is for perf's; give --format a profile's");
        }
        if listen.is_some() && output.code_format().is_some() && !output.names_files() {
            return Err("--listen takes samples of its own, and this format is for perf's; give --format a profile's");
        }
        if memory.memory && !self.samples() {
            return Err("--memory is for profiles of wlprof's own: name one with -o");
        }
        if memory.memory && output.showing.off_cpu && profiling.selection().part.is_some() {
            return Err("memory does not wait: leave out --off-cpu, or add --show=time");
        }
        if output.showing.off_cpu && sampling.clock == Some(ClockChoice::Cpu) {
            return Err("--off-cpu shows waiting, which is no CPU time; leave out --clock=cpu");
        }
        if output.showing.off_cpu && sampling.sampler == SamplerChoice::Epoch {
            return Err("--off-cpu needs the signal sampler: the epoch sampler does not see where a guest waits");
        }
        if self.jitdump_functions == DumpedFunctions::All {
            return Ok(());
        }
        match (output.code_format(), sampling.sampler) {
            (Some(CodeFormat::JitDump), SamplerChoice::Off) => {
                Err("--jitdump-functions=sampled needs samples; leave out --sampler=off")
            }
            (Some(CodeFormat::JitDump), _) => Ok(()),
            _ => Err("--jitdump-functions is for --format=jitdump"),
        }
    }

    /// How to sample, and what to say of it; `None` for not at all.
    ///
    /// # Errors
    /// If the sampler that the user names does not work here.
    pub(super) fn sampler(&self) -> Result<Option<(SamplerOptions, Option<String>)>, Failure> {
        if !self.samples() {
            return Ok(None);
        }
        let clock = if self.profiling.output.showing.off_cpu { Clock::Wall } else { Clock::Cpu };
        let keep_functions = self.jitdump_functions == DumpedFunctions::Sampled;
        let sampler = self.profiling.sampler(clock)?;
        Ok(sampler.map(|(options, fallback)| (SamplerOptions { keep_functions, ..options }, fallback)))
    }
}

/// Runs the guest and gives its exit code.
pub(super) fn run(record: &Record) -> Result<u8, Failure> {
    record.check().map_err(|message| Failure::new(FAILED, message))?;
    interrupt::survive_large_files().map_err(|error| Failure::new(FAILED, error))?;
    let Profiling { output, memory, listen, pushing: push_options, .. } = &record.profiling;
    let arguments = guest::arguments(&record.guest)?;
    let (sampler, fallback) = record.sampler()?.unzip();
    let listener = listen.map(live::listen).transpose()?;
    let mut outputs = match &sampler {
        Some(_) if !record.profiling.is_only_shown() => Some(RunOutputs::open(output, record.profiling.selection())?),
        _ => None,
    };
    let sources = source_folders::named(output, &record.guest.directories)?;
    // While the guest runs none of its own, which it can change.
    let named_sources = source_folders::named(output, &[])?;
    let epoch = sampler.as_ref().is_some_and(|sampler| sampler.kind == SamplerKind::Epoch);
    // What nobody will look at is not walked, nor is a plugin opened for it.
    let names_nothing = sampler.is_none() && output.code_format().is_none();
    let native = output.frames == FramesChoice::Native || names_nothing;
    let choice = match record.guest.language.as_str().into() {
        Choice::Auto if native => Choice::Native,
        choice => choice,
    };
    let plugins = Plugins::for_run(&record.guest.plugins, &choice)?;
    let loading = guest::LoadSettings {
        entry: Entry::function_or_main(record.guest.invoke.as_deref()),
        arguments: &arguments,
        choice: &choice,
        native,
        epoch_interruption: epoch,
        heap: memory.heap(),
        quiet: output.quiet,
    };
    let LoadedGuest { mut guest, programs, language, library, not_called } =
        guest::load(&record.guest, &plugins, &loading)?;
    guest.notes.extend(fallback.flatten());
    let mut code = match output.code_format() {
        Some(format) => Some(machine_code::begin(format, record.jitdump_functions, &guest, &programs)?),
        None => None,
    };
    let push = push_options.push(&guest.name, output.frames.view())?;
    let journal = || run_outputs::begin_journal(&mut outputs, listener.is_some() || push.is_some());
    let guest_path = Path::new(&record.guest.guest_and_arguments[0]);
    let hint = library.as_ref().and_then(|library| library::hint(guest_path, library, &record.guest.directories));
    let sampler = sampler.map(|sampler| guest.with_known_heap(sampler));
    let run = guest::start(&record.guest, &guest, library, &arguments, programs.clone(), sampler, journal)?;
    let images = guest.images();
    let plugin_files: Vec<_> = language.iter().flat_map(|language| plugins.files_of(language)).collect();
    let profile = ProfileOf { images: &images, language, plugins: plugin_files, sources };
    let pushed = pushing::begin(push, run.profiler().as_ref(), output.quiet)?;
    let live = match (listener, run.profiler()) {
        (Some(listener), Some(profiler)) => {
            let command = std::iter::once(guest.name.clone()).chain(arguments.iter().cloned()).collect();
            let shown = GuestView::of_run(&record.profiling, &profile, named_sources, guest.hides_heap);
            let own = Arc::new(OwnGuest { profiler, images: images.clone() });
            let counter = pushed.as_ref().map(RunPush::counter);
            Some(Live::start(listener, own, command, shown, counter, output.quiet)?)
        }
        _ => None,
    };
    let interrupts = Interrupts::default();
    if !output.quiet {
        interrupt::note_if_ignored();
    }
    if outputs.is_some() || pushed.is_some() {
        let interrupter = run.interrupter();
        let interrupt = move |signal| interrupter.interrupt(signal);
        interrupts.watch(interrupt, 1).map_err(|error| Failure::new(FAILED, error))?;
    }
    let ended = run.wait();
    interrupts.run_is_over();
    live.into_iter().for_each(Live::end);
    pushed.into_iter().for_each(RunPush::end);
    let late = run.late_interruption();
    if let RunEnd::Exit(exit) = &ended {
        // What was found out about the guest may say why it does not run.
        guest::report_exit(exit, &guest, &record.guest).inspect_err(|_| {
            outputs.iter().for_each(RunOutputs::remove_forerunner);
            guest::print_notes(&guest);
        })?;
        if matches!(exit, Exit::Code(code) if *code != 0) {
            hint.iter().for_each(|hint| say::line(format_args!("{}", escape::single_line(hint))));
            let misplaced = options_behind(&record.guest.guest_and_arguments, &Arguments::command());
            misplaced.iter().for_each(|misplaced| say::line(format_args!("note: {misplaced}")));
        }
    }
    let (mut written, mut seen) = (Ok(()), Vec::new());
    if let (Some(mut finished), Some(outputs)) = (run.finish(), outputs) {
        finished.meta.notes.extend(note_of_waits(&finished.meta, run.queued_ns()));
        if finished.ticks.sampled < FEW {
            finished.meta.notes.extend(note_of_functions_not_called(&guest.name, &not_called));
        }
        let functions_seen = finished.recorder.functions_seen();
        (seen, written) = outputs.finish(finished, profile, &interrupts);
        let dumped = code.as_mut().map_or(Ok(()), |code| code.add_sampled(&functions_seen, &programs, &guest));
        code = code.filter(|_| dumped.is_ok());
        written = match (dumped, written) {
            (Err(one), Err(other)) => Err(Failure::new(FAILED, format!("{}\nwlprof: {}", one.message, other.message))),
            (dumped, written) => dumped.and(written),
        };
    }
    if let Some(code) = code {
        code.finish(output.quiet);
    }
    // Plugins may end the process when they are told to let go of what they have: nothing else is left to do then.
    drop((run, programs));
    plugins.print_failures(&seen);
    let signal = match ended {
        RunEnd::Interrupted(signal) => Some(signal),
        RunEnd::Exit(_) => late.or(interrupts.signal()),
    };
    match (signal, ended) {
        (Some(signal), _) => {
            // Whoever sent the signal waits for a process that died of it, whatever else went wrong.
            written.unwrap_or_else(|failure| failure.print());
            interrupt::die_of(signal)
        }
        (None, RunEnd::Exit(exit)) => written.map(|()| guest::exit_code(&exit)),
        (None, RunEnd::Interrupted(signal)) => interrupt::die_of(signal),
    }
}

/// Says how long a guest waited, if that is most of its run and not seen in samples. The time in which it stood in the queue for a processor,
/// `queued_ns`, is no wait of its own.
fn note_of_waits(meta: &Meta, queued_ns: u64) -> Option<String> {
    /// Starting and ending take some of a short run.
    const LEAST_NS: u64 = 50_000_000;
    let waited_ns = meta.duration_ns.saturating_sub(meta.cpu_ns).saturating_sub(queued_ns);
    let is_most = waited_ns > meta.duration_ns / 2 && waited_ns >= LEAST_NS;
    let [waited, all] = [waited_ns, meta.duration_ns].map(|ns| ns as f64 / 1e9);
    (meta.clock == Clock::Cpu && is_most).then(|| format!("waited {waited:.2} of {all:.2} s: --off-cpu shows where"))
}

/// Names the functions that a run of a program's main function has not called: it may do next to nothing, and its work be in those.
fn note_of_functions_not_called(guest: &str, names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!(
            "{guest} exports functions that were not called ({}): choose one with --invoke NAME, or profile them in their own host ({OWN_HOST})",
            shown(names)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_the_time_waited_is_remarked_on() {
        const MS: u64 = 1_000_000;
        let of = |clock, cpu_ns, queued_ns| {
            let meta = Meta { clock, duration_ns: 1910 * MS, cpu_ns, ..Meta::default() };
            note_of_waits(&meta, queued_ns)
        };
        let note = of(Clock::Cpu, 50 * MS, 0);
        assert_eq!(note.as_deref(), Some("waited 1.86 of 1.91 s: --off-cpu shows where"));
        assert_eq!(of(Clock::Cpu, 1000 * MS, 0), None);
        // It was ready, and others had the processors.
        assert_eq!(of(Clock::Cpu, 50 * MS, 1800 * MS), None);
        assert_eq!(of(Clock::Wall, 50 * MS, 0), None);
    }
}
