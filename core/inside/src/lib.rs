//! Samples the WebAssembly guests of the program that this is part of, whatever release of Wasmtime from 24 on runs them.
//!
//! ```no_run
//! # fn run_guests() {}
//! let profiler = wlprof_inside::Profiler::start()?;
//! let window = profiler.window()?;
//! run_guests();
//! window.snapshot()?.save("profile.json")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Compiled code is found in this process's memory as `wlprof attach` finds it in another's. So nothing is asked of engine or stores, and no
//! crate of Wasmtime's is needed. One thread of the profiler's own looks at the others. It stops each that runs for a moment, by a real-time
//! signal that nothing else has a handler for, and reads its stack.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod labels;
#[cfg(feature = "tower")]
mod pprof_service;
mod profiler;
#[cfg(feature = "push")]
mod push;

pub use labels::{Labels, Scope};
#[cfg(feature = "tower")]
pub use pprof_service::PprofService;
pub use profiler::{OpenWindow, Profiler};
pub use wlprof_attach::{AttachError, Options, Progress};
#[cfg(feature = "formats")]
pub use wlprof_export::{self as export, Snapshot};
#[cfg(feature = "push")]
pub use wlprof_push::{Push, PushCounts, Pushing};
pub use wlprof_recording::{self as recording, Clock, View};
