//! The image that Wasmtime maps for a compiled module or component, in place. The one thing of this folder that no safe code does: Wasmtime's
//! API gives the image's address alone, or a copy of it all.

use super::{Compiled, GuestCode};
use std::sync::Arc;
use wlprof_walk::MappedImage;

/// The image of a module or a component, which lives as long as this.
struct InPlace(Compiled);

impl AsRef<[u8]> for InPlace {
    fn as_ref(&self) -> &[u8] {
        image_bytes(&self.0)
    }
}

/// The image of `compiled`.
pub(super) fn image_bytes(compiled: &Compiled) -> &[u8] {
    let image = compiled.image_range();
    // SAFETY: the range is the mapped image of a module or a component, which lives as long as `compiled` and is never written.
    unsafe { std::slice::from_raw_parts(image.start, image.end as usize - image.start as usize) }
}

impl GuestCode {
    /// Returns the image as this process has it. It keeps the code alive.
    pub fn mapped_image(&self) -> MappedImage {
        let bytes = Arc::new(InPlace(self.compiled.clone()));
        MappedImage { bytes, address: self.compiled.image_range().start as usize, modules: self.images.clone() }
    }
}
