//! Names and lines of a guest's machine code, for tools that sample this process themselves.

use super::GuestCode;
use super::native_code::{NativeCode, native_code};
use std::io;
use std::sync::Arc;
use wlprof_export::{NativeFunction, NativeLine};
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, SourceFrame};
use wlprof_recording::{ModuleId, Origin};
use wlprof_symbols::Symbols;
use wlprof_walk::CodeName;

/// Which lines to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// None: [`NativeFunction::lines`] stays empty.
    Omit,
    /// All that are known. Of inlined functions that is the line in the innermost one.
    Find,
}

/// Calls `write` with each piece of the machine code of a guest, or of what it imports from, that is `wanted`, in order of addresses, and
/// gives their number. `symbols` are those of its modules, which have the ids from `first` on, in order.
///
/// # Errors
/// The first one of `write`.
pub fn for_each_function(
    code: &GuestCode,
    first: ModuleId,
    symbols: &mut Symbols,
    lines: Lines,
    wanted: impl Fn(&CodeName<'_>) -> bool,
    mut write: impl FnMut(&NativeFunction<'_>) -> io::Result<()>,
) -> io::Result<usize> {
    let mut written = 0;
    for native in native_code(code).into_iter().filter(|native| wanted(&native.name)) {
        write(&named(native, &code.images, first, symbols, lines))?;
        written += 1;
    }
    Ok(written)
}

fn named<'m>(
    code: NativeCode<'m>,
    images: &[Arc<ModuleImage>],
    first: ModuleId,
    symbols: &mut Symbols,
    lines: Lines,
) -> NativeFunction<'m> {
    let NativeCode { address, bytes, name, code_offsets, unwind } = code;
    let mut frames = Vec::new();
    let mut found = Vec::new();
    let name = match name {
        CodeName::Entry { name, .. } | CodeName::Stub(name) => name.to_owned(),
        CodeName::Function { module, function } => {
            let mut at = |code_offset, frames: &mut Vec<SourceFrame>| {
                frames.clear();
                symbols.frames(&Origin::Wasm { module: first + module, function, code_offset }, frames);
            };
            if lines == Lines::Find {
                let places = code_offsets.into_iter().map(|(offset, code_offset)| {
                    at(code_offset, &mut frames);
                    (offset, frames.first().and_then(place))
                });
                found = line_table(places.collect());
            }
            let body = images[module as usize].function_body(function).unwrap_or_default();
            at(body.start, &mut frames);
            // The last is the function itself, those before it are inlined at its first instruction.
            frames.pop().map_or_else(|| format!("wasm-function[{function}]"), |frame| frame.function)
        }
    };
    NativeFunction { address, code: bytes, name, lines: found, unwind }
}

/// A file and a line in it.
type Place = (Arc<str>, u32);

fn place(frame: &SourceFrame) -> Option<Place> {
    Some((frame.file.as_deref().filter(|file| !file.is_empty())?.into(), frame.line?))
}

/// The lines of code that has these places from these offsets on.
fn line_table(places: Vec<(u32, Option<Place>)>) -> Vec<NativeLine> {
    let Some(mut file) = places.iter().find_map(|(_, place)| Some(place.as_ref()?.0.clone())) else {
        return Vec::new();
    };
    let mut lines: Vec<NativeLine> = Vec::new();
    for (offset, place) in places {
        let line = match place {
            Some((named, line)) => {
                // Most of a function's lines are in one file.
                if named != file {
                    file = named;
                }
                line
            }
            None => 0,
        };
        if lines.last().is_none_or(|last| last.line != line || last.file != file) {
            lines.push(NativeLine { offset, file: file.clone(), line });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(places: &[(u32, Option<(&str, u32)>)]) -> Vec<(u32, String, u32)> {
        let places = places.iter().map(|&(offset, place)| (offset, place.map(|(file, line)| (file.into(), line))));
        let lines = line_table(places.collect()).into_iter();
        lines.map(|line| (line.offset, line.file.to_string(), line.line)).collect()
    }

    #[test]
    fn code_of_no_known_line_has_none() {
        let places = [(0, None), (4, Some(("a.c", 7))), (6, Some(("a.c", 7))), (9, None), (12, Some(("b.c", 7)))];
        let expected = [(0, "a.c", 0), (4, "a.c", 7), (9, "a.c", 0), (12, "b.c", 7)];
        assert_eq!(table(&places), expected.map(|(offset, file, line)| (offset, file.to_owned(), line)));
        assert_eq!(table(&[(0, None), (4, None)]), []);
    }
}
