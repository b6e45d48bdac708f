//! Says how and where a guest failed, as Wasmtime does.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use wasmtime::{FrameInfo, WasmBacktrace};
use wlprof::machine_code::{Compiled, GuestCode};
use wlprof_plugin::SourceFrame;
use wlprof_recording::{ModuleId, Origin};
use wlprof_show::escape::single_line;
use wlprof_symbols::Symbols;

/// What failures of a guest are shown with.
pub(super) struct Failures {
    code: GuestCode,
    /// Made when first needed, and kept: a server may fail often.
    symbols: Mutex<Option<Symbols>>,
}

impl Failures {
    pub(super) fn of(code: &GuestCode) -> Self {
        Self { code: code.clone(), symbols: Mutex::new(None) }
    }

    /// The reason first, then where. Not the error's own rendering: with `RUST_BACKTRACE` that shows Wasmtime's stack.
    pub(super) fn how_it_failed(&self, error: &wasmtime::Error) -> String {
        let mut symbols = self.symbols.lock().unwrap_or_else(PoisonError::into_inner);
        let symbols = symbols.get_or_insert_with(|| Symbols::new(&self.code.images, Vec::new()));
        how_it_failed(error, &self.code, symbols)
    }
}

fn how_it_failed(error: &wasmtime::Error, code: &GuestCode, symbols: &mut Symbols) -> String {
    let what = if error.is::<wasmtime::Trap>() { "trapped" } else { "failed" };
    let mut reasons: Vec<String> = error.chain().map(ToString::to_string).collect();
    // The outermost context of a trap is the wasm backtrace, of several lines.
    let place = if reasons.len() > 1 && reasons[0].contains('\n') { reasons.remove(0) } else { String::new() };
    let place = match error.downcast_ref::<WasmBacktrace>() {
        Some(backtrace) if !place.is_empty() => with_lines(&place, backtrace, code, symbols),
        _ => place,
    };
    let text = format!("{what}: {}\n{place}", reasons.join(": "));
    text.trim_end().to_owned()
}

/// The same backtrace in terms of the modules as they were before they were rewritten: without functions that were added, and with the file
/// offsets that other tools know. Below each frame are the lines that the debug information has for it, innermost inlined call first, as
/// Wasmtime shows them with `WASMTIME_BACKTRACE_DETAILS=1`. `place` is Wasmtime's, with a line for each frame.
fn with_lines(place: &str, backtrace: &WasmBacktrace, code: &GuestCode, symbols: &mut Symbols) -> String {
    let mut lines = place.lines();
    let mut text = lines.next().unwrap_or_default().to_owned();
    // If the user's environment has Wasmtime show lines, those of its own stand between the frames.
    let lines = lines.filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let mut is_called_twice = false;
    let own = backtrace.frames().iter().zip(lines).filter_map(|(frame, line)| {
        // An added function is called by one of the module's own, which it has called once more.
        let was_called_before = std::mem::take(&mut is_called_twice);
        let at = at(frame, code);
        is_called_twice = at.is_none();
        at.filter(|_| !was_called_before).map(|at| (frame.func_index(), at, line))
    });
    for (number, (function, At { file_offset, module, code_offset }, line)) in own.enumerate() {
        let name = name_of(line);
        let _ = write!(text, "\n  {number:>3}: {file_offset:#8x} - {name}");
        let mut frames = Vec::new();
        if let (Some(module), Some(code_offset)) = (module, code_offset) {
            symbols.frames(&Origin::Wasm { module, function, code_offset }, &mut frames);
        }
        // Names alone are there already.
        if frames.iter().all(|frame| frame.line.is_none()) {
            continue;
        }
        let count = frames.len();
        for (depth, frame) in (1..).zip(frames) {
            let SourceFrame { function, file, line, column, .. } = frame;
            let inlined =
                if depth < count { format!(" in {} (inlined)", single_line(&function)) } else { String::new() };
            let file = file.map_or_else(|| "<unknown>".to_owned(), |file| single_line(&file));
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            let column = column.map_or_else(String::new, |column| format!(":{column}"));
            let _ = write!(text, "\n                    at {file}{line}{column}{inlined}");
        }
    }
    text
}

/// The function in a line of Wasmtime's: `0: 0x2d3 - module!function`, or without the offset where Wasmtime has none.
fn name_of(line: &str) -> &str {
    let behind_number = line.split_once(": ").map_or(line, |(_, rest)| rest);
    match behind_number.trim_start().split_once(" - ") {
        Some((offset, name)) if offset.starts_with("0x") => name,
        _ => behind_number,
    }
}

/// A place in a module's code.
struct At {
    file_offset: usize,
    /// Which of the guest's modules it is; `None` of one that is not the guest's.
    module: Option<ModuleId>,
    code_offset: Option<u32>,
}

/// Where a frame is. `None` of functions that are not in the file of its module.
fn at(frame: &FrameInfo, code: &GuestCode) -> Option<At> {
    let offset = frame.module_offset().unwrap_or_default();
    let module = match &code.compiled {
        compiled if compiled.image_range() != frame.module().image_range() => None,
        Compiled::Module(_) => Some(0),
        // The numbers behind those of the images are adapters'.
        Compiled::Component(_) => frame.module().functions().next().map(|function| function.module.as_u32()),
    };
    let Some((module, image)) = module.and_then(|module| Some((module, code.images.get(module as usize)?))) else {
        return Some(At { file_offset: offset, module: None, code_offset: None });
    };
    // Of what was added to a function, its start.
    let code_offset = image.compiled_code_offset(offset as u32);
    let (_, start_or_offset) = image.compiled_from(frame.func_index(), code_offset)?;
    Some(At { file_offset: image.file_offset(start_or_offset) as usize, module: Some(module), code_offset })
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn lines_have_names_with_an_offset_and_without() {
        assert_eq!(name_of("    0:  0x2d3 - guest.wasm!f"), "guest.wasm!f");
        assert_eq!(name_of("    0: guest.wasm!f"), "guest.wasm!f");
        assert_eq!(name_of("   12: 0x2d3 - guest.wasm!a: b - c"), "guest.wasm!a: b - c");
    }
}
