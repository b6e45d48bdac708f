//! Reads the stacks of Python programs that run on CPython compiled to wasm, releases 3.11 to 3.14, and names their
//! functions, files, lines and columns.
//!
//! On the wasm stack of such a guest is the interpreter; which Python functions it runs is in linear memory, as a chain
//! of frames that starts at `_PyRuntime`. [`Python`] finds that variable, in stripped modules too, reads the chain and
//! puts the Python frames in the place of the wasm frames of the interpreter's loop that ran them. The other wasm
//! frames stay: [`categorize`] tells those that are the interpreter's own from the C code that Python called.
#![forbid(unsafe_code)]

mod addresses;
mod allocators;
mod caller;
#[cfg(test)]
mod caller_tests;
mod category;
mod chain;
mod code;
#[cfg(test)]
mod damage_tests;
mod debug_info;
#[cfg(test)]
mod debug_info_tests;
mod debug_offsets;
mod function_names;
mod functions;
#[cfg(test)]
mod instances_tests;
mod language;
mod layout;
#[cfg(test)]
mod layout_tests;
mod locations;
mod merge;
mod module;
mod program;
mod prologue;
mod runtime;
mod scan;
mod spare;
#[cfg(test)]
mod spare_tests;
mod state;
mod symbols;
#[cfg(test)]
mod synthetic;
mod tasks;
#[cfg(test)]
mod tasks_tests;
mod text;
mod threads;
mod version;
mod walker;
#[cfg(test)]
mod walker_tests;

pub use category::categorize;
pub use language::Python;
pub use locations::{LocationIndex, Position, locate};
pub use program::PythonProgram;
pub use walker::PythonWalker;
