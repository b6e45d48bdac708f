//! The machine code that a guest was compiled to: what its pieces are, where they are, what they are called, how they
//! are unwound and which wasm instructions they are for. Perf maps and jitdumps are written from it, `wlprof annotate --asm` shows it, and the sampler knows Wasmtime's
//! stubs by it.

mod address_map;
mod code_offsets;
mod compiled;
mod compiled_from;
mod compiled_image;
mod image_bytes;
mod native_code;
mod native_symbols;

pub(crate) use code_offsets::{CodeOffsets, Stretches};
pub use compiled::{Compiled, GuestCode};
pub(crate) use compiled_from::was_compiled_from;
pub use compiled_image::CodeName;
pub(crate) use compiled_image::CompiledImage;
pub use native_code::{NativeCode, native_code};
pub use native_symbols::{Lines, for_each_function};
