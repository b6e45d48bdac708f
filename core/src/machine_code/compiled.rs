//! What Wasmtime compiles: a module, or a component with all modules in it, to one text of machine code.

use std::ops::Range;
use std::sync::Arc;
use wasmtime::component::Component;
use wasmtime::{Engine, Module};
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
}
