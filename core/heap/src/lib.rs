//! Rewrites a guest's module so that its allocator reports a sample of its calls, and keeps account of what it reports.
//!
//! ```text
//! module ──► allocators ──► rewrite ──► module that is compiled
//!                              └──────► offset map: from its code back to the module's own
//! ```
//!
//! Nothing else of the module changes. Its lines, frames and functions are shown as those of the original. This crate does not depend on
//! Wasmtime: who compiles a rewritten module validates the original first.
#![forbid(unsafe_code)]

mod allocators;
mod blocks;
mod bodies;
mod c_library;
mod calls;
mod component;
#[cfg(test)]
mod estimate_tests;
mod instructions;
mod parsed;
mod patches;
mod prepare;
mod rate;
mod rewrite;
mod shared;
mod tail_calls;
mod tinygo;

pub use allocators::{Allocator, Call, NotRewritten, call_of_number};
pub use blocks::{Blocks, Told};
pub use c_library::c_library;
pub use component::PreparedComponent;
pub use instructions::is_inside;
pub use patches::not_expected;
pub use prepare::{NamedAllocator, PreparedModule};
pub use rate::Rate;
pub use rewrite::{EXPORTS, Exports, RewrittenModule, rewrite};
pub use shared::SharedHeap;
