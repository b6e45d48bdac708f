//! Samples the WebAssembly guests of another process that runs Wasmtime, of any release from 24 on, without its help.
//!
//! 1. A [`Process`] is opened, and its compiled images are found.
//! 2. A [`Session`] stops its threads one after the other, at random instants, walks the stack with `wlprof-walk`, and records what it finds.
//!
//! Only what images and stacks look like depends on the release of Wasmtime. This crate does not depend on Wasmtime.
//!
//! # Security
//! What is read of the process is not believed: lengths and counts are bounded. A thread is traced from the moment in which it is asked to stop
//! until it runs on. If wlprof ends meanwhile, or the thread of it that traces, the kernel has the traced thread run on.
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod compaction;
mod failure;
mod fibers;
mod files;
mod host_frames;
mod hosts;
mod images;
mod initial_data;
mod instance;
mod language;
mod layout;
mod maps;
mod options;
mod pages;
mod process;
mod processors;
mod program_files;
mod rate_limit;
mod reading;
mod sampled;
mod samples;
mod sampling;
mod session;
mod shared;
#[allow(unsafe_code)]
mod signaller;
#[cfg(all(test, target_arch = "x86_64"))]
mod single_step_tests;
#[allow(unsafe_code)]
mod stack;
mod stand_in;
#[allow(unsafe_code)]
mod stopper;
mod stops;
mod thread;
#[allow(unsafe_code)]
mod tracer;
mod weights;
mod window;
mod window_names;

pub use failure::AttachError;
pub use files::named_files;
pub use hosts::{Host, Hosts};
pub use options::Options;
pub use process::Process;
pub use program_files::{Language, ProgramFile};
pub use rate_limit::RateLimit;
pub use samples::{Labels, ThreadLabels};
pub use session::{Session, SessionOutcome};
pub use shared::SharedSession;
pub use window::{Progress, Window};
pub use window_names::WindowNames;

/// Returns the number that the kernel has for this thread: the one by which [`Session::label_threads`] asks.
pub fn thread_id() -> i32 {
    nix::unistd::gettid().as_raw()
}
