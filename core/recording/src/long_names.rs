//! Bounds on what guests call things.

use wlprof_plugin::SourceFrame;

/// The longest name that is kept, in bytes: one of a megabyte helps nobody.
const MAX_BYTES: usize = 4096;

/// Bounds the names of a frame, and gives it one if it has none.
pub fn shorten_names(frame: &mut SourceFrame) {
    if frame.function.is_empty() {
        frame.function.push_str("[unknown function]");
    }
    shorten(&mut frame.function);
    frame.linkage_name.iter_mut().chain(&mut frame.file).for_each(shorten);
}

/// Bounds a name.
pub(super) fn shorten(name: &mut String) {
    if name.len() > MAX_BYTES {
        name.truncate(name.floor_char_boundary(MAX_BYTES));
        name.push('…');
    }
}
