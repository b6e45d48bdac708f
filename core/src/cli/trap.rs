//! Says how and where a guest failed, as Wasmtime does.

use crate::guest::Guest;
use crate::module::{Compiled, ModuleImage};
use std::fmt::Write;
use wasmtime::{FrameInfo, WasmBacktrace};

/// The reason first, then where. Not the error's own rendering: with `RUST_BACKTRACE` that shows Wasmtime's stack.
pub(super) fn how_it_failed(error: &wasmtime::Error, guest: &Guest) -> String {
    let what = if error.is::<wasmtime::Trap>() { "trapped" } else { "failed" };
    let mut reasons: Vec<String> = error.chain().map(ToString::to_string).collect();
    // The outermost context of a trap is the wasm backtrace, of several lines.
    let place = if reasons.len() > 1 && reasons[0].contains('\n') { reasons.remove(0) } else { String::new() };
    let place = match error.downcast_ref::<WasmBacktrace>() {
        Some(backtrace) if guest.code.images.iter().any(|image| image.is_rewritten()) => {
            as_it_was(&place, backtrace, guest)
        }
        _ => place,
    };
    let text = format!("{what}: {}\n{place}", reasons.join(": "));
    text.trim_end().to_owned()
}

/// The same backtrace in terms of the modules as they were before they were rewritten: without functions that were added, and with the file
/// offsets that other tools know. `place` is Wasmtime's, with a line for each frame.
fn as_it_was(place: &str, backtrace: &WasmBacktrace, guest: &Guest) -> String {
    let mut lines = place.lines();
    let mut text = lines.next().unwrap_or_default().to_owned();
    let mut is_called_twice = false;
    let own = backtrace.frames().iter().zip(lines).filter_map(|(frame, line)| {
        // An added function is called by one of the module's own, which it has called once more.
        let was_called_before = std::mem::take(&mut is_called_twice);
        let offset = offset(frame, guest);
        is_called_twice = offset.is_none();
        offset.filter(|_| !was_called_before).map(|offset| (offset, line))
    });
    for (number, (offset, line)) in own.enumerate() {
        let name = line.split_once(" - ").map_or(line, |(_, name)| name);
        let _ = write!(text, "\n  {number:>3}: {offset:#8x} - {name}");
    }
    text
}

/// Where a frame is in the file of its module. `None` of functions that are not in that.
fn offset(frame: &FrameInfo, guest: &Guest) -> Option<usize> {
    let offset = frame.module_offset().unwrap_or_default();
    let image = match &guest.code.compiled {
        compiled if compiled.image_range() != frame.module().image_range() => None,
        Compiled::Module(_) => guest.code.images.first(),
        Compiled::Component(_) => {
            let number = frame.module().functions().next().and_then(|function| guest.code.module_of(&function));
            number.and_then(|number| guest.code.images.get(number as usize))
        }
    };
    match image {
        Some(image) => offset_before(image, frame.func_index(), offset as u32),
        None => Some(offset),
    }
}

/// The file offset of what `function` has at this one in the rewritten module: its start, of what was added to it.
fn offset_before(image: &ModuleImage, function: u32, offset: u32) -> Option<usize> {
    let (_, code_offset) = image.compiled_from(function, image.compiled_code_offset(offset))?;
    Some(image.file_offset(code_offset) as usize)
}
