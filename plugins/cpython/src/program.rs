//! What is known of one module: it makes walkers of its instances and names what they find.

use crate::{
    allocators, category,
    code::KeptCodes,
    functions::Functions,
    prologue::Prologue,
    runtime::Runtime,
    state::{HostCalls, State},
    symbols,
    walker::PythonWalker,
};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use wlprof_plugin::{Allocator, Category, FrameKey, Label, ModuleView, Program, SourceFrame, Walker};

/// A Python program: an interpreter in a module, and the functions that were seen in its instances.
#[derive(Clone, Debug)]
pub struct PythonProgram {
    pub(crate) tables: Arc<Tables>,
    /// Looked up when frames are named, and not in walks.
    locations: Arc<Mutex<symbols::Indices>>,
}

/// What walkers share.
#[derive(Debug)]
pub(crate) struct Tables {
    /// As it is before anything was found.
    runtime: Runtime,
    pub(crate) functions: Functions,
    pub(crate) calls: HostCalls,
    pub(crate) prologue: Prologue,
    pub(crate) codes: Arc<KeptCodes>,
    has_walked: AtomicBool,
    /// Where a walk has found `_PyRuntime`; 0 as long as none has.
    found_at: AtomicU32,
}

impl Tables {
    /// A walk has begun.
    pub(crate) fn set_walked(&self) {
        if !self.has_walked.load(Ordering::Relaxed) {
            self.has_walked.store(true, Ordering::Relaxed);
        }
    }

    /// A walk has found `_PyRuntime`.
    pub(crate) fn set_found(&self, address: u32) {
        self.found_at.store(address, Ordering::Relaxed);
    }
}

impl PythonProgram {
    pub(crate) fn new(runtime: Runtime, functions: Functions, calls: HostCalls, prologue: Prologue) -> Self {
        let (codes, has_walked, found_at) = (Arc::default(), AtomicBool::new(false), AtomicU32::new(0));
        let tables = Tables { runtime, functions, calls, prologue, codes, has_walked, found_at };
        Self { tables: Arc::new(tables), locations: Arc::default() }
    }

    /// Makes a walker, whose further abilities can be used.
    pub fn new_walker(&self) -> PythonWalker {
        let runtime = self.tables.runtime.clone();
        let runtime = match self.tables.found_at.load(Ordering::Relaxed) {
            0 => runtime,
            address => runtime.first_at(address),
        };
        PythonWalker::new(runtime, self.clone())
    }

    /// Returns whether the module says which function is the interpreter's loop. If not, stacks have only Python frames.
    pub fn merges(&self) -> bool {
        self.tables.functions.has_eval()
    }
}

impl Program for PythonProgram {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(self.new_walker()))
    }

    fn wanted_globals(&self) -> &[u32] {
        self.tables.runtime.wanted_global().map_or(&[], std::slice::from_ref)
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(key) = frame {
            let mut locations = self.locations.lock().unwrap_or_else(PoisonError::into_inner);
            out.extend(symbols::frame(&self.tables.codes, &mut locations, key));
        }
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        category::categorize(frame)
    }

    fn labels(&self, key: u64, out: &mut Vec<Label>) {
        out.extend(State::label(key));
    }

    fn allocators(&self, module: &dyn ModuleView, _missed: &mut Vec<String>) -> Vec<Allocator> {
        allocators::find(module)
    }

    fn warnings(&self) -> Vec<String> {
        let Tables { codes, has_walked, found_at, .. } = &*self.tables;
        let mut warnings = Vec::new();
        if has_walked.load(Ordering::Relaxed) && found_at.load(Ordering::Relaxed) == 0 {
            warnings.push("no running Python interpreter was found in memory".to_owned());
        } else if !self.merges() {
            let text = "without function names, Python frames do not show the C code that they call";
            warnings.push(text.to_owned());
        }
        if codes.is_full() {
            warnings.push("there are too many different functions; those met last have no names".to_owned());
        }
        if codes.is_spare_full() {
            let text = "too many functions were first met in memory.copy and the like: stacks there have no Python frames until others are met elsewhere";
            warnings.push(text.to_owned());
        }
        warnings
    }
}
