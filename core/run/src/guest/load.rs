//! From a path to a program that is known to be one that can be run, and from that to a compiled guest.

use super::component_names::component_names;
use super::engine::{EngineOptions, complete, config};
use super::interface::Interface;
use super::obstacle::{ImportOffer, Obstacle};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wasmtime::component::Component;
use wasmtime::{Config, Engine, Module};
use wlprof::heap::{self, NamedAllocator};
use wlprof::machine_code::{Compiled, GuestCode};
use wlprof::sampler::SamplerOptions;
use wlprof_module::{Among, Binary, ImageError, ModuleError, ModuleImage, among, file_name, read_binary};
use wlprof_plugin::{self as plugin, ModuleView};
use wlprof_wasi::{CallableComponent, Flags, HttpHandler, Stdio, WasiOptions, linker};

/// Why a guest could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// No module can be read there.
    Module(ModuleError),
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
            Self::Module(error) => error.fmt(f),
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
        matches!(self, Self::Module(ModuleError::Read(_, error)) if error.kind() == std::io::ErrorKind::NotFound)
    }
}

impl From<ModuleError> for LoadError {
    fn from(error: ModuleError) -> Self {
        Self::Module(error)
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
    /// What the engine is to be like; with Wasmtime's cache, and otherwise as it is unless told, if this is `None`.
    pub config: Option<Config>,
    /// What the guest may do.
    pub flags: Flags,
    /// Modules whose exports the guest can import, each by the name that it imports them from.
    pub preloads: Vec<(String, PathBuf)>,
}

/// A compiled guest, ready to be instantiated.
#[derive(Clone)]
pub struct Guest {
    /// The engine that compiled it.
    pub engine: Engine,
    /// What it was compiled to.
    pub code: GuestCode,
    /// Of a component what is to be called.
    pub component: Option<LinkedComponent>,
    /// What it may do.
    pub flags: Flags,
    /// Modules that it can import from, in the order in which they are instantiated, before it.
    pub preloads: Vec<Preload>,
    /// The guest's own name for itself: argument 0.
    pub name: String,
    /// What the user should know, such as missing debug information.
    pub notes: Vec<String>,
    /// It could not be compiled to tell of what it allocates, though that was asked for: a note says why.
    pub hides_heap: bool,
}

/// A module that the guest can import from.
#[derive(Clone)]
pub struct Preload {
    /// The name that it imports from.
    pub name: String,
    /// What it was compiled to.
    pub code: GuestCode,
}

impl Guest {
    /// What runs: its own code, and then that of modules that it can import from.
    pub fn codes(&self) -> impl Iterator<Item = &GuestCode> {
        std::iter::once(&self.code).chain(self.preloads.iter().map(|preload| &preload.code))
    }

    /// The modules that run, by their ids in recordings.
    pub fn images(&self) -> Vec<Arc<ModuleImage>> {
        self.codes().flat_map(|code| code.images.iter().cloned()).collect()
    }

    /// Returns `sampler` without a profile of memory, if the guest could not be compiled to tell of what it allocates: a note says why.
    #[must_use]
    pub fn with_known_heap(&self, sampler: SamplerOptions) -> SamplerOptions {
        SamplerOptions { heap: sampler.heap.filter(|_| !self.hides_heap), ..sampler }
    }

    /// Reads and compiles the module or component at `path`. [`Program`] does it in steps, with a look at what the module needs.
    ///
    /// # Errors
    /// [`LoadError`] says what the file is and what would do.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        Program::read(path, options)?.compile(Entry::Main, None)
    }
}

/// A component that is linked, and what is to be called of it.
#[derive(Clone)]
pub enum LinkedComponent {
    /// A function.
    Callable(Arc<CallableComponent>),
    /// What answers requests.
    Handler(Arc<HttpHandler>),
}

/// What is to be called of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Entry<'a> {
    /// What programs begin with.
    #[default]
    Main,
    /// A function: of a module, its name; of a component, a call in WAVE.
    Function(&'a str),
    /// What answers requests.
    Handler,
    /// Nothing: its code is looked at, and not run. What it imports need not be there.
    Nothing,
}

impl<'a> Entry<'a> {
    /// The function of that name, or what programs begin with if there is none.
    pub fn function_or_main(name: Option<&'a str>) -> Self {
        name.map_or(Self::Main, Self::Function)
    }
}

/// Who says by which functions a guest allocates, if C's library does not.
#[derive(Clone, Copy)]
pub struct Allocators<'a> {
    /// The user.
    pub named: &'a [NamedAllocator],
    /// The guest's language.
    pub program: Option<&'a dyn plugin::Program>,
}

/// A module or a component that has been read and not yet compiled.
pub struct Program {
    path: PathBuf,
    name: String,
    contents: Contents,
    engine: Engine,
    flags: Flags,
    preloads: Vec<(String, ModuleImage)>,
    notes: Vec<String>,
}

enum Contents {
    Module { image: Box<ModuleImage>, interface: Interface },
    Component { bytes: Vec<u8>, modules: Vec<ModuleImage> },
}

impl Program {
    /// Reads the module or component at `path`.
    ///
    /// # Errors
    /// [`LoadError`] says what the file is and what would do.
    pub fn read(path: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        let (binary, mut notes) = read_binary(path, options.debug_file.as_deref())?;
        let contents = match binary {
            Binary::Module(image) => {
                let interface = Interface::read(image.bytes())
                    .map_err(|error| ModuleError::Image(path.to_owned(), ImageError::Malformed(error)))?;
                Contents::Module { image, interface }
            }
            Binary::Component { bytes, modules } => Contents::Component { bytes, modules },
        };
        let mut preloads = Vec::new();
        for (name, path) in &options.preloads {
            let (binary, own) = read_binary(path, None)?;
            notes.extend(own);
            match (binary, &contents) {
                (Binary::Module(image), Contents::Module { .. }) => preloads.push((name.clone(), *image)),
                _ => return Err(LoadError::Obstacle(path.clone(), Obstacle::Preload)),
            }
        }
        let LoadOptions { epoch_interruption, no_cache, flags, .. } = options;
        let config = match options.config.clone() {
            Some(mut config) => {
                if *no_cache {
                    config.cache(None);
                }
                complete(config, *epoch_interruption)
            }
            None => config(EngineOptions { epoch_interruption: *epoch_interruption, cache: !no_cache }),
        };
        let engine = Engine::new(&config).map_err(LoadError::Engine)?;
        let (path, name, flags) = (path.to_owned(), file_name(path), flags.clone());
        Ok(Self { path, name, contents, engine, flags, preloads, notes })
    }

    /// What the module's sections say; `None` of a component.
    pub fn image(&self) -> Option<&ModuleImage> {
        match &self.contents {
            Contents::Module { image, .. } => Some(image),
            Contents::Component { .. } => None,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its modules as plugins see them, in order.
    pub fn modules(&self) -> Vec<Among<'_>> {
        let images = match &self.contents {
            Contents::Module { image, .. } => std::slice::from_ref(&**image),
            Contents::Component { modules, .. } => modules,
        };
        (0..images.len()).filter_map(|number| among(images, number)).collect()
    }

    /// The modules that it can import from, by the names that it imports from.
    pub fn preloads(&self) -> impl Iterator<Item = (&str, &ModuleImage)> {
        self.preloads.iter().map(|(name, image)| (name.as_str(), image))
    }

    fn obstacle(&self, obstacle: Obstacle) -> LoadError {
        LoadError::Obstacle(self.path.clone(), obstacle)
    }

    fn interface(&self) -> Option<&Interface> {
        match &self.contents {
            Contents::Module { interface, .. } => Some(interface),
            Contents::Component { .. } => None,
        }
    }

    /// Finds what keeps `entry` from being called with `arguments`. Of a component the names of imports and exports are looked at, and types
    /// when it is compiled.
    ///
    /// # Errors
    /// [`LoadError::Obstacle`] says what is in the way and what to do about it.
    pub fn check(&self, entry: Entry<'_>, arguments: &[String]) -> Result<(), LoadError> {
        let interface = match &self.contents {
            Contents::Module { interface, .. } => interface,
            Contents::Component { bytes, .. } => return self.check_component(bytes, entry),
        };
        let function = match entry {
            Entry::Function(name) => Some(name),
            Entry::Main => None,
            Entry::Handler | Entry::Nothing => return Ok(()),
        };
        let world = WasiOptions { stdio: Stdio::Null, ..WasiOptions::default() };
        let mut store = world.store(&self.engine).map_err(LoadError::Engine)?;
        let linker = linker(&self.engine, &self.flags).map_err(LoadError::Engine)?;
        let preloads: Vec<&str> = self.preloads.iter().map(|(name, _)| name.as_str()).collect();
        let offered = ImportOffer { linker: &linker, preloads: &preloads, flags: &self.flags };
        interface.check(&mut store, &offered, function, arguments).map_err(|obstacle| self.obstacle(obstacle))
    }

    fn check_component(&self, bytes: &[u8], entry: Entry<'_>) -> Result<(), LoadError> {
        let Some(names) = component_names(bytes) else { return Ok(()) };
        let call = |invoke| CallableComponent::check(&self.engine, &names, &self.flags, invoke);
        let checked = match entry {
            Entry::Main => call(None),
            Entry::Function(function) => call(Some(function)),
            Entry::Handler => HttpHandler::check(&self.engine, &names, &self.flags),
            Entry::Nothing => Ok(()),
        };
        checked.map_err(|error| self.obstacle(Obstacle::Component(error)))
    }

    /// Whether it exports a function of that name.
    pub fn exports_function(&self, name: &str) -> bool {
        let exports = |interface: &Interface| interface.functions.iter().any(|(exported, _)| exported == name);
        self.interface().is_some_and(exports)
    }

    /// The exported functions that a run of the main function does not call.
    pub fn other_functions(&self) -> Vec<String> {
        self.interface().map(Interface::other_functions).unwrap_or_default()
    }

    /// What the user should know of a run of the main function: that there is none.
    pub fn note_without_main(&self) -> Option<String> {
        self.interface()?.note_without_main(&self.name)
    }

    /// Compiles it; so that its allocator tells of what it allocates, if that is asked for. `entry` is what is to be called of a component.
    ///
    /// # Errors
    /// [`LoadError::Compile`] says what the engine refuses, and [`LoadError::Obstacle`] what a component lacks.
    pub fn compile(self, entry: Entry<'_>, heap: Option<Allocators<'_>>) -> Result<Guest, LoadError> {
        let Self { path, name, contents, engine, flags, preloads, mut notes } = self;
        if heap.is_some() && !preloads.is_empty() {
            let names: Vec<&str> = preloads.iter().map(|(name, _)| name.as_str()).collect();
            notes.push(format!(
                "what modules allocate that are given with --preload is not profiled: {}",
                names.join(", ")
            ));
        }
        let mut hides_heap = false;
        let told = (&mut notes, &mut hides_heap);
        let code = match contents {
            Contents::Module { image, .. } => compile_module(&engine, *image, heap, told),
            Contents::Component { bytes, modules } => compile_component(&engine, &bytes, modules, heap, told),
        };
        let code = code.map_err(|error| LoadError::Compile(path.clone(), error))?;
        let component = match &code.compiled {
            Compiled::Component(component) => {
                let callable = |invoke| {
                    let callable = CallableComponent::find(&engine, component, &flags, invoke)?;
                    Ok(LinkedComponent::Callable(Arc::new(callable)))
                };
                let linked = match entry {
                    Entry::Main => callable(None).map(Some),
                    Entry::Function(call) => callable(Some(call)).map(Some),
                    Entry::Handler => HttpHandler::find(&engine, component, &flags)
                        .map(|handler| Some(LinkedComponent::Handler(Arc::new(handler)))),
                    Entry::Nothing => Ok(None),
                };
                linked.map_err(|error| LoadError::Obstacle(path, Obstacle::Component(error)))?
            }
            Compiled::Module(_) => None,
        };
        let preloads = preloads.into_iter().map(|(name, image)| {
            let module = Module::from_binary(&engine, image.bytes());
            let module = module.map_err(|error| LoadError::Compile(image.name().into(), error))?;
            Ok(Preload { name, code: GuestCode::of_module(module, Arc::new(image)) })
        });
        let preloads = preloads.collect::<Result<_, LoadError>>()?;
        Ok(Guest { engine, code, component, flags, preloads, name, notes, hides_heap })
    }
}

fn compile_module(
    engine: &Engine,
    mut image: ModuleImage,
    heap: Option<Allocators<'_>>,
    told: (&mut Vec<String>, &mut bool),
) -> wasmtime::Result<GuestCode> {
    let telling = heap.map(|Allocators { named, program }| heap::compile(engine, &mut image, named, program));
    let module = match telling.and_then(|telling| or_note(telling, told)) {
        Some(module) => module,
        // What is wrong with it, Wasmtime says of what the user has.
        None => Module::from_binary(engine, image.bytes())?,
    };
    Ok(GuestCode::of_module(module, Arc::new(image)))
}

fn compile_component(
    engine: &Engine,
    bytes: &[u8],
    mut modules: Vec<ModuleImage>,
    heap: Option<Allocators<'_>>,
    told: (&mut Vec<String>, &mut bool),
) -> wasmtime::Result<GuestCode> {
    let telling = heap.map(|Allocators { named, .. }| heap::compile_component(engine, bytes, &mut modules, named));
    let component = match telling.and_then(|telling| or_note(telling, told)) {
        Some(component) => component,
        None => Component::from_binary(engine, bytes)?,
    };
    let images = modules.into_iter().map(Arc::new).collect();
    Ok(GuestCode { compiled: Compiled::Component(component), images })
}

/// What was compiled to tell of what it allocates; `None` if that cannot be, and `hides_heap` is set then. What the user should know of either
/// goes to `notes`.
fn or_note<T>(
    telling: Result<(T, Vec<String>), String>,
    (notes, hides_heap): (&mut Vec<String>, &mut bool),
) -> Option<T> {
    match telling {
        Ok((compiled, missed)) => {
            notes.extend(missed);
            Some(compiled)
        }
        Err(reason) => {
            *hides_heap = true;
            notes.push(format!("what the guest allocates is not profiled: {reason}"));
            None
        }
    }
}
