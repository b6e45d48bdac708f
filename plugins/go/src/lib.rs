//! Reads the goroutine stacks of Go programs compiled to wasm by Go's own compiler, and names their functions, files
//! and lines, those of stripped modules too.
//!
//! Go does not use wasm's stack as others do. Each goroutine has a stack in linear memory with return addresses of
//! Go's own making; on wasm's stack is only what was called since the last switch of goroutines. There is no DWARF.
//! But Go's function table, which the runtime itself needs for tracebacks and which no stripping removes, lies in the
//! data segments, and with it everything that [`Go`] needs.
#![forbid(unsafe_code)]

mod body;
mod call_sites;
mod category;
mod code;
mod decoded;
mod goroutines;
mod heap_buckets;
mod heap_profiler;
mod heap_stacks;
mod idle;
mod image;
mod labels;
mod language;
mod layout;
mod leaf;
mod module;
mod moduledata;
mod pclntab;
mod program;
mod scan;
#[cfg(test)]
mod self_check;
mod symbols;
mod version;
mod wait_reason;
mod walk;
mod walker;

pub use language::Go;
pub use program::GoProgram;
pub use walk::Statistics;
pub use walker::GoWalker;
