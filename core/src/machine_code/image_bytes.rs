//! The bytes of the image that Wasmtime maps for a compiled module. The one thing of this folder that no safe code does:
//! Wasmtime's API gives the image's address alone, or a copy of it all.

use wasmtime::Module;

/// The image of `module`.
pub(super) fn image_bytes(module: &Module) -> &[u8] {
    let image = module.image_range();
    // SAFETY: the range is the module's mapped image, which lives as long as `module` and is never written.
    unsafe { std::slice::from_raw_parts(image.start, image.end as usize - image.start as usize) }
}
