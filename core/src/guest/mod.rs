//! The guest: looks whether the program can be run, compiles it, and runs it on Wasmtime the way `wasmtime run` would.
//!
//! Nothing here knows that the guest is being profiled.

mod engine;
mod foreign_host;
mod interface;
mod invoke;
mod load;
mod obstacle;
mod wasi;

#[cfg(test)]
pub(crate) use engine::config;
pub use engine::{EngineOptions, engine};
pub use foreign_host::ForeignHost;
pub use invoke::{ArgumentError, Exit, call};
pub use load::{Guest, LoadError, LoadOptions, Program};
pub use obstacle::Obstacle;
pub use wasi::{Directory, GuestState, Stdio, WasiOptions, linker};
