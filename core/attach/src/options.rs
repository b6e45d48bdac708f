//! How a process is to be sampled.

use crate::rate_limit::RateLimit;
use std::time::Duration;
use wlprof_recording::Clock;

/// How a process is to be sampled.
///
/// ```
/// let options = wlprof_attach::Options { rate_hz: 250.0, ..Default::default() };
/// assert_eq!(options.rate_hz, 250.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples a second, from 0.01 to 10,000. What is beyond counts as the bound.
    pub rate_hz: f64,
    /// What time samples stand for.
    pub clock: Clock,
    /// The part of its time for which a thread may stand still, from 0.0001 to 1. The rate is lowered to keep it.
    pub max_overhead: f64,
    /// How often images are looked for that have come or gone, which reads all mappings of the process.
    pub look_every: Duration,
    /// A limit of the rate that others share, and that may change.
    pub limit: Option<RateLimit>,
    /// Has stacks with wasm show the host's own frames as well: above the guest's, between entries into wasm, and within host calls.
    ///
    /// # Accuracy
    /// As of [`wlprof_host::HostCode`]. Where unwinding ends before the root, `[elided]` or `[truncated]` stands there. Of a thread that waits the
    /// frame pointer is not known, and frames are missing beyond code that needs it.
    ///
    /// # Overhead
    /// A thread with 70 frames of its host stands still for 62 to 65 µs instead of 34 to 36 for a sample (medians of four runs). The unwind tables
    /// of all files with code are kept in memory. Symbols are read when a recording is made of what was sampled; nothing is sampled meanwhile.
    #[cfg(feature = "host-frames")]
    pub host_frames: bool,
}

impl Options {
    /// The nearest options that a session can follow.
    pub(crate) fn within_bounds(self) -> Self {
        // `max` and `min` take the bound for what is no number.
        let [rate_hz, max_overhead] = [(self.rate_hz, 0.01, 10_000.0), (self.max_overhead, 0.0001, 1.0)]
            .map(|(value, least, most): (f64, f64, f64)| value.max(least).min(most));
        Self { rate_hz, max_overhead, ..self }
    }
}

impl Default for Options {
    /// 100 samples a second of CPU time, of which stops may take 2 %.
    fn default() -> Self {
        Self {
            rate_hz: 100.0,
            clock: Clock::Cpu,
            max_overhead: 0.02,
            look_every: Duration::from_millis(500),
            limit: None,
            #[cfg(feature = "host-frames")]
            host_frames: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_beyond_bounds_count_as_these() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            let options = Options { rate_hz: value, max_overhead: value, ..Options::default() }.within_bounds();
            assert!(Duration::from_secs_f64(1.0 / options.rate_hz) > Duration::ZERO, "{options:?}");
            assert!(options.max_overhead > 0.0 && options.max_overhead <= 1.0, "{options:?}");
        }
        assert_eq!(Options::default().within_bounds(), Options::default());
    }
}
