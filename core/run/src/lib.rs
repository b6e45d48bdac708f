//! Runs a WebAssembly program under a profiler as `wasmtime run` would.
//!
//! [`guest`] looks whether it can be run and compiles it; [`profile`] runs it in the world of [`wlprof_wasi`] under a
//! [`wlprof::Profiler`].

#![forbid(unsafe_code)]

pub mod guest;
pub mod profile;
mod queue;
