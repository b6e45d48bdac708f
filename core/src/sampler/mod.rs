//! Takes samples of a running guest.
//!
//! A [`Profiler`](crate::Profiler) is what programs see of it, the `wlprof` command among them. It takes samples in one of two ways:
//!
//! * `signal`: timers interrupt the guest's thread and a signal handler reads the stopped
//!   guest in place. Linux on x86-64 and aarch64.
//! * `epoch`: the guest calls back at checks compiled into it. Everywhere Wasmtime runs, at a price.
//!
//! This folder and the two sides of the plugins' C ABI are the places for `unsafe`.

// Where there is no signal sampler, nobody asks for what only that needs.
#![cfg_attr(not(all(target_os = "linux", any(target_arch = "aarch64", target_arch = "x86_64"))), allow(dead_code))]

mod at_work;
#[cfg(test)]
mod code_map_tests;
mod configure;
mod drain;
mod heap;
mod import_watch;
mod kept;
mod options;
mod os;
mod reading;
mod running;
mod session;
mod shared;
mod store;
mod timing;
mod transport;
mod unloading;
mod window;

pub use configure::configure;
pub use import_watch::ImportWatch;
pub use options::{SamplerKind, SamplerOptions};
pub use os::perf_marker::show_to_perf;
pub use session::{RunName, SessionOutcome};
pub use window::Activity;

pub use wlprof_walk::{Dump, DumpedFrame, DumpedFrameId, DumpedThread};

pub(crate) use running::{EmbeddersHook, StoreName};
pub(crate) use session::Session;
pub(crate) use shared::LoadedModule;
pub(crate) use store::{AttachedStore, HeldStore};
pub(crate) use window::{Sampling, Window, WindowEnd};

use wlprof_recording::{PauseStats, TickCounts};

/// What came of sampling, besides the samples.
#[derive(Clone, Debug, Default)]
struct Report {
    ticks: TickCounts,
    pause: PauseStats,
    /// Ticks a second that the governor allowed, averaged over the run.
    allowed_hz: f64,
    duration_ns: u64,
    cpu_ns: u64,
    /// CPU time that sampling took from the guests' threads.
    sampling_ns: u64,
    /// Time of [`Meta::clock`](wlprof_recording::Meta::clock) that no sample stands for.
    unsampled_ns: u64,
    notes: Vec<String>,
}
