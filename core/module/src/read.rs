//! Reads a module with its debug sections, wherever those are, or a component with the modules in it.

use super::binary::{ModuleError, read_module};
use super::component::core_modules;
use super::debug_file;
use super::image::ModuleImage;
use super::source_map;
use std::path::Path;
use wasmparser::Parser;

/// What is in a file.
#[derive(Debug)]
pub enum Binary {
    /// A module.
    Module(Box<ModuleImage>),
    /// A component.
    Component {
        /// All of it.
        bytes: Vec<u8>,
        /// The modules that lie in it: see [`core_modules`].
        modules: Vec<ModuleImage>,
    },
}

impl Binary {
    /// The module, or the component's modules in their order.
    pub fn into_images(self) -> Vec<ModuleImage> {
        match self {
            Self::Module(image) => vec![*image],
            Self::Component { modules, .. } => modules,
        }
    }
}

/// Reads the module or component at `path` with the debug sections, which a module may have in a file of their own; and what there is to say
/// of that.
///
/// # Errors
/// [`ModuleError`] says what the file is and what would do.
pub fn read_binary(path: &Path, debug_file: Option<&Path>) -> Result<(Binary, Vec<String>), ModuleError> {
    parse_binary(read_module(path)?, path, debug_file)
}

/// Parses a module or component in its binary form, which was read from `path`, as [`read_binary`] does.
///
/// # Errors
/// [`ModuleError`] says what the file is and what would do.
pub fn parse_binary(
    bytes: Vec<u8>,
    path: &Path,
    debug_file: Option<&Path>,
) -> Result<(Binary, Vec<String>), ModuleError> {
    let malformed = |error| ModuleError::Image(path.to_owned(), error);
    if Parser::is_component(&bytes) {
        if let Some(debug_file) = debug_file {
            return Err(ModuleError::DebugFile(format!(
                "debug file {}: {} is a component, whose modules have their debug information in them",
                debug_file.display(),
                path.display()
            )));
        }
        let mut modules = core_modules(&bytes, &file_name(path)).map_err(malformed)?;
        let notes = modules.iter_mut().filter_map(|image| add_source_map(image, path)).collect();
        return Ok((Binary::Component { bytes, modules }, notes));
    }
    let mut image = ModuleImage::parse(bytes, &file_name(path)).map_err(malformed)?;
    let mut notes = Vec::new();
    match debug_file::find(&image, path, debug_file) {
        Ok(Some(debug)) => image.set_debug_file(debug),
        Ok(None) => {}
        // Better no run than a long one without the lines that were asked for.
        Err(message) if debug_file.is_some() => return Err(ModuleError::DebugFile(message)),
        Err(note) => notes.push(note),
    }
    notes.extend(add_source_map(&mut image, path));
    Ok((Binary::Module(Box::new(image)), notes))
}

/// Adds the source map of a module of the file at `path`. Returns what there is to say of one that cannot be had.
fn add_source_map(image: &mut ModuleImage, path: &Path) -> Option<String> {
    match source_map::find(image, path) {
        Ok(json) => {
            json.into_iter().for_each(|json| image.set_source_map(json));
            None
        }
        Err(note) => Some(note),
    }
}

/// What a module is called that does not say so itself.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
