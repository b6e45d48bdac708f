//! Runs an instantiated program as `wasmtime run` does: the world that it is given, WASI preview 1, and the calls that start
//! it.

mod invoke;
mod world;

pub use invoke::{ArgumentError, Exit, call};
pub(crate) use invoke::{MAIN_FUNCTIONS, parse_arguments};
pub use world::{Directory, GuestState, Stdio, WasiOptions, linker, watch_memory};
