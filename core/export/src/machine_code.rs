//! A function of a guest's machine code, as formats for `perf record` describe it.

use std::sync::Arc;

/// A function in machine code.
#[derive(Clone, Debug)]
pub struct NativeFunction<'m> {
    /// Where it is.
    pub address: u64,
    /// The code.
    pub code: &'m [u8],
    /// Its name. Untrusted text.
    pub name: String,
    /// From where on which line's code it is, in order, the first from the beginning; empty if no lines are known.
    pub lines: Vec<NativeLine>,
    /// How it is unwound, if that is known.
    pub unwind: Option<UnwindInfo<'m>>,
}

/// Where the code of a line begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeLine {
    /// Offset into the function's code.
    pub offset: u32,
    /// Source file. Untrusted text, not empty. Where the line is not known, that of the code before or after.
    pub file: Arc<str>,
    /// Line, from 1; 0 for code of which none is known, as in DWARF.
    pub line: u32,
}

/// An entry of `.eh_frame` and the one with what it has in common with others, as they are there. Addresses are relative
/// (`DW_EH_PE_pcrel`, eight bytes).
#[derive(Clone, Copy, Debug)]
pub struct UnwindInfo<'m> {
    /// The common information entry.
    pub cie: &'m [u8],
    /// The frame description entry.
    pub fde: &'m [u8],
}
