//! Options of what is profiled of a guest while it runs, and where that goes: what `wlprof GUEST` and `wlprof serve` share.

use super::guest::GuestOptions;
use super::memory::MemoryOptions;
use super::output::Output;
use super::push::PushOptions;
use super::sampling::{SamplerChoice, Sampling};
use super::showing::ShowChoice;
use crate::failure::{FAILED, Failure};
use crate::http::ListenAddress;
use clap::Args;
use std::time::Duration;
use wlprof::sampler::SamplerOptions;
use wlprof_recording::{Clock, Selection};

/// Samples a second of what is only pushed, unless the user says how many.
const PUSHED_HZ: f64 = 100.0;

/// How late the first window that is pushed may be opened, to begin with the guest all the same.
const FIRST_WINDOW: Duration = Duration::from_secs(5);

/// What is profiled, and where that goes.
#[derive(Args)]
pub(crate) struct Profiling {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) sampling: Sampling,
    #[command(flatten)]
    pub(crate) memory: MemoryOptions,
    /// Show the guest while it runs, at http://ADDR:PORT/
    ///
    /// For browsers, `go tool pprof` and metrics. Only this machine can ask, unless an address is given. Without -o and --format the guest
    /// is sampled only while somebody asks.
    #[arg(long, value_name = "[ADDR:]PORT", help_heading = "Output")]
    pub(crate) listen: Option<ListenAddress>,
    #[command(flatten)]
    pub(crate) pushing: PushOptions,
}

impl Profiling {
    /// Whether samples are taken for who asks for them while the guest runs, and for nobody else.
    pub(crate) fn samples_on_demand(&self) -> bool {
        self.listen.is_some() && self.is_only_shown()
    }

    /// Whether nothing is written: what is sampled is pushed, or shown while the guest runs.
    pub(crate) fn is_only_shown(&self) -> bool {
        let is_looked_at = self.listen.is_some() || self.pushing.is_on();
        is_looked_at && !self.output.names_files() && self.output.format.is_none()
    }

    /// Whether memory is profiled, and time is not.
    fn profiles_memory_alone(&self) -> bool {
        self.memory.memory && self.sampling.sampler == SamplerChoice::Off
    }

    /// Refuses options that say nothing together.
    pub(crate) fn check(&self, guest: &GuestOptions) -> Result<(), &'static str> {
        self.sampling.check()?;
        if self.listen.is_some() && self.sampling.sampler == SamplerChoice::Off {
            return Err("--listen needs samples; leave out --sampler=off");
        }
        if self.pushing.is_on() && self.sampling.sampler == SamplerChoice::Off && !self.memory.memory {
            return Err("--push needs samples; leave out --sampler=off");
        }
        if self.memory.memory && guest.wasmtime.limit_fuel() {
            return Err("-W fuel counts what --memory adds to the guest as well: leave out one of them");
        }
        if self.profiles_memory_alone() && self.selection().part.is_none() {
            return Err("there is no time to show; leave out --show=time or --sampler=off");
        }
        if self.output.showing.names_memory() && !self.memory.memory {
            return Err("--show is for what was profiled: add --memory");
        }
        Ok(())
    }

    /// Which samples are shown.
    pub(crate) fn selection(&self) -> Selection {
        self.output.showing.selection(if self.memory.memory { ShowChoice::Peak } else { ShowChoice::Time })
    }

    /// How to sample the time of `clock`, unless the user says which, and what to say of it; `None` for not at all.
    ///
    /// # Errors
    /// If the sampler that the user names does not work here.
    pub(crate) fn sampler(&self, clock: Clock) -> Result<Option<(SamplerOptions, Option<String>)>, Failure> {
        let sampling = match self.profiles_memory_alone() {
            true => Some(SamplerOptions::default()),
            false => self.sampling.options(clock),
        };
        let Some(sampling) = sampling else { return Ok(None) };
        let resolved = sampling.kind.resolve();
        let (kind, fallback) =
            resolved.map_err(|error| Failure::new(FAILED, format!("{error:#}; try --sampler=epoch")))?;
        let pushes = self.pushing.is_on();
        // What is only pushed needs no more than servers are used to.
        let sampling =
            if pushes && self.is_only_shown() { self.sampling.at_most(sampling, PUSHED_HZ) } else { sampling };
        let options = SamplerOptions {
            kind,
            on_demand: self.samples_on_demand() && !pushes || self.profiles_memory_alone(),
            // The first window begins with the guest.
            keep: pushes.then_some(FIRST_WINDOW),
            counts_host_calls: self.listen.is_some(),
            heap: self.memory.rate(),
            ..sampling
        };
        Ok(Some((options, fallback)))
    }
}
