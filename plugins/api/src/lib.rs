//! The contract between wlprof and its language plugins.
//!
//! A plugin gets a WebAssembly module and, at each sample, the wasm stack and the memory of the stopped guest. It returns the stack in
//! terms of the guest's own language. The contract has three levels, each with its own lifetime:
//!
//! 1. [`Language::detect`]: is this module mine? Cheap, once per module.
//! 2. [`Language::attach`]: parse what never changes (symbol tables, offsets of the runtime's structures), once per module. The result is
//!    a [`Program`]. It names frames, once per distinct frame, when the guest cannot be read any more.
//! 3. [`Program::walker`]: make what reads an instance, once per instance. [`Walker::walk`] reads one stack, at every sample. This happens
//!    on the guest's own thread while it stands still in the middle of an instruction.
//!
//! Everything that a walker reads from the guest is hostile until checked: lengths lie, pointers form cycles, and strings change.
//! [`GuestMemory`] bounds every read and [`FrameSink`] bounds the output.
//!
//! A language can be part of wlprof, or a dynamic library that wlprof loads. [`export_plugin!`] makes a library of it, and [`abi`] is the
//! interface between the two sides. Tests of a language need neither wlprof nor a running guest: with the feature `testing`, the module
//! `testing` has a module and a stopped guest for them.
//!
//! This crate depends neither on Wasmtime, nor on how the guest is stopped, nor on any output format.
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
pub use language::{AttachError, Detection, Language, Program, Walker};
pub use memory::{GuestMemory, OutOfBounds};
pub use module::{FunctionImport, Member, ModuleView};
pub use symbol::{Category, Label, SourceFrame};
pub use thread::{Creator, ThreadStack};
