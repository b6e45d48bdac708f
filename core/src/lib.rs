//! Profiles programs that run WebAssembly on Wasmtime. It shows which lines of a guest's own language the time and the memory went to.
//!
//! A [`Profiler`] samples the stores that are attached to it. The result is a [`recording`], which [`export`] writes in formats that other
//! tools read. The command `wlprof` is the crate `wlprof-cli`.
//!
//! ```text
//! module ──► sampler ──► recording ──► symbols ──► export
//! ```
//!
//! [`module`] reads a program, a [`sampler`] takes samples of it while it runs, and [`symbols`] names their frames. Each part knows only
//! those before it.

pub mod heap;
pub mod machine_code;
pub mod profiler;
pub mod sampler;

pub use profiler::{Attach, Builder, HoldGuard, OpenWindow, Profiler, Snapshot, StoreHandle, configure};
pub use sampler::Activity;
pub use wlprof_export as export;
pub use wlprof_languages as languages;
pub use wlprof_module as module;
#[cfg(feature = "push")]
pub use wlprof_push::{self as push, Push, Pushing};
pub use wlprof_recording::{self as recording, Clock, View, sources};
pub use wlprof_symbols as symbols;
