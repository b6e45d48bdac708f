//! The guest: reads the program, compiles it, and runs it on Wasmtime the way `wasmtime run` would.
//!
//! Nothing here knows that the guest is being profiled.

mod debug_file;
mod engine;
mod image;
mod invoke;
mod load;
mod wasi;

#[cfg(test)]
pub(crate) use engine::config;
pub use engine::{EngineOptions, engine};
pub use image::{ImageError, IndexSpaces, ModuleImage};
pub use invoke::{Exit, call};
pub use load::{Guest, LoadError, LoadOptions, read_module};
pub use wasi::{Directory, GuestState, Stdio, WasiOptions, linker, missing_imports};
