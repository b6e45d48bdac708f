//! Finds the source map of a module: what compilers write whose modules have no DWARF, such as AssemblyScript's.
//!
//! # Security
//! A module cannot make wlprof read a URL, or a file outside the module's own folder: [`wlprof_recording::sources`] has the rules. A map has at most
//! [`LARGEST`] bytes.

use super::image::ModuleImage;
use std::path::{Component, Path, PathBuf};
use wlprof_plugin::ModuleView;
use wlprof_recording::sources::{MOST_BYTES_OF_ALL, read_below};

/// Bytes that a map may have: as many as all sources of a recording together, since it has their texts in it.
const LARGEST: u64 = MOST_BYTES_OF_ALL as u64;

/// What a module's address of a map begins with that has the map itself in it.
const DATA: &str = "data:application/json";

/// Reads the map that the `sourceMappingURL` section of `image` names, relative to the module at `module_path`. `None` of a module that
/// names none, or has DWARF.
///
/// # Errors
/// A note for the user. The profile then has names only.
pub(super) fn find(image: &ModuleImage, module_path: &Path) -> Result<Option<Vec<u8>>, String> {
    let Some(url) = image.source_map_url().filter(|_| !image.has_dwarf()) else { return Ok(None) };
    let map = match url.strip_prefix(DATA) {
        Some(data) => in_address(data),
        None => beside(module_path, url),
    };
    map.map(Some).map_err(|reason| format!("{}: {reason}; functions have no lines", image.name()))
}

/// The map in an address of the module's.
fn in_address(data: &str) -> Result<Vec<u8>, String> {
    let broken = || "its source map is in an address that is not base64".to_owned();
    let (_, base64) = data.split_once(";base64,").ok_or_else(broken)?;
    if base64.len() as u64 / 4 * 3 > LARGEST {
        return Err(format!("its source map is larger than {LARGEST} bytes"));
    }
    base64_simd::STANDARD.decode_to_vec(base64).map_err(|_| broken())
}

/// The map in a file beside the module, or in a folder there.
fn beside(module_path: &Path, url: &str) -> Result<Vec<u8>, String> {
    let path = PathBuf::from(url);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_below || url.contains(':') {
        return Err(format!(
            "its source map is at {url:?}, and only files in the module's own folder are read: compile with an address relative to the module"
        ));
    }
    let folder = match module_path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let map = folder.canonicalize().and_then(|folder| read_below(&folder, &path, LARGEST));
    map.map_err(|error| format!("its source map {url:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module whose source map is at `url`.
    fn with_url(url: &str) -> ModuleImage {
        let mut content = Vec::new();
        leb128(url.len(), &mut content);
        content.extend(url.bytes());
        let name = "sourceMappingURL";
        let mut bytes = b"\0asm\x01\0\0\0\0".to_vec();
        leb128(1 + name.len() + content.len(), &mut bytes);
        bytes.push(name.len() as u8);
        bytes.extend(name.bytes().chain(content));
        ModuleImage::parse(bytes, "guest.wasm").unwrap()
    }

    fn leb128(mut number: usize, out: &mut Vec<u8>) {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }

    #[test]
    fn maps_in_the_modules_folder_and_in_its_address_are_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("maps")).unwrap();
        std::fs::write(folder.path().join("maps/a.map"), "{}").unwrap();
        let module = folder.path().join("guest.wasm");
        for url in [
            "maps/a.map",
            "./maps/a.map",
            "data:application/json;base64,e30=",
            "data:application/json;charset=utf-8;base64,e30=",
        ] {
            assert_eq!(find(&with_url(url), &module), Ok(Some(b"{}".to_vec())), "{url}");
        }
        let none = ModuleImage::parse(b"\0asm\x01\0\0\0".to_vec(), "guest.wasm").unwrap();
        assert_eq!(find(&none, &module), Ok(None));
    }

    #[cfg(unix)]
    #[test]
    fn no_other_file_is_read_whatever_a_module_calls_its_map() {
        use std::os::unix::fs::symlink;
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str| place.path().join(name);
        for folder in ["app", "app/.hidden", "app/folder", "other"] {
            std::fs::create_dir(file(folder)).unwrap();
        }
        for name in ["app/.hidden/map", "app/.map", "other/map"] {
            std::fs::write(file(name), "secret").unwrap();
        }
        symlink(file("other/map"), file("app/link.map")).unwrap();
        symlink(file("other"), file("app/out")).unwrap();
        symlink("/dev/zero", file("app/endless")).unwrap();
        std::fs::File::create(file("app/huge")).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(file("app/pipe")).status().unwrap().success());
        let absolute = file("other/map");
        for (url, reason) in [
            ("../other/map", "only files in the module's own folder"),
            ("folder/../../other/map", "only files in the module's own folder"),
            (absolute.to_str().unwrap(), "only files in the module's own folder"),
            ("http://127.0.0.1/x.map", "only files in the module's own folder"),
            ("file:///etc/passwd", "only files in the module's own folder"),
            ("link.map", "outside of the folder"),
            ("out/map", "outside of the folder"),
            ("endless", "outside of the folder"),
            (".map", "hidden"),
            (".hidden/map", "hidden"),
            ("folder", "not a regular file"),
            ("pipe", "not a regular file"),
            ("", "not a regular file"),
            ("huge", "larger than"),
            ("none", "No such file"),
            ("none\0", ""),
            ("data:application/json;base64,!", "not base64"),
            ("data:application/json,{}", "not base64"),
            ("data:text/plain;base64,e30=", "only files"),
        ] {
            let note = find(&with_url(url), &file("app/guest.wasm")).unwrap_err();
            assert!(note.contains(reason) && note.starts_with("guest.wasm: "), "{url}: {note}");
            assert!(!note.contains("secret"), "{note}");
        }
    }
}
