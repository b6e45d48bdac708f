//! The settings of a profiler.

use super::Profiler;
use super::share::Share;
use crate::heap::Rate;
use crate::sampler::{RunName, SamplerKind, SamplerOptions, Session};
use std::time::Duration;
use wasmtime::Engine;
use wlprof_languages::BUILT_IN;
use wlprof_plugin::Language;
use wlprof_recording::{Clock, Journal};

/// Configures a [`Profiler`] and starts it.
///
/// ```no_run
/// use std::time::Duration;
/// use wlprof::Profiler;
///
/// # fn start(engine: &wasmtime::Engine) -> wasmtime::Result<()> {
/// let profiler = Profiler::builder()
///     .name("my-server")
///     .rate_hz(100.0)
///     .keep(Duration::from_secs(60))
///     .start(engine)?;
/// # Ok(())
/// # }
/// ```
pub struct Builder {
    name: RunName,
    journal: Journal,
    options: SamplerOptions,
    languages: Vec<&'static dyn Language>,
    fraction: f64,
    is_paused: bool,
}

impl Default for Builder {
    fn default() -> Self {
        const KEPT: Duration = Duration::from_secs(5 * 60);
        Self {
            name: RunName { guest: std::env::args().next().unwrap_or_default(), arguments: Vec::new() },
            journal: Journal::of_windows(),
            options: SamplerOptions {
                kind: SamplerKind::Signal,
                on_demand: true,
                keep: Some(KEPT),
                max_overhead: 0.01,
                ..SamplerOptions::at_rate(100.0)
            },
            languages: BUILT_IN.to_vec(),
            fraction: 1.0,
            is_paused: false,
        }
    }
}

impl Builder {
    /// Sets the program's name in profiles. The default is its own path.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name.guest);
        self
    }

    /// Sets the program's arguments in profiles. The default is none.
    #[must_use]
    pub fn arguments(mut self, arguments: &[String]) -> Self {
        self.name.arguments = arguments.to_vec();
        self
    }

    /// Records all samples into `journal` as they come, for [`Profiler::finish`].
    ///
    /// By default only the samples that a window wants are kept. [`Journal::with_windows`] allows windows and snapshots besides the
    /// journal.
    #[must_use]
    pub fn journal(mut self, journal: Journal) -> Self {
        self.journal = journal;
        self
    }

    /// Sets all options of the sampler at once. They replace what [`Builder::rate_hz`], [`Builder::keep`] and the like have set before.
    ///
    /// A profiler that does not sample [on demand](SamplerOptions::on_demand) samples from first to last, and cannot be paused.
    #[must_use]
    pub fn sampler_options(mut self, options: SamplerOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the samples per second of each thread's CPU time. The default is 100.
    #[must_use]
    pub fn rate_hz(mut self, rate_hz: f64) -> Self {
        self.options.rate_hz = rate_hz;
        self
    }

    /// Sets the limit of the cost of sampling, as a fraction of each thread's CPU time. The default is 0.01. The rate is lowered to keep
    /// it.
    #[must_use]
    pub fn max_overhead(mut self, max_overhead: f64) -> Self {
        self.options.max_overhead = max_overhead;
        self
    }

    /// Sets the time that samples stand for. The default is CPU time.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.options.clock = clock;
        self
    }

    /// Sets the fraction of the stores that are sampled, which are chosen by chance. The default is 1: all of them.
    ///
    /// This is for programs with so many short stores that attaching each would cost too much. The other stores run as if they had not been
    /// attached, and their time is in no count. The exception: with the epoch [sampler](Self::sampler), the deadline of their epoch never
    /// comes.
    #[must_use]
    pub fn fraction(mut self, fraction: f64) -> Self {
        self.fraction = fraction;
        self
    }

    /// Profiles allocations as well, with one sample every `rate` bytes on average. [`Rate::DEFAULT`] is 512 KiB. Samples
    /// are closer at first: a session's first 1,024 are of every allocation.
    ///
    /// This works for modules that [`Profiler::load`] compiles. Each then has one memory, one table and two globals more, whose export
    /// names begin with `wlprof:`. The engine must allow several memories.
    ///
    /// # Accuracy
    /// Estimates are right on average, and say how far off they may be ([`Amount`](wlprof_recording::Amount)). Of several instances in one
    /// store, the first is profiled.
    ///
    /// # Overhead
    /// A nanosecond per call of the allocator, and some microseconds per sample.
    ///
    /// # Security
    /// The added memory and table count where the embedder limits these. Guests can report allocations that are not true.
    #[must_use]
    pub fn heap(mut self, rate: Rate) -> Self {
        self.options.heap = Some(rate);
        self
    }

    /// Sets how long samples are kept in memory. The default is five minutes.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.options.keep = Some(keep);
        self
    }

    /// Sets the languages whose stacks are walked. The default is [`BUILT_IN`].
    ///
    /// Other guests are shown as wasm, with the names and lines of their debug information.
    #[must_use]
    pub fn languages(mut self, languages: &[&'static dyn Language]) -> Self {
        self.languages = languages.to_vec();
        self
    }

    /// Sets the kind of sampler. The default is the signal sampler.
    ///
    /// The epoch sampler needs an engine that is configured with `epoch_interruption`. It advances the engine's epoch at each tick. The
    /// deadline and the callback of attached stores are its own. A store that is not attached needs a deadline that no tick reaches, such
    /// as `u64::MAX / 2`.
    ///
    /// To Wasmtime, a check that a tick has come before is a call of the host. Call hooks are called for it.
    #[must_use]
    pub fn sampler(mut self, kind: SamplerKind) -> Self {
        self.options.kind = kind;
        self
    }

    /// Takes no samples before [`Profiler::resume`].
    #[must_use]
    pub fn paused(mut self) -> Self {
        self.is_paused = true;
        self
    }

    /// Starts a profiler for stores of `engine`.
    ///
    /// # Errors
    /// If a setting is out of range, if the sampler does not work on this machine, or if no thread can be started. Also if the engine lacks
    /// what [`configure`](super::configure) asks for.
    pub fn start(self, engine: &Engine) -> wasmtime::Result<Profiler> {
        let (kind, note) = self.options.kind.resolve()?;
        let options = SamplerOptions { kind, ..self.options };
        let is_rate = (1.0..=100_000.0).contains(&options.rate_hz);
        wasmtime::ensure!(is_rate, "{} samples a second: expected 1 to 100000", options.rate_hz);
        let is_share = options.max_overhead > 0.0 && options.max_overhead <= 1.0;
        wasmtime::ensure!(is_share, "an overhead of {}: expected a fraction of 1", options.max_overhead);
        let is_fraction = self.fraction > 0.0 && self.fraction <= 1.0;
        wasmtime::ensure!(is_fraction, "{} of the stores: expected a fraction of 1", self.fraction);
        wasmtime::ensure!(
            kind != SamplerKind::Epoch || options.clock == Clock::Cpu,
            "samples of wall time need the signal sampler: the epoch sampler does not see where a guest waits"
        );
        let session = Session::new(self.journal, self.name, options);
        note.iter().for_each(|note| session.note(note.clone()));
        if self.fraction < 1.0 {
            session
                .note(format!("{} % of the stores are sampled: the others' time is not in it", 100.0 * self.fraction));
        }
        // Why it is this sampler that does not start, if it was not asked for.
        let started = session.start(engine);
        started.map_err(|error| note.into_iter().fold(error, |error, note| error.context(note)))?;
        let profiler = Profiler::new(session, engine, self.languages, Share::of(self.fraction));
        if !self.is_paused {
            profiler.resume();
        }
        Ok(profiler)
    }
}
