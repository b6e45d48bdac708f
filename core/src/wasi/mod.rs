//! Runs an instantiated program as `wasmtime run` does: the world that it is given, WASI, and the calls that start it.

mod invoke;
mod world;

pub use invoke::{ArgumentError, Exit, call, run_command};
pub(crate) use invoke::{MAIN_FUNCTIONS, parse_arguments};
pub use world::{Directory, GuestState, Stdio, WasiOptions, component_linker, linker, watch_memory};
