//! Finds the separate file that holds a module's debug sections or names.

use super::binary::{binary_form, read_module};
use super::image::ModuleImage;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use wlprof_plugin::ModuleView;

/// Largest debug file that a module can name, in bytes. Those of browsers, the largest programs there are, have half of it.
const LARGEST: u64 = 2 << 30;

/// Reads the debug file of `image`: the one the user named, else the one the module's `external_debug_info` section
/// names, relative to the module's own place. `Err` is a note for the user; the profile then has names alone.
///
/// # Security
/// A module cannot make wlprof read a URL or a path outside its own folder: only a plain file name is followed, and only to
/// a regular file: no link, which leads elsewhere, no pipe or device, which may never end.
pub(super) fn find(
    image: &ModuleImage,
    module_path: &Path,
    named: Option<&Path>,
) -> Result<Option<ModuleImage>, String> {
    let (path, bytes) = match named {
        Some(path) => (path.to_owned(), read_module(path)),
        None => {
            let Some(url) = image.external_debug_info() else { return Ok(None) };
            let path = beside(module_path, url).ok_or_else(|| {
                format!("the module's debug information is at {url:?}; fetch it and name it with --debug-file")
            })?;
            let bytes = read_untrusted(&path)
                .map_err(|error| format!("debug file {}: {error}; --debug-file names another", path.display()))?;
            let module = binary_form(bytes, &path);
            (path, module)
        }
    };
    let bytes = bytes.map_err(|error| format!("debug file {error}"))?;
    let debug =
        ModuleImage::parse(bytes, "debug file").map_err(|error| format!("debug file {}: {error}", path.display()))?;
    if !debug.has_dwarf() && debug.custom_section("name").is_none() {
        return Err(format!(
            "debug file {} has neither a .debug_info section nor a name section (supported: DWARF and names in custom sections); build it with -g",
            path.display()
        ));
    }
    if let Some((of_file, of_guest)) = difference(&debug, image) {
        return Err(format!(
            "debug file {} is of another program or build: it has {of_file}, the guest {of_guest}",
            path.display()
        ));
    }
    Ok(Some(debug))
}

/// Returns the facts by which a debug file and a guest are not of one build; `None` if nothing speaks against it. The code decides where
/// both have it, since the debug information is of its offsets. A file with debug sections only may have a build id.
fn difference(debug: &ModuleImage, guest: &ModuleImage) -> Option<(String, String)> {
    let code = |image: &ModuleImage| {
        let hash = image.code_hash().filter(|_| image.code_size() > 0)?;
        let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("{} bytes of code with the hash {hash}", image.code_size()))
    };
    let build_id = |image: &ModuleImage| image.own_build_id().map(|id| format!("the build id {id}"));
    let facts = code(debug).zip(code(guest)).or_else(|| build_id(debug).zip(build_id(guest)));
    facts.filter(|(of_file, of_guest)| of_file != of_guest)
}

/// The file that a plain file name means, beside the module.
fn beside(module_path: &Path, url: &str) -> Option<PathBuf> {
    let name = Path::new(url);
    let plain = name.file_name().is_some_and(|file| file == name.as_os_str()) && !url.contains(':');
    plain.then(|| module_path.with_file_name(name))
}

/// Reads a file that the user has not named.
fn read_untrusted(path: &Path) -> io::Result<Vec<u8>> {
    let check = |metadata: Metadata| match metadata.file_type() {
        kind if kind.is_symlink() => Err(io::Error::other("it is a link, which is not followed on a module's word")),
        kind if !kind.is_file() => Err(io::Error::other("it is not a regular file")),
        _ => Ok(metadata),
    };
    check(std::fs::symlink_metadata(path)?)?;
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // What was looked at may be another by now: opening a pipe waits for whoever writes to it.
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    let file = options.read(true).open(path)?;
    let metadata = check(file.metadata()?)?;
    let too_large = || io::Error::other(format!("it is larger than {LARGEST} bytes"));
    if metadata.len() > LARGEST {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    // It may grow meanwhile.
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST { Err(too_large()) } else { Ok(bytes) }
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

    /// A module that says its debug information is in the file `name` beside it.
    #[cfg(unix)]
    fn naming(name: &str) -> ModuleImage {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        let section = "external_debug_info";
        bytes.extend([0, (section.len() + name.len() + 2) as u8, section.len() as u8]);
        bytes.extend(section.bytes().chain([name.len() as u8]).chain(name.bytes()));
        ModuleImage::parse(bytes, "guest.wasm").unwrap()
    }

    fn image(text: &str, sections: &[(&str, &[u8])]) -> ModuleImage {
        let mut bytes = wat::parse_str(text).unwrap();
        for (name, content) in sections {
            bytes.extend([0, (name.len() + content.len() + 1) as u8, name.len() as u8]);
            bytes.extend(name.bytes().chain(content.iter().copied()));
        }
        ModuleImage::parse(bytes, "x").unwrap()
    }

    #[test]
    fn a_debug_file_is_of_the_guest_if_the_code_is_or_without_code_the_build_id() {
        let (code, other) = ("(module (func nop))", "(module (func nop nop))");
        let one: &[(&str, &[u8])] = &[("build_id", &[2, 0xab, 1])];
        let two: &[(&str, &[u8])] = &[("build_id", &[2, 0xcd, 2])];
        let facts = |debug: &ModuleImage, guest: &ModuleImage| difference(debug, guest);
        assert_eq!(facts(&image(code, &[("name", &[])]), &image(code, &[])), None);
        assert_eq!(facts(&image(code, one), &image(code, two)), None, "its code is the guest's");
        let (of_file, of_guest) = facts(&image(other, one), &image(code, one)).unwrap();
        assert!(of_file.starts_with("6 bytes of code with the hash "), "{of_file}");
        assert!(of_guest.starts_with("5 bytes of code with the hash "), "{of_guest}");
        let by_id = ("the build id ab01".to_owned(), "the build id cd02".to_owned());
        assert_eq!(facts(&image("(module)", one), &image(code, two)), Some(by_id));
        assert_eq!(facts(&image("(module)", one), &image(code, one)), None);
        assert_eq!(facts(&image("(module)", &[]), &image(code, two)), None, "nothing to tell by");
    }

    #[cfg(unix)]
    #[test]
    fn only_a_regular_file_is_read_on_the_modules_word() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        std::fs::create_dir(place("folder")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(place("pipe")).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", place("endless")).unwrap();
        std::os::unix::fs::symlink("module", place("link")).unwrap();
        std::fs::write(place("module"), b"\0asm\x01\0\0\0").unwrap();
        std::fs::File::create(place("huge")).unwrap().set_len(LARGEST + 1).unwrap();
        for (name, reason) in [
            ("folder", "not a regular file"),
            // Without a writer, opening it waits for ever.
            ("pipe", "not a regular file"),
            ("endless", "it is a link"),
            ("link", "it is a link"),
            ("huge", "larger than"),
            ("nothing", "No such file"),
            // It is read.
            ("module", "neither a .debug_info section nor a name section"),
        ] {
            let note = find(&naming(name), &place("guest.wasm"), None).unwrap_err();
            assert!(note.contains(reason) && note.contains(name), "{name}: {note}");
        }
        // What the user names is the user's affair.
        let note = find(&naming("nothing"), &place("guest.wasm"), Some(&place("link"))).unwrap_err();
        assert!(note.contains("neither a .debug_info section"), "{note}");
    }

    #[test]
    fn a_build_with_names_only_names_functions() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("named.wasm");
        std::fs::write(&file, wat::parse_str("(module (func $work nop))").unwrap()).unwrap();
        let mut guest = image("(module (func nop))", &[]);
        let debug = find(&guest, Path::new("guest.wasm"), Some(&file)).unwrap().unwrap();
        guest.set_debug_file(debug);
        assert_eq!(guest.function_name(0), Some("work"));
    }
}
