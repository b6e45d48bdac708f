//! The walker of one module: keeps what walks have in common.

use crate::{
    allocators, category,
    chain::Chain,
    find::{Running, Runtimes},
    functions::{Functions, Reading},
    layout::Layout,
    linking::Linking,
    merge,
    roles::Roles,
    symbols,
};
use std::sync::Arc;
use wlprof_plugin::{
    Allocator, Category, FrameKey, FrameSink, GuestMemory, ModuleView, SourceFrame, Truncation, Walker, WasmFrame,
};

/// Reads the stacks of a JavaScript program.
///
/// # Accuracy
/// Functions, lines and columns are those that `new Error().stack` would say, but for the innermost function's line: that is
/// where it last called something.
#[derive(Debug)]
pub struct JavaScriptWalker {
    tables: Arc<Tables>,
    globals: [u32; 1],
    runtimes: Runtimes,
    functions: Functions,
    chain: Chain,
    walks: u64,
}

/// What was read of the module.
#[derive(Debug)]
struct Tables {
    layout: Layout,
    roles: Roles,
    linking: Linking,
}

impl JavaScriptWalker {
    pub(crate) fn new(layout: Layout, name_atom: u32, roles: Roles, linking: Linking, stack_pointer: u32) -> Self {
        Self::with(Arc::new(Tables { layout, roles, linking }), Functions::new(name_atom), [stack_pointer])
    }

    fn with(tables: Arc<Tables>, functions: Functions, globals: [u32; 1]) -> Self {
        Self {
            runtimes: Runtimes::new(tables.roles.has_loop()),
            tables,
            globals,
            functions,
            chain: Chain::default(),
            walks: 0,
        }
    }
}

impl Walker for JavaScriptWalker {
    fn reads_guest(&self) -> bool {
        true
    }

    fn walks_without_allocating(&self) -> bool {
        true
    }

    fn names_while_running(&self) -> bool {
        true
    }

    fn fresh(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(Self::with(Arc::clone(&self.tables), self.functions.fresh(), self.globals)))
    }

    fn wanted_globals(&self) -> &[u32] {
        &self.globals
    }

    fn allocators(&self, module: &dyn ModuleView, missed: &mut Vec<String>) -> Vec<Allocator> {
        allocators::find(module, missed)
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        self.walks += 1;
        let [global] = self.globals;
        let stack_pointer = guest.global(global).and_then(|value| u32::try_from(value).ok()).unwrap_or(u32::MAX);
        let Tables { layout, roles, linking } = &*self.tables;
        let running = self.runtimes.running(guest, layout, stack_pointer).ok_or(Truncation::NoStack)?;
        if linking.is_under_way(wasm) {
            return Err(Truncation::Inconsistent);
        }
        self.functions.begin(out.may_allocate());
        if out.may_allocate() {
            self.functions.keep_wanted(guest, layout);
        }
        self.chain.clear();
        let read = running.iter().try_for_each(|&Running { runtime, frame }| {
            self.chain.read(Reading { guest, layout, runtime }, &mut self.functions, frame)
        });
        let walked = merge::merge(&self.chain.frames, read, roles, wasm, out);
        if walked == Err(Truncation::Inconsistent) {
            self.runtimes.search_next();
        }
        walked
    }

    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(key) = frame {
            out.extend(symbols::frame(&self.functions, key));
        }
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        category::categorize(frame)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.walks > 0 && !self.runtimes.has_any() {
            warnings.push("no running JavaScript was found in memory".to_owned());
        } else if !self.tables.roles.has_loop() {
            let text = "without function names, JavaScript frames do not show the C code that they call";
            warnings.push(text.to_owned());
        }
        if self.functions.is_full() {
            warnings.push("there are too many different functions; those met last have no names".to_owned());
        }
        warnings
    }
}
