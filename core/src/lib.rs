//! You give wlprof a WebAssembly program; it runs it on Wasmtime and tells which lines of the program's own language
//! the time went to.
//!
//! ```text
//! module ──► guest ──► sampler ──► recording ──► symbols ──► export
//! ```
//!
//! [`module`] reads a program, [`guest`] compiles it, [`profile`] runs it in the world of [`wasi`] under a [`sampler`],
//! [`symbols`] names what was seen, and [`export`] writes the [`recording`] in the formats that people's tools read. Each
//! part knows only those before it.
//!
//! Programs that run guests of their own use [`Profiler`], as [`profile`] does.

#[cfg(all(feature = "loader", feature = "wasi"))]
pub mod conformance;
#[cfg(feature = "wasi")]
pub mod guest;
pub mod heap;
pub mod languages;
pub mod machine_code;
#[cfg(feature = "wasi")]
pub mod profile;
pub mod profiler;
pub mod sampler;

#[cfg(feature = "cli")]
pub mod cli;

pub use profiler::{Attach, Attached, Builder, Held, OpenWindow, Profiler, Snapshot, configure};
pub use sampler::Activity;
pub use wlprof_export as export;
pub use wlprof_module as module;
pub use wlprof_recording::{self as recording, Clock, View, sources};
pub use wlprof_symbols as symbols;

#[cfg(feature = "wasi")]
pub mod wasi {
    //! Runs an instantiated program as `wasmtime run` does: the world that it is given, WASI, and the calls that start it.
    //!
    //! It is a crate of its own, `wlprof-wasi`, as half of all code that is compiled is of WASI's functions.

    pub use wlprof_wasi::{
        ArgumentError, CallableComponent, ComponentError, Directory, Exit, Flags, GuestState, HttpHandler, Stdio,
        WasiOptions, call, component_linker, instantiate, linker, make_room_for_profiler, watch_memory,
    };
}
