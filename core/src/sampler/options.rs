//! Options of the sampler.

use super::ImportWatch;
use crate::heap::Rate;
use std::sync::Arc;
use std::time::Duration;
use wlprof_recording::Clock;

/// The kind of sampler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SamplerKind {
    /// The signal sampler where it works, otherwise the epoch sampler.
    #[default]
    Auto,
    /// Interrupts the guest's thread and reads it in place.
    ///
    /// # Accuracy
    /// Sees every instruction, including host calls. In optimized code the lines of memory accesses, calls and branches are exact.
    /// Arithmetic between them takes the line of the nearest such instruction before it.
    ///
    /// # Overhead
    /// None in the guest's code. Each sample stops the guest for about a microsecond, plus what the machine takes to deliver a signal. That
    /// is next to nothing up to the rate of the kernel's tick. The governor keeps the sum below [`SamplerOptions::max_overhead`].
    ///
    /// # Security
    /// Reads Wasmtime's internal structures as they are in exactly one version of Wasmtime, which is checked at start-up. The guest can
    /// make stacks incomplete. It cannot make a read leave its own stack, code and memory.
    Signal,
    /// Reads the guest where it calls back, at checks compiled into it.
    ///
    /// # Accuracy
    /// Sees only function entries and loop heads. Time in straight-line code goes to the next check, often in another function, and is
    /// marked where that may be. Host calls are seen when they return.
    ///
    /// # Overhead
    /// Guests with many calls take half as long again or more, even before the first sample is taken. Then each sample takes about 3 to 11
    /// µs.
    ///
    /// # Security
    /// As for [`SamplerKind::Signal`].
    Epoch,
}

/// Options of the sampler.
///
/// ```
/// use wlprof::Clock;
/// use wlprof::sampler::SamplerOptions;
///
/// let options = SamplerOptions { clock: Clock::Wall, ..SamplerOptions::at_rate(100.0) };
/// assert_eq!(options.first_hz, None);
/// ```
#[derive(Clone, Debug)]
pub struct SamplerOptions {
    /// Kind of sampler.
    pub kind: SamplerKind,
    /// Samples per second.
    pub rate_hz: f64,
    /// Samples in the first second of CPU time, where they should be more or fewer. Short runs then have enough of them.
    pub first_hz: Option<f64>,
    /// Limit of the cost of sampling, as a fraction of the guest's own CPU time. The rate is lowered to keep it.
    pub max_overhead: f64,
    /// Time that samples stand for.
    pub clock: Clock,
    /// Samples only while a [window](crate::OpenWindow) is open, or after [`Profiler::resume`](crate::Profiler::resume). By default
    /// sampling lasts from first to last.
    pub on_demand: bool,
    /// Time for which samples are kept in memory, for windows that begin in the past ([`Profiler::last`](crate::Profiler::last)). A sample
    /// takes some 13 bytes.
    pub keep: Option<Duration>,
    /// Counts calls of the host that return, by name, for [`Profiler::activity`](crate::Profiler::activity).
    ///
    /// # Overhead
    /// Some nanoseconds per call.
    pub counts_host_calls: bool,
    /// Records which wasm functions were on a stack where the language shows its own frames instead.
    ///
    /// [`Recorder::functions_seen`](wlprof_recording::Recorder::functions_seen) then has them, too.
    pub keep_functions: bool,
    /// Rate at which allocations are sampled, in guests whose modules were rewritten to report them.
    pub heap: Option<Rate>,
    /// Calls of imports at which the guest's stacks are read.
    pub import_watch: Option<Arc<ImportWatch>>,
}

impl SamplerOptions {
    /// Returns the default options with `rate_hz` samples per second, from first to last.
    pub fn at_rate(rate_hz: f64) -> Self {
        Self { rate_hz, first_hz: None, ..Self::default() }
    }
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            kind: SamplerKind::Auto,
            rate_hz: 250.0,
            first_hz: Some(1000.0),
            max_overhead: 0.02,
            clock: Clock::Cpu,
            on_demand: false,
            keep: None,
            counts_host_calls: false,
            keep_functions: false,
            heap: None,
            import_watch: None,
        }
    }
}
