//! What is known of one module: it makes walkers of its instances and names what they find.

use crate::{
    allocators, category, functions, functions::Function, layout::Layout, linking::LinkPlaces, roles::Roles, symbols,
    walker::JavaScriptWalker,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wlprof_plugin::{Allocator, Category, FrameKey, KeyTable, ModuleView, Program, SourceFrame, Walker};

/// A JavaScript program: an interpreter in a module, and the functions that were seen in its instances.
#[derive(Clone, Debug)]
pub struct JavaScriptProgram(pub(crate) Arc<Tables>);

/// What walkers share.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) layout: Layout,
    pub(crate) roles: Roles,
    pub(crate) linking: LinkPlaces,
    pub(crate) name_atom: u32,
    /// The stack pointer.
    pub(crate) globals: [u32; 1],
    /// What is kept of functions, by number.
    pub(crate) functions: Arc<KeyTable<Function>>,
    pub(crate) has_walked: AtomicBool,
    /// Whether a walk has found a runtime.
    pub(crate) has_found: AtomicBool,
}

impl JavaScriptProgram {
    pub(crate) fn new(layout: Layout, name_atom: u32, roles: Roles, linking: LinkPlaces, stack_pointer: u32) -> Self {
        let (functions, globals) = (Arc::new(functions::kept()), [stack_pointer]);
        let [has_walked, has_found] = [false, false].map(AtomicBool::new);
        Self(Arc::new(Tables { layout, roles, linking, name_atom, globals, functions, has_walked, has_found }))
    }

    pub(crate) fn new_walker(&self) -> JavaScriptWalker {
        JavaScriptWalker::new(self.clone())
    }
}

impl Program for JavaScriptProgram {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(self.new_walker()))
    }

    fn wanted_globals(&self) -> &[u32] {
        &self.0.globals
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(key) = frame {
            out.extend(symbols::frame(&self.0.functions, key));
        }
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        category::categorize(frame)
    }

    fn allocators(&self, module: &dyn ModuleView, missed: &mut Vec<String>) -> Vec<Allocator> {
        allocators::find(module, missed)
    }

    fn warnings(&self) -> Vec<String> {
        let Tables { roles, functions, has_walked, has_found, .. } = &*self.0;
        let mut warnings = Vec::new();
        if has_walked.load(Ordering::Relaxed) && !has_found.load(Ordering::Relaxed) {
            warnings.push("no running JavaScript was found in memory".to_owned());
        } else if !roles.has_loop() {
            let text = "without function names, JavaScript frames do not show the C code that they call";
            warnings.push(text.to_owned());
        }
        if functions.is_full() {
            warnings.push("there are too many different functions; those met last have no names".to_owned());
        }
        warnings
    }
}
