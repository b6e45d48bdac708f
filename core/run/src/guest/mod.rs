//! The guest: looks whether the program can be run, and compiles it for Wasmtime as `wasmtime run` would.
//!
//! Nothing here knows that the guest is being profiled.

mod component_names;
mod engine;
mod foreign_host;
mod interface;
mod load;
mod obstacle;

pub use engine::config;
pub use engine::{EngineOptions, engine};
pub use foreign_host::ForeignHost;
pub use load::{Allocators, Entry, Guest, LinkedComponent, LoadError, LoadOptions, Preload, Program};
pub use obstacle::Obstacle;
