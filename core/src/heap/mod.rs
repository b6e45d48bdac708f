//! Compiles modules and components that are rewritten, so that they report their allocations.

mod compile;
#[cfg(test)]
mod rewrite_tests;
mod validity;

pub use compile::{compile, compile_component};
pub use wlprof_heap::*;
