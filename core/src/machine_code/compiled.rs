//! What Wasmtime compiles: a module, or a component with all modules in it, to one text of machine code.

use std::ops::Range;
use std::sync::Arc;
use wasmtime::component::Component;
use wasmtime::{Engine, Module, ModuleFunction};
use wlprof_module::ModuleImage;

/// A module or a component, compiled.
#[derive(Clone)]
pub enum Compiled {
    /// A module.
    Module(Module),
    /// A component. Its text has the code of all modules in it, and of those that Wasmtime makes to join its components: adapters.
    Component(Component),
}

impl Compiled {
    /// The engine that compiled it.
    pub fn engine(&self) -> &Engine {
        match self {
            Self::Module(module) => module.engine(),
            Self::Component(component) => component.engine(),
        }
    }

    /// The module, if it is one.
    pub fn module(&self) -> Option<&Module> {
        match self {
            Self::Module(module) => Some(module),
            Self::Component(_) => None,
        }
    }

    /// Its machine code.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Module(module) => module.text(),
            Self::Component(component) => component.text(),
        }
    }

    /// Where the whole of it is mapped, as long as it lives.
    pub fn image_range(&self) -> Range<*const u8> {
        match self {
            Self::Module(module) => module.image_range(),
            Self::Component(component) => component.image_range(),
        }
    }

    /// Its wasm functions, in order of their code.
    pub(crate) fn functions(&self) -> Vec<ModuleFunction> {
        let mut functions: Vec<_> = match self {
            Self::Module(module) => module.functions().collect(),
            Self::Component(component) => component.functions().collect(),
        };
        functions.sort_by_key(|function| function.offset);
        functions
    }

    /// From where in the text on it is for which place in the file that was compiled, in order of the text. `None` if the engine keeps
    /// no such map.
    pub(crate) fn address_map(&self) -> Option<Vec<(u32, Option<u32>)>> {
        let row = |(at, file_offset)| (at as u32, file_offset);
        match self {
            Self::Module(module) => module.address_map().map(|map| map.map(row).collect()),
            Self::Component(component) => component.address_map().map(|map| map.map(row).collect()),
        }
    }
}

/// Compiled code, and the modules that it was compiled from.
#[derive(Clone)]
pub struct GuestCode {
    /// What was compiled.
    pub compiled: Compiled,
    /// The modules, by Wasmtime's numbers: of a module itself, of a component those in its file, in order. What numbers behind them say
    /// are adapters.
    pub images: Vec<Arc<ModuleImage>>,
}

impl GuestCode {
    /// The code of one module.
    pub fn of_module(module: Module, image: Arc<ModuleImage>) -> Self {
        Self { compiled: Compiled::Module(module), images: vec![image] }
    }

    /// The module that a function is of, by its number; `None` of an adapter's.
    pub fn module_of(&self, function: &ModuleFunction) -> Option<u32> {
        let number = function.module.as_u32();
        match self.compiled {
            Compiled::Module(_) => Some(0),
            Compiled::Component(_) => ((number as usize) < self.images.len()).then_some(number),
        }
    }
}
