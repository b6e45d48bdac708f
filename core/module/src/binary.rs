//! From a file to the binary form of the module in it, whichever form that has.

use super::sections::ImageError;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a file cannot be read as a module.
#[derive(Debug)]
pub enum ModuleError {
    /// The file cannot be read.
    Read(PathBuf, std::io::Error),
    /// It is not WebAssembly.
    NotWasm(PathBuf, &'static str),
    /// Its text form does not parse. The message shows where.
    Text(String),
    /// The debug file that the user named is of no use. The message shows why.
    DebugFile(String),
    /// It is WebAssembly that wlprof cannot run.
    Image(PathBuf, ImageError),
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: {error}", path.display()),
            Self::NotWasm(path, found) => write!(
                f,
                "{}: not WebAssembly but {found} (supported: modules and components in binary or text form)",
                path.display()
            ),
            Self::Text(message) | Self::DebugFile(message) => f.write_str(message),
            Self::Image(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ModuleError {}

/// Reads a module in binary or text form and gives its binary form.
///
/// # Errors
/// [`ModuleError`] if there is no such file, or if it is neither form.
pub fn read_module(path: &Path) -> Result<Vec<u8>, ModuleError> {
    let bytes = std::fs::read(path).map_err(|error| ModuleError::Read(path.to_owned(), error))?;
    binary_form(bytes, path)
}

/// The binary form of the module that was read from `path`.
pub(super) fn binary_form(bytes: Vec<u8>, path: &Path) -> Result<Vec<u8>, ModuleError> {
    if bytes.starts_with(b"\0asm") {
        return Ok(bytes);
    }
    let is_text = path.extension().is_some_and(|extension| extension == "wat") || looks_like_text(&bytes);
    if !is_text {
        return Err(ModuleError::NotWasm(path.to_owned(), what_else(&bytes)));
    }
    let text = String::from_utf8_lossy(&bytes);
    wat::parse_str(&text).map_err(|mut error| {
        error.set_path(path);
        ModuleError::Text(error.to_string())
    })
}

/// Whether bytes begin like the text form: a parenthesis or a comment.
fn looks_like_text(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    start.starts_with(b"(") || start.starts_with(b";;")
}

/// The ABI that Wasmtime's images of compiled modules say they are of: `ELFOSABI_WASMTIME` of `wasmtime_environ::obj`.
const ELFOSABI_WASMTIME: u8 = 200;

/// Names what people pass by mistake.
fn what_else(bytes: &[u8]) -> &'static str {
    match bytes {
        [] => "an empty file",
        [0x7f, b'E', b'L', b'F', _, _, _, ELFOSABI_WASMTIME, ..] => {
            "a module that is compiled already (.cwasm); give the .wasm that it was compiled from"
        }
        [0x7f, b'E', b'L', b'F', ..] => "a native program (ELF)",
        [b'!', b'<', b'a', b'r', ..] => "a static library; link it first",
        [b'#', b'!', ..] => "a script",
        [0x50, 0x4b, 3, 4, ..] => "a zip archive",
        [0x1f, 0x8b, ..] => "a gzip file; decompress it first",
        _ if b"\0asm".starts_with(bytes) => "the beginning of it; the file is cut short",
        _ if bytes.starts_with(&wlprof_recording::MAGIC) => "a recording; show it with `wlprof render`",
        _ if std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0) => "a text file",
        _ => "data of some other kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_what_is_not_wasm() {
        assert!(looks_like_text(b"\n (module)"));
        assert!(looks_like_text(b";; a comment"));
        assert!(!looks_like_text(b"print('hello')"));
        assert_eq!(what_else(b"\x7fELF\x02"), "a native program (ELF)");
        assert!(what_else(b"\x7fELF\x02\x01\x01\xc8\0").contains(".cwasm"));
        assert_eq!(what_else(b"\0as"), "the beginning of it; the file is cut short");
        assert_eq!(what_else(b"\0\x01\x02"), "data of some other kind");
    }
}
