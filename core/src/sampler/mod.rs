//! Takes samples of a running guest.
//!
//! [`Session`] is what the rest of the program sees: made for a guest's modules, attached to the thread and the store
//! that run it, finished from anywhere. Behind it stands one of two samplers:
//!
//! * `signal`: timers interrupt the guest's thread and a signal handler reads the stopped
//!   guest in place. Linux on x86-64.
//! * `epoch`: the guest calls back at checks compiled into it. Everywhere Wasmtime runs, at a price.
//!
//! This folder and the two sides of the plugins' C ABI are the places for `unsafe`.

#[cfg(target_os = "linux")]
mod arch;
mod code_map;
#[cfg(test)]
mod code_map_tests;
mod dump;
mod epoch;
mod import_watch;
mod naming;
mod options;
mod os;
mod pauses;
mod perf_marker;
mod session;
mod shared;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod signal;
mod store;

pub use dump::{Dump, DumpedFrame, DumpedFrameId, DumpedThread};
pub use import_watch::ImportWatch;
pub use options::{SamplerKind, SamplerOptions};
pub use perf_marker::show_to_perf;
pub use session::{Finished, RunName, Session};
pub use store::{AttachedStore, SampledStore};

use crate::recording::{PauseStats, TickCounts};

/// A sampler at work.
trait Sampler: Send + Sync {
    /// Its name in profiles.
    fn name(&self) -> &'static str;

    /// Stops the guest for good, wherever it is: in wasm at the next tick, in host code when that returns. Gives up
    /// waiting for it soon, since a blocked host call may last.
    fn halt_guest(&self);

    /// Reads all stacks of the running guest.
    ///
    /// # Errors
    /// Why it cannot.
    fn dump(&self) -> Result<Dump, String>;

    /// Stops sampling. When it returns, every sample is in the recorder. May be called from any thread, and again.
    fn stop(&self) -> Report;
}

/// What a sampler says of its work.
#[derive(Clone, Debug, Default)]
struct Report {
    ticks: TickCounts,
    pause: PauseStats,
    /// Ticks a second that the governor allowed, averaged over the run.
    allowed_hz: f64,
    duration_ns: u64,
    cpu_ns: u64,
    /// CPU time of the guest's thread that sampling took.
    sampling_ns: u64,
    /// Time of [`Meta::clock`](crate::recording::Meta::clock) that no sample stands for.
    unsampled_ns: u64,
    notes: Vec<String>,
}
