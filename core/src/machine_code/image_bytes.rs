//! The bytes of the image that Wasmtime maps for a compiled module or component. The one thing of this folder that no safe code does:
//! Wasmtime's API gives the image's address alone, or a copy of it all.

use super::Compiled;

/// The image of `compiled`.
pub(super) fn image_bytes(compiled: &Compiled) -> &[u8] {
    let image = compiled.image_range();
    // SAFETY: the range is the mapped image of a module or a component, which lives as long as `compiled` and is never written.
    unsafe { std::slice::from_raw_parts(image.start, image.end as usize - image.start as usize) }
}
