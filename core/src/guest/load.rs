//! From a path to a compiled guest.

use super::debug_file;
use super::engine::{EngineOptions, engine};
use super::image::{ImageError, ModuleImage};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wasmtime::{Engine, Module};

/// Why a guest could not be loaded.
#[derive(Debug)]
pub enum LoadError {
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
    /// The engine refuses it.
    Compile(PathBuf, wasmtime::Error),
    /// The engine cannot start.
    Engine(wasmtime::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: {error}", path.display()),
            Self::NotWasm(path, found) => write!(
                f,
                "{}: not WebAssembly but {found} (supported: core modules in binary or text form)",
                path.display()
            ),
            Self::Text(message) | Self::DebugFile(message) => f.write_str(message),
            Self::Image(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Compile(path, error) => write!(f, "{}: Wasmtime cannot compile it: {error:#}", path.display()),
            Self::Engine(error) => write!(f, "Wasmtime cannot start on this machine: {error:#}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Read(_, error) if error.kind() == std::io::ErrorKind::NotFound)
    }
}

/// How to load a guest.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// File with the module's debug sections.
    pub debug_file: Option<PathBuf>,
    /// Compile for the epoch sampler.
    pub epoch_interruption: bool,
    /// Do not use Wasmtime's cache of compiled modules.
    pub no_cache: bool,
}

/// A compiled guest, ready to be instantiated.
#[derive(Clone)]
pub struct Guest {
    /// The engine that compiled it.
    pub engine: Engine,
    /// Its modules, compiled, each with its image.
    pub modules: Vec<(Module, Arc<ModuleImage>)>,
    /// The guest's own name for itself: argument 0.
    pub name: String,
    /// What the user should know, such as missing debug information.
    pub notes: Vec<String>,
    /// Whether it was compiled for the epoch sampler.
    pub epoch_interruption: bool,
}

impl Guest {
    /// Reads and compiles the module at `path`.
    ///
    /// # Errors
    /// [`LoadError`] says what the file is and what would do.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        let bytes = read_module(path)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut image = ModuleImage::parse(bytes, &name).map_err(|error| LoadError::Image(path.to_owned(), error))?;
        let mut notes = Vec::new();
        match debug_file::find(&image, path, options.debug_file.as_deref()) {
            Ok(Some(debug)) => image.set_debug_file(debug),
            Ok(None) => {}
            // Better no run than a long one without the lines that were asked for.
            Err(message) if options.debug_file.is_some() => return Err(LoadError::DebugFile(message)),
            Err(note) => notes.push(note),
        }
        let engine = engine(EngineOptions { epoch_interruption: options.epoch_interruption, cache: !options.no_cache })
            .map_err(LoadError::Engine)?;
        let module = Module::from_binary(&engine, wlprof_plugin::ModuleView::bytes(&image))
            .map_err(|error| LoadError::Compile(path.to_owned(), error))?;
        Ok(Self {
            engine,
            modules: vec![(module, Arc::new(image))],
            name,
            notes,
            epoch_interruption: options.epoch_interruption,
        })
    }
}

/// Reads a module in binary or text form and gives its binary form.
///
/// # Errors
/// [`LoadError`] if there is no such file, or if it is neither form.
pub fn read_module(path: &Path) -> Result<Vec<u8>, LoadError> {
    let bytes = std::fs::read(path).map_err(|error| LoadError::Read(path.to_owned(), error))?;
    if bytes.starts_with(b"\0asm") {
        return Ok(bytes);
    }
    let is_text = path.extension().is_some_and(|extension| extension == "wat") || looks_like_text(&bytes);
    if !is_text {
        return Err(LoadError::NotWasm(path.to_owned(), what_else(&bytes)));
    }
    let text = String::from_utf8_lossy(&bytes);
    wat::parse_str(&text).map_err(|mut error| {
        error.set_path(path);
        LoadError::Text(error.to_string())
    })
}

/// Whether bytes begin like the text form: a parenthesis or a comment.
fn looks_like_text(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    start.starts_with(b"(") || start.starts_with(b";;")
}

/// Names what people pass by mistake.
fn what_else(bytes: &[u8]) -> &'static str {
    match bytes {
        [] => "an empty file",
        [0x7f, b'E', b'L', b'F', ..] => "a native program (ELF)",
        [b'!', b'<', b'a', b'r', ..] => "a static library; link it first",
        [b'#', b'!', ..] => "a script",
        [0x50, 0x4b, 3, 4, ..] => "a zip archive",
        [0x1f, 0x8b, ..] => "a gzip file; decompress it first",
        _ if b"\0asm".starts_with(bytes) => "the beginning of it; the file is cut short",
        _ if bytes.starts_with(&crate::recording::MAGIC) => "a recording; show it with `wlprof render`",
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
        assert_eq!(what_else(b"\0as"), "the beginning of it; the file is cut short");
        assert_eq!(what_else(b"\0\x01\x02"), "data of some other kind");
    }
}
