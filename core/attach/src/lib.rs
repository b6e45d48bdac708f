//! Samples the WebAssembly guests of another process that runs Wasmtime, of any release from 24 on, without its help.
//!
//! 1. A [`Process`] is opened, and its compiled images are found.
//! 2. A [`Session`] stops one of its threads at a time, at random instants, walks the stack with `wlprof-walk`, and records what it finds.
//!
//! Nothing depends on the release of Wasmtime but what images and stacks look like. This crate does not depend on Wasmtime.
//!
//! # Security
//! What is read of the process is not believed: lengths and counts are bounded. A thread is traced only while it is stopped. If wlprof ends
//! meanwhile, the kernel has the thread run on.
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod failure;
mod files;
mod hosts;
mod images;
mod instance;
mod language;
mod layout;
mod maps;
mod pages;
mod process;
mod processors;
mod reading;
mod sampled;
mod samples;
mod session;
#[allow(unsafe_code)]
mod stack;
mod stand_in;
mod stops;
mod thread;
mod weights;

pub use failure::AttachError;
pub use files::named_files;
pub use hosts::{Host, Hosts};
pub use process::Process;
pub use session::{Finished, Options, ProgramFile, Session};
