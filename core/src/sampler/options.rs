//! How to sample.

use super::ImportWatch;
use crate::heap::Rate;
use std::sync::Arc;
use std::time::Duration;
use wlprof_recording::Clock;

/// Which sampler to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SamplerKind {
    /// The signal sampler where it works, else the epoch sampler.
    #[default]
    Auto,
    /// Interrupts the guest's thread and reads it in place.
    ///
    /// # Accuracy
    /// Sees every instruction, host calls included. Lines of optimized code are exact for memory accesses, calls and
    /// branches; arithmetic between them takes the line of the nearest such instruction before it.
    ///
    /// # Overhead
    /// None in the guest's code. Each sample stops the guest for about a microsecond, plus what the machine takes to
    /// deliver a signal, which is next to nothing up to the rate of the kernel's tick; the governor keeps the sum below [`SamplerOptions::max_overhead`].
    ///
    /// # Security
    /// Reads Wasmtime's internal structures of exactly one Wasmtime version, checked at start-up. The guest can make
    /// stacks incomplete but not make a read leave its own stack, code and memory.
    Signal,
    /// The guest calls back at checks compiled into it.
    ///
    /// # Accuracy
    /// Sees only function entries and loop heads: time in straight-line code goes to the next check, often in another
    /// function, and is marked where that may be. Host calls are seen when they return.
    ///
    /// # Overhead
    /// The guest takes a half longer and more where calls are many, before the first sample is taken, then about 3 to 11 µs a sample.
    ///
    /// # Security
    /// As for [`SamplerKind::Signal`].
    Epoch,
}

/// How to sample.
#[derive(Clone, Debug)]
pub struct SamplerOptions {
    /// Which sampler.
    pub kind: SamplerKind,
    /// Samples a second.
    pub rate_hz: f64,
    /// Samples in the first second of CPU time, where they are to be more or fewer: short runs have enough then.
    pub first_hz: Option<f64>,
    /// The most that sampling may cost the process, as a fraction of the guest's own CPU time; the rate is lowered to keep it.
    pub max_overhead: f64,
    /// What time samples stand for.
    pub clock: Clock,
    /// Sample only while a [window](crate::OpenWindow) is open, or [`Profiler::resume`](crate::Profiler::resume) has been said; unless told so, from
    /// first to last.
    pub on_demand: bool,
    /// Keep the samples of so long in memory, for windows that begin in the past ([`Profiler::last`](crate::Profiler::last)): some 13
    /// bytes each.
    pub keep: Option<Duration>,
    /// Count calls of the host that return by name, for [`Profiler::activity`](crate::Profiler::activity).
    ///
    /// # Overhead
    /// Some nanoseconds a call.
    pub counts_host_calls: bool,
    /// Keep in mind which wasm functions were on a stack where the language shows its own frames instead:
    /// [`Recorder::functions_seen`](wlprof_recording::Recorder::functions_seen) knows of them then.
    pub keep_functions: bool,
    /// Sample what guests allocate, as often as this says, where their modules were rewritten to tell of it.
    pub heap: Option<Rate>,
    /// Calls of imports at which to read the guest's stacks.
    pub import_watch: Option<Arc<ImportWatch>>,
}

impl SamplerOptions {
    /// The usual ones at so many samples a second, from first to last.
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
