//! What keeps a module from being run, found before it is compiled: compiling a large one takes minutes.

use super::foreign_host::ForeignHost;
use super::interface::{Import, Interface};
use std::collections::HashSet;
use std::fmt;
use wasmtime::{AsContextMut, Extern, Linker, ValType};
use wasmtime_environ::wasmparser;
use wlprof_wasi::{ArgumentError, ComponentError, Flags, GuestState, MAIN_FUNCTIONS, OWN_HOST, parse_arguments, shown};

/// Why a module cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It imports what there is not.
    Imports {
        /// As `module.name`, without repetition.
        missing: Vec<String>,
        /// The host that has it.
        host: Option<ForeignHost>,
        /// It imports from WASI preview 1 as well.
        is_wasi: bool,
    },
    /// It imports a function as another than it is.
    ImportType {
        /// As `module.name`.
        name: String,
        /// The type that it imports it with.
        imported: String,
        /// The type that it has.
        provided: String,
    },
    /// It has a memory for several threads.
    SharedMemory,
    /// It exports no function of this name.
    NoFunction {
        /// The function that was to be called.
        name: String,
        /// Those that there are.
        exported: Vec<String>,
    },
    /// Its `_initialize` is not one that can be called to prepare it.
    Initialize {
        /// The type that it has.
        found: String,
    },
    /// The function to be called does not take the arguments.
    Arguments(ArgumentError),
    /// Why a component cannot be.
    Component(ComponentError),
    /// It was named with `--preload`, and it is a component, or the guest is.
    Preload,
}

/// What a module is offered to import.
pub(super) struct ImportOffer<'a> {
    pub(super) linker: &'a Linker<GuestState>,
    /// Modules that it can import from: what they lack is found when it is instantiated.
    pub(super) preloads: &'a [&'a str],
    /// What they say of imports that there are not.
    pub(super) flags: &'a Flags,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Imports { missing, host, is_wasi } => {
                let missing = shown(&missing.iter().map(|name| without_type(name).to_owned()).collect::<Vec<_>>());
                write!(f, "it imports what wlprof does not provide: {missing} (provided: WASI preview 1); ")?;
                match host {
                    Some(host) => host.fmt(f),
                    None if *is_wasi => write!(
                        f,
                        "it is built for WASI preview 1 and a host of its own: profile it in that host ({OWN_HOST}), \
                         give modules that export these (--preload NAME=FILE), or have functions trap when they are called \
                         (-W unknown-imports-trap)"
                    ),
                    None => f.write_str(
                        "link that into the module, or build it for that (Rust: --target wasm32-wasip1, Go: \
                         GOOS=wasip1); or give modules that export it (--preload NAME=FILE), or have functions trap when \
                         they are called (-W unknown-imports-trap)",
                    ),
                }
            }
            Self::ImportType { name, imported, provided } => write!(
                f,
                "it imports {name} as a function {imported}, and it is {provided}; build it against headers of WASI \
                 preview 1"
            ),
            Self::SharedMemory => f.write_str(
                "it has memory for several threads, and a guest has one (as under `wasmtime run` without options); build \
                 it for one thread",
            ),
            Self::NoFunction { name, exported } => write!(
                f,
                "the module exports no function `{name}` (functions it exports: {}); choose one with --invoke NAME",
                shown(exported)
            ),
            Self::Initialize { found } => write!(
                f,
                "the module exports `_initialize` as a function {found}; it is called before all others and can have no \
                 parameters and no results"
            ),
            Self::Arguments(error) => error.fmt(f),
            Self::Component(error) => error.fmt(f),
            Self::Preload => f.write_str("--preload is for core modules, which core modules import from"),
        }
    }
}

impl std::error::Error for Obstacle {}

impl From<ArgumentError> for Obstacle {
    fn from(error: ArgumentError) -> Self {
        Self::Arguments(error)
    }
}

impl Interface {
    /// Finds what keeps `function`, or the main function if none is named, from being called with `arguments` in a world
    /// of what is `offered`.
    pub(super) fn check(
        &self,
        store: impl AsContextMut<Data = GuestState>,
        offered: &ImportOffer<'_>,
        function: Option<&str>,
        arguments: &[String],
    ) -> Result<(), Obstacle> {
        self.check_imports(store, offered)?;
        if let Some(Some(ty)) = self.function("_initialize")
            && !(ty.params().is_empty() && ty.results().is_empty())
        {
            return Err(Obstacle::Initialize { found: signature(ty.params(), ty.results()) });
        }
        let called = match function {
            Some(name) => Some(self.function(name).ok_or_else(|| Obstacle::NoFunction {
                name: name.to_owned(),
                exported: self.functions.iter().map(|(name, _)| name.clone()).collect(),
            })?),
            None => MAIN_FUNCTIONS.iter().find_map(|name| self.function(name)),
        };
        if let Some(Some(ty)) = called {
            parse_arguments(ty.params().iter().map(|ty| argument_type(*ty)), arguments)?;
        }
        Ok(())
    }

    /// What the user should know of a run of the main function: that there is none, and what could be called.
    pub(super) fn note_without_main(&self, module: &str) -> Option<String> {
        if MAIN_FUNCTIONS.iter().any(|name| self.function(name).is_some()) {
            return None;
        }
        let what = match self.function("_initialize") {
            Some(_) => "is a reactor: `_initialize` alone is called",
            None => "has no `_start`: nothing that it exports is called",
        };
        let names = self.functions.iter().map(|(name, _)| name.clone());
        let others: Vec<String> = names.filter(|name| name != "_initialize").collect();
        let advice =
            if others.is_empty() { String::new() } else { format!("; or profile them in their own host ({OWN_HOST})") };
        let exported = shown(&others);
        Some(format!("{module} {what}; choose a function with --invoke NAME (it exports: {exported}){advice}"))
    }

    fn check_imports(
        &self,
        mut store: impl AsContextMut<Data = GuestState>,
        ImportOffer { linker, preloads, flags }: &ImportOffer<'_>,
    ) -> Result<(), Obstacle> {
        let is_made_up = |import: &Import| flags.makes_up(import.is_function);
        let is_preloaded = |import: &Import| preloads.contains(&import.module.as_str());
        let mut missing: Vec<&Import> = Vec::new();
        for import in &self.imports {
            match (linker.get(&mut store, &import.module, &import.name), &import.function) {
                (Ok(Extern::Func(provided)), Some(imported)) => {
                    let ty = provided.ty(&store);
                    let provided = signature(&ty.params().collect::<Vec<_>>(), &ty.results().collect::<Vec<_>>());
                    let imported = signature(imported.params(), imported.results());
                    if imported != provided {
                        return Err(Obstacle::ImportType { name: import.full_name(), imported, provided });
                    }
                }
                (Ok(provided), _) if matches!(provided, Extern::Func(_)) == import.is_function => {}
                (Err(_), _) if is_made_up(import) || is_preloaded(import) => {}
                _ => missing.push(import),
            }
        }
        let host = ForeignHost::of(&missing);
        if self.has_shared_memory && host.is_none() {
            return Err(Obstacle::SharedMemory);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut seen = HashSet::new();
        missing.retain(|import| seen.insert((&import.module, &import.name)));
        let missing = missing.into_iter().map(Import::full_name).collect();
        let is_wasi = self.imports.iter().any(|import| import.module == "wasi_snapshot_preview1");
        Err(Obstacle::Imports { missing, host, is_wasi })
    }

    /// The functions that a run of the main function does not call. What compilers export for the host to manage memory and stacks is left
    /// out.
    pub(super) fn other_functions(&self) -> Vec<String> {
        let prepares = |name: &str| MAIN_FUNCTIONS.contains(&name) || name == "_initialize";
        let is_runtimes = |name: &str| {
            let prefixes = ["__", "asyncify_", "cabi_", "stackSave", "stackRestore", "stackAlloc", "emscripten_"];
            ["malloc", "free", "calloc", "realloc"].contains(&name)
                || prefixes.iter().any(|prefix| name.starts_with(prefix))
        };
        let names = self.functions.iter().map(|(name, _)| name);
        names.filter(|name| !prepares(name) && !is_runtimes(name)).cloned().collect()
    }
}

/// An import's name without the type that some generators of interfaces put into it: `rb-js-abi-host.eval-js: func(code: string) -> …`.
fn without_type(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(name, _)| name)
}

/// A function's type as people read it. The engine's types and the parser's are written the same.
fn signature<T: fmt::Display>(params: &[T], results: &[T]) -> String {
    let list = |types: &[T]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    format!("({}) -> ({})", list(params), list(results))
}

/// The engine's type for one of the parser's that can be given on the command line; `Err` with its name for the others.
fn argument_type(ty: wasmparser::ValType) -> Result<ValType, String> {
    match ty {
        wasmparser::ValType::I32 => Ok(ValType::I32),
        wasmparser::ValType::I64 => Ok(ValType::I64),
        wasmparser::ValType::F32 => Ok(ValType::F32),
        wasmparser::ValType::F64 => Ok(ValType::F64),
        other => Err(other.to_string()),
    }
}
