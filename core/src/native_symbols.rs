//! Names and lines of a guest's machine code, for tools that sample this process themselves.

use crate::guest::Guest;
use crate::recording::{ModuleId, Origin};
use crate::sampler::{CodeName, NativeCode, UnwindInfo, native_code};
use crate::symbols::Symbols;
use std::io;
use std::sync::Arc;
use wlprof_plugin::{ModuleView, SourceFrame};

/// A function in machine code.
#[derive(Clone, Debug)]
pub struct NativeFunction<'m> {
    /// Where it is.
    pub address: u64,
    /// The code.
    pub code: &'m [u8],
    /// Its name. Untrusted text.
    pub name: String,
    /// From where on which line's code it is, in order; empty if no lines are known.
    pub lines: Vec<NativeLine>,
    /// How it is unwound, if that is known.
    pub unwind: Option<UnwindInfo<'m>>,
}

/// Where the code of a line begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeLine {
    /// Offset into the function's code.
    pub offset: u32,
    /// Source file. Untrusted text, not empty.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
}

/// Which lines to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// None: [`NativeFunction::lines`] stays empty.
    Omit,
    /// All that are known. Of inlined functions that is the line in the innermost one.
    Find,
}

/// Calls `write` with each piece of a guest's machine code that is `wanted`, in order of addresses within a module, and
/// gives their number. `symbols` are those of the guest's modules.
///
/// # Errors
/// The first one of `write`.
pub fn for_each_function(
    guest: &Guest,
    symbols: &mut Symbols,
    lines: Lines,
    wanted: impl Fn(ModuleId, &CodeName<'_>) -> bool,
    mut write: impl FnMut(&NativeFunction<'_>) -> io::Result<()>,
) -> io::Result<usize> {
    let mut written = 0;
    for (id, (module, image)) in guest.modules.iter().enumerate() {
        let id = id as ModuleId;
        for code in native_code(module, image).into_iter().filter(|code| wanted(id, &code.name)) {
            write(&named(code, id, &**image, symbols, lines))?;
            written += 1;
        }
    }
    Ok(written)
}

fn named<'m>(
    code: NativeCode<'m>,
    module: ModuleId,
    image: &dyn ModuleView,
    symbols: &mut Symbols,
    lines: Lines,
) -> NativeFunction<'m> {
    let NativeCode { address, bytes, name, code_offsets, unwind } = code;
    let mut frames = Vec::new();
    let mut found = Vec::new();
    let name = match name {
        CodeName::Entry { name, .. } | CodeName::Stub(name) => name.to_owned(),
        CodeName::Function(function) => {
            let mut at = |code_offset, frames: &mut Vec<SourceFrame>| {
                frames.clear();
                symbols.frames(&Origin::Wasm { module, function, code_offset }, frames);
            };
            if lines == Lines::Find {
                for (offset, code_offset) in code_offsets {
                    at(code_offset, &mut frames);
                    add_line(&mut found, offset, frames.first());
                }
            }
            let body = image.function_body(function).unwrap_or_default();
            at(body.start, &mut frames);
            // The last is the function itself, those before it are inlined at its first instruction.
            frames.pop().map_or_else(|| format!("wasm-function[{function}]"), |frame| frame.function)
        }
    };
    NativeFunction { address, code: bytes, name, lines: found, unwind }
}

fn add_line(lines: &mut Vec<NativeLine>, offset: u32, frame: Option<&SourceFrame>) {
    let Some(SourceFrame { file: Some(file), line: Some(line), .. }) = frame else { return };
    let last = lines.last();
    if file.is_empty() || last.is_some_and(|last| last.line == *line && *last.file == **file) {
        return;
    }
    // What comes before the first line that is known, the prologue, is its as well.
    let offset = if last.is_some() { offset } else { 0 };
    let file = match last {
        Some(last) if *last.file == **file => last.file.clone(),
        _ => Arc::from(file.as_str()),
    };
    lines.push(NativeLine { offset, file, line: *line });
}
