//! Options that several commands share. What only one has stands with that command.

pub(crate) mod formats;
pub(crate) mod guest;
pub(crate) mod memory;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod profiling;
pub(crate) mod push;
pub(crate) mod sampling;
pub(crate) mod showing;
pub(crate) mod wasmtime;
