//! What a profiler is to be like.

use super::Profiler;
use super::share::Share;
use crate::heap::Rate;
use crate::languages::BUILT_IN;
use crate::sampler::{RunName, SamplerKind, SamplerOptions, Session};
use std::time::Duration;
use wasmtime::Engine;
use wlprof_plugin::Language;
use wlprof_recording::{Clock, Journal};

/// Makes a [`Profiler`].
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
    /// What profiles call the program; unless told so its own path.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name.guest);
        self
    }

    /// What it was called with, as profiles say; nothing unless told so.
    #[must_use]
    pub fn arguments(mut self, arguments: &[String]) -> Self {
        self.name.arguments = arguments.to_vec();
        self
    }

    /// Records all that is sampled into `journal` as it comes, for [`Profiler::finish`] to give; unless told so nothing is kept that no
    /// window wants. Windows and snapshots are to be had beside it with [`Journal::with_windows`].
    #[must_use]
    pub fn journal(mut self, journal: Journal) -> Self {
        self.journal = journal;
        self
    }

    /// All settings of the sampler at once, in place of those that [`Builder::rate_hz`], [`Builder::keep`] and the like have set before. One that does not sample [on demand](SamplerOptions::on_demand) samples from first to last
    /// and is not to be paused.
    #[must_use]
    pub fn sampler_options(mut self, options: SamplerOptions) -> Self {
        self.options = options;
        self
    }

    /// Samples a second of each thread's CPU time; 100 unless told so.
    #[must_use]
    pub fn rate_hz(mut self, rate_hz: f64) -> Self {
        self.options.rate_hz = rate_hz;
        self
    }

    /// The most that sampling may cost, as a fraction of the CPU time of each thread; 0.01 unless told so. The rate is lowered to keep
    /// it.
    #[must_use]
    pub fn max_overhead(mut self, max_overhead: f64) -> Self {
        self.options.max_overhead = max_overhead;
        self
    }

    /// What time samples stand for; CPU time unless told so.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.options.clock = clock;
        self
    }

    /// How many of the stores are sampled, as a fraction of 1: 1 unless told so. Which, is left to chance; the others run as if they had
    /// not been attached, but for the deadline of their epoch, which never comes if the [sampler](Self::sampler) goes by epochs, and their
    /// time is in no count. For programs with so many short stores that attaching each would cost too much.
    #[must_use]
    pub fn fraction(mut self, fraction: f64) -> Self {
        self.fraction = fraction;
        self
    }

    /// Profiles what guests allocate as well: a sample each so many bytes on average ([`Rate::DEFAULT`] is 512 KiB). Samples are closer at
    /// first: a session's first 1,024 are of every allocation. Of modules that
    /// [`Profiler::load`] compiles; each has one memory, one table and two globals more then, which are exported by names that begin with
    /// `wlprof:`, and the engine must allow several memories.
    ///
    /// # Accuracy
    /// Estimates are right on average, and say how far off they may be ([`Amount`](wlprof_recording::Amount)). Of several instances in one
    /// store the first is profiled.
    ///
    /// # Overhead
    /// A nanosecond a call of the allocator, and some microseconds a sample.
    ///
    /// # Security
    /// The added memory and table count where the embedder limits these. What is told of is the guest's to say.
    #[must_use]
    pub fn heap(mut self, rate: Rate) -> Self {
        self.options.heap = Some(rate);
        self
    }

    /// How long samples are kept, in memory; five minutes unless told so.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.options.keep = Some(keep);
        self
    }

    /// The languages whose stacks are walked; [`BUILT_IN`] unless told so. What has none of them is shown as wasm, with the names and
    /// lines of its debug information.
    #[must_use]
    pub fn languages(mut self, languages: &[&'static dyn Language]) -> Self {
        self.languages = languages.to_vec();
        self
    }

    /// The sampler; the signal sampler unless told so. For the epoch sampler the engine has to be configured with
    /// `epoch_interruption`. It advances the engine's epoch at each tick, and the deadline and the callback of stores that are attached are
    /// its own: one that is not attached needs a deadline that no tick reaches, such as `u64::MAX / 2`. To Wasmtime a check that a tick has
    /// come before is a call of the host, so that call hooks are told of it.
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
    /// If a setting is out of range, the sampler does not work on this machine, no thread can be started, or the engine leaves out what
    /// [`configure`](super::configure) asks for.
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
