//! You give a language plugin a WebAssembly module and, at each sample, the stopped guest's wasm stack and memory;
//! it gives back the stack in the terms of the guest's own language.
//!
//! The contract has three levels, each with its own lifetime:
//!
//! 1. [`Language::detect`]: is this module mine? Cheap, once per module.
//! 2. [`Language::attach`]: parse what never changes (symbol tables, offsets of the runtime's structures), once per
//!    module.
//! 3. [`Walker::walk`]: read one stack, at every sample, on the guest's own thread while it stands still in the
//!    middle of an instruction. [`Walker::symbolize`] names a frame later, once per distinct frame, when the guest cannot be read
//!    any more.
//!
//! Everything a walker reads from the guest is hostile until checked: lengths lie, pointers form cycles, and what was
//! a string a moment ago is now something else. [`GuestMemory`] bounds every read and [`FrameSink`] bounds the output.
//!
//! A language can be part of wlprof or a dynamic library that it loads: [`export_plugin!`] makes one of it, and [`abi`] is
//! what both sides agree on. Tests of a language need neither wlprof nor a guest that runs: the feature `testing` has a
//! module and a stopped guest for them, in the module `testing`.
//!
//! This crate knows nothing of Wasmtime, of how the guest is stopped, or of any output format.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod abi;
mod budget;
mod frame;
mod heap;
mod key_table;
mod language;
mod memory;
mod module;
#[cfg(feature = "sources")]
pub mod sources;
mod symbol;
#[cfg(feature = "testing")]
pub mod testing;
mod thread;

pub use budget::{Budget, BudgetSpent};
pub use frame::{FrameKey, FrameSink, SinkEntry, Truncation, WasmFrame};
pub use heap::{Allocator, AllocatorCall, HeapBucket, MemoryPatch};
pub use key_table::{KeyTable, NotKept};
pub use language::{AttachError, Detection, Language, Walker};
pub use memory::{GuestMemory, OutOfBounds};
pub use module::{FunctionImport, Member, ModuleView};
pub use symbol::{Category, Label, SourceFrame};
pub use thread::{Creator, ThreadStack};
