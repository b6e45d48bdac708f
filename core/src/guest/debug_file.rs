//! Finds the separate file that holds a module's debug sections.

use super::image::ModuleImage;
use super::load::read_module;
use std::path::{Path, PathBuf};

/// Reads the debug file of `image`: the one the user named, else the one the module's `external_debug_info` section
/// names, relative to the module's own place. `Err` is a note for the user; the profile then has names alone.
///
/// # Security
/// A module cannot make wlprof read a URL or a path outside its own folder: only a plain file name is followed.
pub(super) fn find(
    image: &ModuleImage,
    module_path: &Path,
    named: Option<&Path>,
) -> Result<Option<ModuleImage>, String> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => match image.external_debug_info() {
            None => return Ok(None),
            Some(url) => beside(module_path, url).ok_or_else(|| {
                format!("the module's debug information is at {url:?}; fetch it and name it with --debug-file")
            })?,
        },
    };
    let bytes = read_module(&path).map_err(|error| format!("debug file {error}"))?;
    let debug =
        ModuleImage::parse(bytes, "debug file").map_err(|error| format!("debug file {}: {error}", path.display()))?;
    if !debug.has_dwarf() {
        return Err(format!(
            "debug file {} has no .debug_info section (supported: DWARF in custom sections); build it with -g",
            path.display()
        ));
    }
    Ok(Some(debug))
}

/// The file that a plain file name means, beside the module.
fn beside(module_path: &Path, url: &str) -> Option<PathBuf> {
    let name = Path::new(url);
    let plain = name.file_name().is_some_and(|file| file == name.as_os_str()) && !url.contains(':');
    plain.then(|| module_path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_file_name_is_followed() {
        let module = Path::new("/srv/app/app.wasm");
        assert_eq!(beside(module, "app.debug.wasm"), Some(PathBuf::from("/srv/app/app.debug.wasm")));
        for url in ["../secret.wasm", "/etc/passwd", "https://example.org/x.wasm", "sub/x.wasm", "", ".."] {
            assert_eq!(beside(module, url), None, "{url}");
        }
    }
}
