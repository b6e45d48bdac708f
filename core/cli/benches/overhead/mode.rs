//! The ways of running a guest that are compared.

use super::perf_record::PerfRecord;
use wlprof::sampler::{SamplerKind, SamplerOptions};

/// A way of running a guest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// As `wasmtime run` does. What all others are compared with.
    Plain,
    /// Plain once more: how far two equal runs differ.
    PlainAgain,
    /// Plain, with signals at this rate that nothing answers: the least that a profiler with signals can cost here.
    Floor {
        /// Signals a second.
        hz: f64,
    },
    /// The signal sampler at this rate.
    Signal {
        /// Samples a second.
        hz: f64,
    },
    /// The signal sampler as `wlprof` uses it when nothing is said.
    Default,
    /// The epoch sampler at this rate.
    Epoch {
        /// Samples a second.
        hz: f64,
    },
    /// Compiled for epochs; nothing ticks.
    EpochChecks,
    /// [`wasmtime::GuestProfiler`] as its documentation has it, at this rate.
    GuestProfiler {
        /// Samples a second.
        hz: f64,
    },
    /// `perf record` with frame pointers, at this rate.
    Perf {
        /// Samples a second.
        hz: f64,
    },
}

/// Allows any rate, so that modes are compared at the rate they are named after.
const NO_LIMIT: f64 = 1.0;

impl Mode {
    /// The modes that work on this machine, without the plain one, which they are compared with.
    pub(crate) fn all() -> Vec<Self> {
        let mut modes = vec![Self::PlainAgain, Self::Floor { hz: 250.0 }, Self::Floor { hz: 1000.0 }];
        if SamplerKind::Signal.resolve().is_ok() {
            modes.extend([Self::Signal { hz: 250.0 }, Self::Signal { hz: 1000.0 }, Self::Default]);
        }
        if PerfRecord::program().is_some() {
            modes.extend([Self::Perf { hz: 250.0 }, Self::Perf { hz: 1000.0 }]);
        }
        modes.extend([Self::GuestProfiler { hz: 1000.0 }, Self::Epoch { hz: 1000.0 }, Self::EpochChecks]);
        modes
    }

    /// What the table calls it.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Plain => "plain".into(),
            Self::PlainAgain => "plain again".into(),
            Self::Floor { hz } => format!("signals alone, {hz} Hz"),
            Self::Signal { hz } => format!("wlprof {hz} Hz"),
            Self::Default => "wlprof by default".into(),
            Self::Epoch { hz } => format!("wlprof {hz} Hz epoch"),
            Self::EpochChecks => "epoch checks only".into(),
            Self::GuestProfiler { hz } => format!("GuestProfiler {hz} Hz"),
            Self::Perf { hz } => format!("perf record {hz} Hz"),
        }
    }

    /// Whether the guest has to be compiled with epoch checks.
    pub(crate) fn needs_epochs(self) -> bool {
        matches!(self, Self::Epoch { .. } | Self::EpochChecks | Self::GuestProfiler { .. })
    }

    /// How wlprof samples in this mode, if it does.
    pub(crate) fn sampler(self) -> Option<SamplerOptions> {
        let (kind, rate_hz) = match self {
            Self::Signal { hz } => (SamplerKind::Signal, hz),
            Self::Epoch { hz } => (SamplerKind::Epoch, hz),
            Self::Default => return Some(SamplerOptions { kind: SamplerKind::Signal, ..SamplerOptions::default() }),
            Self::Plain
            | Self::PlainAgain
            | Self::Floor { .. }
            | Self::EpochChecks
            | Self::GuestProfiler { .. }
            | Self::Perf { .. } => return None,
        };
        Some(SamplerOptions { kind, max_overhead: NO_LIMIT, ..SamplerOptions::at_rate(rate_hz) })
    }
}
