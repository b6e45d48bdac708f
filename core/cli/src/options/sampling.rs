//! Options of how a guest is sampled.

use clap::{Args, ValueEnum};
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_recording::Clock;

/// How samples are taken, and how many.
#[derive(Debug, Args)]
pub(crate) struct Sampling {
    /// Samples a second
    ///
    /// [default: 1000 in the first second of CPU time, 250 from then on]
    #[arg(long, value_name = "HZ", value_parser = parse_rate, help_heading = "Sampling")]
    pub(crate) rate: Option<f64>,
    /// The most that sampling may cost the process, in percent of the guest's CPU time; the rate is lowered to keep it
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = parse_overhead, hide_short_help = true, help_heading = "Sampling")]
    max_overhead: f64,
    /// Which time counts
    ///
    /// [default: cpu, or wall to show only waiting]
    #[arg(long, value_enum, help_heading = "Sampling")]
    pub(crate) clock: Option<ClockChoice>,
    /// How samples are taken
    #[arg(long, value_enum, default_value_t = SamplerChoice::Auto, hide_short_help = true, help_heading = "Sampling")]
    pub(crate) sampler: SamplerChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockChoice {
    /// Time in which the guest's thread runs, in wasm or in host calls; waiting does not count
    Cpu,
    /// All time: waiting counts, in host calls or for a processor
    Wall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SamplerChoice {
    /// signal where it works, else epoch
    Auto,
    /// Interrupt the guest's thread: exact, nothing added to the guest's code
    Signal,
    /// Checks compiled into the guest: works everywhere, slower, less exact: time in straight-line code may be shown elsewhere
    Epoch,
    /// Do not sample: run the guest as `wasmtime run` does, or, with --memory, profile that alone
    Off,
}

impl ClockChoice {
    /// The clock that was chosen.
    pub(crate) fn clock(self) -> Clock {
        match self {
            Self::Cpu => Clock::Cpu,
            Self::Wall => Clock::Wall,
        }
    }
}

impl Sampling {
    /// Refuses what no sampler can do.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.sampler == SamplerChoice::Epoch && self.clock == Some(ClockChoice::Wall) {
            return Err("--clock=wall needs the signal sampler: the epoch sampler does not see where a guest waits");
        }
        Ok(())
    }

    /// The options of a process that runs already, with samples of the time of `unless_told`.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_process(&self, unless_told: Clock) -> wlprof_attach::Options {
        let clock = self.clock.map_or(unless_told, ClockChoice::clock);
        let options = wlprof_attach::Options::default();
        let rate_hz = self.rate.unwrap_or(options.rate_hz);
        wlprof_attach::Options { rate_hz, clock, max_overhead: self.max_overhead / 100.0, ..options }
    }

    /// These options with that rate, if the user says none.
    pub(crate) fn at_most(&self, options: SamplerOptions, rate_hz: f64) -> SamplerOptions {
        match self.rate {
            Some(_) => options,
            None => SamplerOptions {
                kind: options.kind,
                max_overhead: options.max_overhead,
                clock: options.clock,
                ..SamplerOptions::at_rate(rate_hz)
            },
        }
    }

    /// The sampler's options, with samples of the time of `unless_told`; `None` if there are to be no samples.
    pub(crate) fn options(&self, unless_told: Clock) -> Option<SamplerOptions> {
        let kind = match self.sampler {
            SamplerChoice::Auto => SamplerKind::Auto,
            SamplerChoice::Signal => SamplerKind::Signal,
            SamplerChoice::Epoch => SamplerKind::Epoch,
            SamplerChoice::Off => return None,
        };
        let clock = self.clock.map_or(unless_told, ClockChoice::clock);
        Some(SamplerOptions {
            kind,
            max_overhead: self.max_overhead / 100.0,
            clock,
            ..self.rate.map_or_else(SamplerOptions::default, SamplerOptions::at_rate)
        })
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let range = 1.0..=100_000.0;
    text.parse().ok().filter(|rate| range.contains(rate)).ok_or_else(|| "expected 1 to 100000".into())
}

pub(crate) fn parse_overhead(text: &str) -> Result<f64, String> {
    let range = 0.01..=100.0;
    text.parse().ok().filter(|percent| range.contains(percent)).ok_or_else(|| "expected 0.01 to 100".into())
}
