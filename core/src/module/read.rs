//! Reads a module with its debug sections, wherever those are.

use super::binary::{ModuleError, read_module};
use super::debug_file;
use super::image::ModuleImage;
use std::path::Path;

/// Reads the module at `path` with its debug sections, which may be in a file of their own; and what there is to say of that.
///
/// # Errors
/// [`ModuleError`] says what the file is and what would do.
pub fn read_image(path: &Path, debug_file: Option<&Path>) -> Result<(ModuleImage, Vec<String>), ModuleError> {
    let bytes = read_module(path)?;
    let image = ModuleImage::parse(bytes, &file_name(path));
    let mut image = image.map_err(|error| ModuleError::Image(path.to_owned(), error))?;
    match debug_file::find(&image, path, debug_file) {
        Ok(Some(debug)) => image.set_debug_file(debug),
        Ok(None) => {}
        // Better no run than a long one without the lines that were asked for.
        Err(message) if debug_file.is_some() => return Err(ModuleError::DebugFile(message)),
        Err(note) => return Ok((image, vec![note])),
    }
    Ok((image, Vec::new()))
}

/// What a module is called that does not say so itself.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
