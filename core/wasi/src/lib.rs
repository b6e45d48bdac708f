//! Runs an instantiated program as `wasmtime run` does: the world that it is given, WASI, and the calls that start it.

mod component;
mod component_check;
mod flags;
mod http;
mod invoke;
mod link;
mod log_lines;
mod names;
mod state;
mod world;

pub use component::{CallableComponent, ComponentError};
pub use component_check::ComponentNames;
pub use flags::Flags;
pub use http::HttpHandler;
pub use invoke::{ArgumentError, Exit, call};
pub use link::{component_linker, instantiate, linker};
pub use state::{GuestState, make_room_for_profiler, watch_memory};
pub use world::{Directory, Stdio, WasiOptions};

// What wlprof's messages about a guest that cannot be run are made of: no promise to others.
#[doc(hidden)]
pub use invoke::{MAIN_FUNCTIONS, parse_arguments};
#[doc(hidden)]
pub use names::{OWN_HOST, shown};
