//! The walker of one module: keeps what walks have in common.

use crate::{
    allocators,
    caller::Loops,
    category,
    chain::{Chain, Reader},
    code::Codes,
    functions::Functions,
    layout::Layout,
    merge,
    prologue::Prologue,
    runtime::Runtime,
    state::{HostCalls, State},
    symbols,
    threads::{self, Thread},
};
use std::{ops::Range, sync::Arc};
use wlprof_plugin::{
    Allocator, Category, FrameKey, FrameSink, GuestMemory, Label, ModuleView, SourceFrame, Truncation, Walker,
    WasmFrame,
};

/// Reads the stacks of a Python program.
///
/// # Accuracy
/// Functions, lines and columns are those that Python itself would say in a traceback. A function that is just being
/// called or returning may be missing as the innermost one.
#[derive(Debug)]
pub struct PythonWalker {
    runtime: Runtime,
    tables: Arc<Tables>,
    /// What the prologue is in the layout that was found.
    half_linked: Option<Range<u32>>,
    codes: Codes,
    chain: Chain,
    locations: symbols::Indices,
    walks: u64,
    /// Counts walks of suspended tasks.
    turn: u64,
}

/// What was read of the module.
#[derive(Debug)]
struct Tables {
    functions: Functions,
    calls: HostCalls,
    prologue: Prologue,
}

impl PythonWalker {
    pub(crate) fn new(runtime: Runtime, functions: Functions, calls: HostCalls, prologue: Prologue) -> Self {
        Self::with(runtime, Arc::new(Tables { functions, calls, prologue }), Codes::default())
    }

    /// For another instance of the module.
    pub fn fresh_walker(&self) -> Self {
        Self::with(self.runtime.fresh(), Arc::clone(&self.tables), self.codes.fresh())
    }

    fn with(runtime: Runtime, tables: Arc<Tables>, codes: Codes) -> Self {
        Self {
            runtime,
            tables,
            half_linked: None,
            codes,
            chain: Chain::default(),
            locations: symbols::Indices::default(),
            walks: 0,
            turn: 0,
        }
    }

    /// The minor release and where `_PyRuntime` is, once a walk has found it.
    pub fn runtime(&self) -> Option<(u8, u32)> {
        self.runtime.found()
    }

    /// Finds the thread whose frames are to be read.
    fn begin(&mut self, guest: &dyn GuestMemory, out: &FrameSink) -> Result<(Thread, Layout), Truncation> {
        if !out.may_allocate() && (self.runtime.found().is_none() || self.half_linked.is_none()) {
            return Err(Truncation::WouldAllocate);
        }
        let (address, layout) = self.runtime.find(guest).ok_or(Truncation::NoStack)?;
        let thread = threads::current(guest, &layout, address)?.ok_or(Truncation::NoStack)?;
        self.codes.begin(out.may_allocate());
        if out.may_allocate() {
            self.codes.keep_wanted(guest, &layout);
        }
        Ok((thread, layout))
    }

    /// Whether the module says which function is the interpreter's loop. If not, stacks have Python frames alone.
    pub fn merges(&self) -> bool {
        self.tables.functions.has_eval()
    }
}

impl Walker for PythonWalker {
    fn reads_guest(&self) -> bool {
        true
    }

    fn walks_without_allocating(&self) -> bool {
        true
    }

    fn reads_suspended_tasks(&self) -> bool {
        self.runtime.lists_tasks()
    }

    fn allocators(&self, module: &dyn ModuleView, _missed: &mut Vec<String>) -> Vec<Allocator> {
        allocators::find(module)
    }

    fn names_while_running(&self) -> bool {
        true
    }

    fn fresh(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(self.fresh_walker()))
    }

    fn wanted_globals(&self) -> &[u32] {
        self.runtime.wanted_global().map_or(&[], std::slice::from_ref)
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        self.walks += 1;
        let (thread, layout) = self.begin(guest, out)?;
        let mut reader = Reader { guest, layout: &layout, codes: &mut self.codes, chain: &mut self.chain };
        let tables = &*self.tables;
        let half_linked = self.half_linked.get_or_insert_with(|| tables.prologue.half_linked(&layout));
        let read = reader.read_linked(thread, &Loops { wasm, functions: &tables.functions, half_linked });
        let collecting = u64::from(thread.interpreter) + u64::from(layout.interpreter.collecting);
        let is_collecting = guest.read_u32(collecting).is_ok_and(|collecting| collecting != 0);
        let state = State::tell(wasm, &tables.calls, &tables.functions, is_collecting, self.chain.is_importing);
        out.set_labels(state.key());
        merge::merge(&self.chain, read, &tables.functions, wasm, out)
    }

    fn walk_suspended(&mut self, guest: &dyn GuestMemory, out: &mut FrameSink) -> Result<(), Truncation> {
        let (thread, layout) = self.begin(guest, out)?;
        let mut reader = Reader { guest, layout: &layout, codes: &mut self.codes, chain: &mut self.chain };
        let read = reader.read_awaited(thread, self.turn);
        self.turn = self.turn.wrapping_add(1);
        if !self.chain.frames.is_empty() {
            out.set_labels(State::Awaiting.key());
        }
        merge::merge(&self.chain, read, &self.tables.functions, &[], out)
    }

    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(key) = frame {
            out.extend(symbols::frame(&self.codes, &mut self.locations, key));
        }
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        category::categorize(frame)
    }

    fn labels(&mut self, key: u64, out: &mut Vec<Label>) {
        out.extend(State::label(key));
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.walks > 0 && self.runtime.found().is_none() {
            warnings.push("no running Python interpreter was found in memory".to_owned());
        } else if !self.merges() {
            let text = "without function names, Python frames do not show the C code that they call";
            warnings.push(text.to_owned());
        }
        if self.codes.is_full() {
            warnings.push("there are too many different functions; those met last have no names".to_owned());
        }
        warnings
    }
}
