//! The machine code that a guest was compiled to: what its pieces are, where they are, what they are called, how they are unwound and which
//! wasm instructions they are for. Perf maps and jitdumps are written from it, and `wlprof annotate --asm` shows it.

mod compiled;
mod compiled_from;
#[cfg(test)]
mod image_tests;
mod mapped;
mod native_code;
mod native_symbols;
mod unwind;

pub use compiled::{Compiled, GuestCode};
pub(crate) use compiled_from::was_compiled_from;
pub use native_code::{NativeCode, native_code};
pub use native_symbols::{Lines, for_each_function};
pub use wlprof_walk::CodeName;
