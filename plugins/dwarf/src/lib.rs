//! Names wasm frames in the terms of C, C++, Rust, Zig and TinyGo: functions, inlined calls, files and lines from DWARF
//! 4 and 5, and names alone for modules without it.
//!
//! Addresses of wasm DWARF are offsets in the code section, and the module says where every function body lies. So
//! nothing in the DWARF is believed that does not lie inside the body that a frame is in: the remains of functions
//! that the linker dropped, which older linkers leave at address 0 on top of live ones, name nothing.
//!
//! This reads DWARF with `gimli` itself rather than through `addr2line::Context`, which gives up on all units at the
//! first broken one, takes the dead for the living where they overlap, and recurses as deep as the input says.
#![forbid(unsafe_code)]

mod bodies;
mod budget;
mod category;
mod debug_info;
mod demangle;
mod function;
mod inlined;
mod layout;
mod line;
mod names;
mod sections;
mod symbolizer;
mod unit;

pub use layout::Layout;
pub use symbolizer::Symbolizer;
