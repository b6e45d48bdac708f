//! Reads the stacks of JavaScript programs that run on QuickJS compiled to wasm, and names their functions, files, lines
//! and columns.
//!
//! On the wasm stack of such a guest is the interpreter; which JavaScript functions it runs is in linear memory, as a list
//! of `JSStackFrame`s that begins in a `JSRuntime`. No variable says where that is: [`JavaScript`] finds it from the
//! values on the guest's own stack, reads the list and puts its frames in the place of the wasm frames that ran them.
//!
//! It is a dynamic library for `wlprof --plugin` and knows of wlprof the crate `wlprof-plugin` alone.
#![deny(unsafe_code)]

mod allocators;
mod builtin_names;
mod category;
mod chain;
mod detect;
mod find;
mod functions;
#[cfg(test)]
mod instances_tests;
mod language;
mod layout;
mod lines;
mod linking;
mod memory;
mod merge;
mod module;
mod places;
mod program;
mod properties;
mod roles;
mod symbols;
#[cfg(test)]
mod synthetic;
mod values;
mod walker;
#[cfg(test)]
mod walker_tests;

pub use category::categorize;
pub use language::JavaScript;
pub use layout::Layout;
pub use lines::{Position, locate};
pub use program::JavaScriptProgram;
pub use walker::JavaScriptWalker;

wlprof_plugin::export_plugin!("javascript" => JavaScript);
