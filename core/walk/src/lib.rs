//! Walks the stacks of threads that run WebAssembly which Wasmtime compiled.
//!
//! A walk needs the registers of a stopped thread, the stack's memory and the compiled images. It does not matter whose these are: a signal
//! handler walks its own thread's stack in place. This crate does not depend on Wasmtime.
//!
//! 1. [`MappedImage`] is a compiled image as it lies in a process; [`CompiledImage`] parses it.
//! 2. [`CodeMap`] has all images, and says of an address which wasm instruction it is for.
//! 3. [`Walk`] follows the frame pointers and writes [`Frames`].

mod address_map;
mod arch;
mod code_map;
mod code_offsets;
mod compiled_image;
mod dump;
mod frames;
mod language;
mod language_record;
mod mapped_image;
mod stack_memory;
mod walk;

pub use address_map::{AddressMap, Row};
pub use arch::{
    Caller, DIRECT_CALL, LONGEST_INDIRECT_CALL, Registers, calls_indirectly, directly_called, has_tail_call,
    return_address,
};
pub use code_map::{Code, CodeKind, CodeMap, CodeReader, MappedCode, NativePc};
pub use code_offsets::{CodeOffsets, Stretches};
pub use compiled_image::{CodeName, CompiledImage};
pub use dump::{Dump, DumpedFrame, DumpedFrameId, DumpedThread};
pub use frames::{FrameWord, Frames, MAX_FRAMES, MAX_ROOTS, WalkTruncation};
pub use language::LanguageStacks;
pub use language_record::{LanguageEntry, LanguageStack, MAX_LANGUAGE_WORDS};
pub use mapped_image::MappedImage;
pub use stack_memory::StackMemory;
pub use walk::{Activation, End, Walk};
