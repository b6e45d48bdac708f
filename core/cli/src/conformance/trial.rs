//! Runs a guest under a plugin and keeps moments of it.

use super::Outcome;
use super::moment::{MOST_BYTES, Moment, MomentKeeper};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_module::ModuleImage;
use wlprof_plugin as plugin;
use wlprof_recording::{Clock, Origin, Recording, Truncation, count_of};
use wlprof_run::guest::{Entry, Guest, LoadError, LoadOptions, Program};
use wlprof_run::profile::{Run, RunEnd, RunOptions, symbolize};
use wlprof_wasi::{Exit, Stdio, WasiOptions};

/// A guest that runs longer is halted: there are moments enough by then.
const LONGEST_RUN: Duration = Duration::from_secs(20);

/// Samples below which little can be said of a plugin: of these a dozen moments are kept.
const FEW_SAMPLES: u64 = 50;

/// What came of running a guest under a plugin.
pub(super) struct TrialOutcome {
    /// Some moments with stacks.
    pub(super) moments: Vec<Moment>,
    /// A sentence about what was seen.
    pub(super) seen: String,
    samples: u64,
}

impl TrialOutcome {
    /// How that is to be judged.
    pub(super) fn outcome(&self) -> Outcome {
        let seen = self.seen.clone();
        if self.samples >= FEW_SAMPLES {
            return Outcome::Passed(seen);
        }
        let warning = "so few samples say little; give it a guest or arguments that keep it busy for a second, with functions \
                       that call each other and the host";
        Outcome::Warned { seen, warning: warning.to_owned() }
    }
}

/// A guest in the language of a plugin.
pub(crate) struct Trial {
    guest: Guest,
    wasi: WasiOptions,
    invoke: Option<String>,
    /// Its main module, which the plugin is shown.
    pub image: Arc<ModuleImage>,
}

impl Trial {
    /// Compiles the guest at `path`, to be run or, instead, its function `invoke`. Its output is dropped.
    ///
    /// # Errors
    /// [`LoadError`] if it cannot be run.
    pub(crate) fn load(
        path: &Path,
        options: &LoadOptions,
        wasi: WasiOptions,
        invoke: Option<String>,
    ) -> Result<Self, LoadError> {
        let program = Program::read(path, options)?;
        program.check(Entry::function_or_main(invoke.as_deref()), wasi.arguments.get(1..).unwrap_or_default())?;
        let guest = program.compile(Entry::function_or_main(invoke.as_deref()), None)?;
        let image = guest.code.images[0].clone();
        Ok(Self { guest, wasi: WasiOptions { stdio: Stdio::Null, ..wasi }, invoke, image })
    }

    /// Runs it, sampled with walkers of `program` by this clock.
    pub(super) fn run(&self, program: Arc<dyn plugin::Program>, clock: Clock) -> Result<TrialOutcome, String> {
        let (kind, _) = SamplerKind::Auto.resolve().map_err(|error| format!("{error:#}"))?;
        // Keeping moments costs more than a profile may.
        let sampler = SamplerOptions { kind, max_overhead: 1.0, clock, ..SamplerOptions::at_rate(1000.0) };
        let (program, moments) = MomentKeeper::new(program);
        let options = RunOptions { wasi: self.wasi.clone(), invoke: self.invoke.clone(), sampler: Some(sampler) };
        let run = Run::start(&self.guest, vec![Some(Arc::new(program))], options).map_err(|error| error.to_string())?;
        // Ends the wait, unless the guest has ended by then; nobody waits for this thread.
        let interrupter = run.interrupter();
        std::thread::spawn(move || {
            std::thread::sleep(LONGEST_RUN);
            interrupter.interrupt(0);
        });
        let ended = run.wait();
        let finished = run.finish().ok_or("it was not sampled")?;
        let recording = symbolize(finished, std::slice::from_ref(&self.image), |_| ());
        let recording = recording.map_err(|error| error.to_string())?;
        let seen = describe(&recording);
        let moments = std::mem::take(&mut *moments.lock().unwrap_or_else(PoisonError::into_inner));
        let how = match ended {
            RunEnd::Exit(Exit::Returned(_)) => "ended".to_owned(),
            RunEnd::Exit(Exit::Code(code)) => format!("ended with code {code}"),
            RunEnd::Exit(Exit::Trapped(error)) => format!("trapped: {}", error.root_cause()),
            RunEnd::Exit(Exit::NotCallable(error)) => return Err(format!("the guest cannot be run: {error:#}")),
            RunEnd::Interrupted(_) => "was halted".to_owned(),
        };
        if recording.ticks.sampled == 0 {
            return Err(format!(
                "the guest {how} before a sample was taken. What it needs comes last: wlprof plugins check PLUGIN --guest \
                 GUEST --dir FOLDER ARGUMENTS"
            ));
        }
        if !recording.frames.iter().any(|frame| matches!(frame.origin, Origin::Language { .. })) {
            // Most walks said that their stack is whole; a few samples in host code have no walk at all.
            let not_whole: u64 = recording.truncated.iter().map(|(_, count)| count).sum();
            let whole = not_whole < recording.ticks.sampled / 2;
            let hint = if whole { "; is `length` set where frames are written?" } else { "" };
            return Err(format!("no stack has a frame of its own ({seen}; the guest {how}){hint}"));
        }
        if moments.is_empty() {
            return Err(format!(
                "there was no moment to keep ({seen}; the guest {how}); its memory must be below {} MiB",
                MOST_BYTES >> 20
            ));
        }
        Ok(TrialOutcome { moments, seen, samples: recording.ticks.sampled })
    }
}

fn describe(recording: &Recording) -> String {
    let mut said = count_of(recording.ticks.sampled, "sample");
    for (reason, count) in &recording.truncated {
        if let Truncation::Language(reason) = reason {
            said.push_str(&format!(", {count} {reason}"));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_are_a_warning() {
        let outcome =
            |samples| TrialOutcome { moments: Vec::new(), seen: format!("{samples} samples"), samples }.outcome();
        assert_eq!(outcome(FEW_SAMPLES), Outcome::Passed("50 samples".to_owned()));
        assert!(matches!(outcome(FEW_SAMPLES - 1), Outcome::Warned { seen, .. } if seen == "49 samples"));
    }
}
