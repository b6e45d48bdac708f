//! The guest: reads the program, compiles it, and runs it on Wasmtime the way `wasmtime run` would.
//!
//! Nothing here knows that the guest is being profiled.

mod debug_file;
mod engine;
mod foreign_host;
mod image;
mod initial;
mod interface;
mod invoke;
mod load;
mod obstacle;
mod wasi;

#[cfg(test)]
pub(crate) use engine::config;
pub use engine::{EngineOptions, engine};
pub use foreign_host::ForeignHost;
pub use image::{ImageError, IndexSpaces, ModuleImage};
pub use invoke::{ArgumentError, Exit, call};
pub use load::{Guest, LoadError, LoadOptions, Program, read_image, read_module};
pub use obstacle::Obstacle;
pub use wasi::{Directory, GuestState, Stdio, WasiOptions, linker};
