//! From a path to a program that is known to be one that can be run, and from that to a compiled guest.

use super::debug_file;
use super::engine::{EngineOptions, engine};
use super::image::{ImageError, ModuleImage};
use super::interface::Interface;
use super::obstacle::Obstacle;
use super::wasi::{Stdio, WasiOptions, linker};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wasmtime::{Engine, Module, Precompiled, Store};
use wlprof_plugin::ModuleView;

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
    /// Something that it needs is not there.
    Obstacle(PathBuf, Obstacle),
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
            Self::Obstacle(path, obstacle) => write!(f, "{}: {obstacle}", path.display()),
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
    /// Reads and compiles the module at `path`. [`Program`] does it in steps, with a look at what the module needs.
    ///
    /// # Errors
    /// [`LoadError`] says what the file is and what would do.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        Program::read(path, options)?.compile()
    }
}

/// A module that has been read and not yet compiled.
pub struct Program {
    path: PathBuf,
    name: String,
    image: ModuleImage,
    interface: Interface,
    engine: Engine,
    epoch_interruption: bool,
    notes: Vec<String>,
}

impl Program {
    /// Reads the module at `path`.
    ///
    /// # Errors
    /// [`LoadError`] says what the file is and what would do.
    pub fn read(path: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        let (image, notes) = read_image(path, options.debug_file.as_deref())?;
        let name = name_of(path);
        let interface = Interface::read(image.bytes())
            .map_err(|error| LoadError::Image(path.to_owned(), ImageError::Malformed(error)))?;
        let epoch_interruption = options.epoch_interruption;
        let engine =
            engine(EngineOptions { epoch_interruption, cache: !options.no_cache }).map_err(LoadError::Engine)?;
        Ok(Self { path: path.to_owned(), name, image, interface, engine, epoch_interruption, notes })
    }

    /// What the module's sections say.
    pub fn image(&self) -> &ModuleImage {
        &self.image
    }

    /// Finds what keeps `function`, or the main function if none is named, from being called with `arguments`.
    ///
    /// # Errors
    /// [`LoadError::Obstacle`] says what is in the way and what to do about it.
    pub fn check(&self, function: Option<&str>, arguments: &[String]) -> Result<(), LoadError> {
        let world = WasiOptions { stdio: Stdio::Null, ..WasiOptions::default() };
        let mut store = Store::new(&self.engine, world.build().map_err(LoadError::Engine)?);
        let linker = linker(&self.engine).map_err(LoadError::Engine)?;
        let obstacle = self.interface.check(&mut store, &linker, function, arguments);
        obstacle.map_err(|obstacle| LoadError::Obstacle(self.path.clone(), obstacle))
    }

    /// What the user should know of a run of the main function: that there is none.
    pub fn note_without_main(&self) -> Option<String> {
        self.interface.note_without_main(&self.name)
    }

    /// Compiles it.
    ///
    /// # Errors
    /// [`LoadError::Compile`] says what the engine refuses.
    pub fn compile(self) -> Result<Guest, LoadError> {
        let Self { path, name, image, engine, epoch_interruption, notes, .. } = self;
        let module = Module::from_binary(&engine, image.bytes()).map_err(|error| LoadError::Compile(path, error))?;
        Ok(Guest { engine, modules: vec![(module, Arc::new(image))], name, notes, epoch_interruption })
    }
}

/// Reads the module at `path` with its debug sections, which may be in a file of their own; and what there is to say of that.
///
/// # Errors
/// [`LoadError`] says what the file is and what would do.
pub fn read_image(path: &Path, debug_file: Option<&Path>) -> Result<(ModuleImage, Vec<String>), LoadError> {
    let bytes = read_module(path)?;
    let image = ModuleImage::parse(bytes, &name_of(path));
    let mut image = image.map_err(|error| LoadError::Image(path.to_owned(), error))?;
    match debug_file::find(&image, path, debug_file) {
        Ok(Some(debug)) => image.set_debug_file(debug),
        Ok(None) => {}
        // Better no run than a long one without the lines that were asked for.
        Err(message) if debug_file.is_some() => return Err(LoadError::DebugFile(message)),
        Err(note) => return Ok((image, vec![note])),
    }
    Ok((image, Vec::new()))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Reads a module in binary or text form and gives its binary form.
///
/// # Errors
/// [`LoadError`] if there is no such file, or if it is neither form.
pub fn read_module(path: &Path) -> Result<Vec<u8>, LoadError> {
    let bytes = std::fs::read(path).map_err(|error| LoadError::Read(path.to_owned(), error))?;
    module_of(bytes, path)
}

/// The binary form of the module that was read from `path`.
pub(super) fn module_of(bytes: Vec<u8>, path: &Path) -> Result<Vec<u8>, LoadError> {
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
        _ if matches!(Engine::detect_precompiled(bytes), Some(Precompiled::Module | Precompiled::Component)) => {
            "a module that is compiled already (.cwasm); give the .wasm that it was compiled from"
        }
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
        let module = wat::parse_str("(module)").unwrap();
        let compiled = Engine::default().precompile_module(&module).unwrap();
        assert!(what_else(&compiled).contains(".cwasm"));
        assert_eq!(what_else(b"\0as"), "the beginning of it; the file is cut short");
        assert_eq!(what_else(b"\0\x01\x02"), "data of some other kind");
    }
}
