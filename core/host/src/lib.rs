//! Native code in, frames out: unwinds the parts of a stack that are the host's, and names what is found there.
//!
//! [`HostCode`] is given what code a process has mapped, unwinds from given registers until wasm begins, and gives [`HostFrame`]s, which it names
//! when that is asked for. Its caller reads the process's memory and opens its files. By itself it looks for debug information in `/usr/lib/debug`.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod code;
mod elf_file;
mod fibers;
mod names;
mod object_file;
mod symbol_table;

pub use code::{CodeMapping, HostCode, HostFrame, HostRegisters, UnwindEnd};
