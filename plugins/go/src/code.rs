//! All that is known of a module before it runs, and the bodies read so far.

use crate::{
    body::{Body, Call, Convention, Place},
    call_sites::{CallSite, CallSites},
    heap_profiler::HeapProfiler,
    layout::Layout,
    module::Module,
    moduledata::Moduledata,
    pclntab::{self, Pclntab},
    wait_reason::WaitReasons,
};
use std::{
    ops::{Deref, Range},
    sync::Arc,
};
use wlprof_plugin::{AttachError, ModuleView, WasmFrame};

/// The most bytes of bodies that one walk reads: the guest stands still meanwhile. The largest function that Go makes
/// has a quarter of it.
const READ_IN_A_WALK: usize = 4 << 20;
/// Longer names are no special function's.
const LONGEST_SPECIAL: usize = 32;
/// What bodies may take, those that are read ahead half of it; others are forgotten when they take the other half.
const BODIES_KEPT: usize = 64 << 20;

/// Functions that treat stacks in a way of their own. By name: Go's numbers for them change between releases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Special {
    pub(crate) goexit: Option<u32>,
    pub(crate) mstart: Option<u32>,
    pub(crate) mcall: Option<u32>,
    pub(crate) morestack: Option<u32>,
    pub(crate) systemstack: Option<u32>,
    pub(crate) gogo: Option<u32>,
    pub(crate) write_barrier: Option<u32>,
    /// The call of the host that waits.
    pub(crate) poll: Option<u32>,
    /// The two functions that say where the heap profiler's variables are.
    pub(crate) schedinit: Option<u32>,
    pub(crate) flush_heap_profile: Option<u32>,
    deferreturn: Option<u32>,
    loops: [Option<u32>; 2],
}

impl Special {
    fn find(table: &Pclntab) -> Self {
        let mut special = Self::default();
        for index in 0..table.len() {
            let name = table.function(index).and_then(|function| table.name_up_to(&function, LONGEST_SPECIAL));
            let name = name.unwrap_or_default();
            let slot = match name.as_str() {
                "runtime.goexit" => &mut special.goexit,
                "runtime.mstart" => &mut special.mstart,
                "runtime.mcall" => &mut special.mcall,
                "runtime.morestack" => &mut special.morestack,
                "runtime.systemstack" => &mut special.systemstack,
                "runtime.gogo" => &mut special.gogo,
                "runtime.deferreturn" => &mut special.deferreturn,
                "gcWriteBarrier" => &mut special.write_barrier,
                "runtime.poll_oneoff" => &mut special.poll,
                "runtime.schedinit" => &mut special.schedinit,
                "runtime.mProf_FlushLocked" => &mut special.flush_heap_profile,
                "wasm_pc_f_loop" => &mut special.loops[0],
                "wasm_pc_f_loop_export" => &mut special.loops[1],
                _ => continue,
            };
            slot.get_or_insert(index);
        }
        special
    }
}

/// What a wasm frame is to Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A function of the host's or of another module, or nothing that the module has.
    Host,
    /// A Go function, with a return address on Go's stack.
    Go(u32),
    /// The entry of a `//go:wasmexport` function.
    Export(u32),
    /// Assembly with nothing on Go's stack.
    Bare(u32),
    /// `wasm_pc_f_loop`, which calls whatever is to be resumed. Go's stack goes on below it, wasm's does not.
    Loop,
}

/// What there is of the module, which all walkers share, and what one of them has read of it on top of that.
#[derive(Debug)]
pub(crate) struct Code {
    tables: Arc<Tables>,
    /// The bodies read after the guest began, each at its function's number; empty if there is none.
    read: Vec<Option<Arc<Body>>>,
    read_size: usize,
    call_sites: CallSites,
    wait_reasons: Option<WaitReasons>,
    /// Bytes of bodies that may yet be read.
    left_to_read: usize,
    /// The body that was asked for while it must not be read.
    wanted: Option<u32>,
    was_refused: bool,
}

/// What never changes.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) table: Pclntab,
    pub(crate) moduledata: Moduledata,
    pub(crate) special: Special,
    /// The runtime's own heap profiler, or why it cannot be used.
    pub(crate) heap_profiler: Result<HeapProfiler, String>,
    /// Number of imported functions, which come first in wasm's function indices.
    imports: u32,
    code_section: Vec<u8>,
    bodies: Vec<Range<u32>>,
    go_signature: Vec<bool>,
    /// The bodies read before the guest began, each at its function's number.
    read_ahead: Vec<Option<Arc<Body>>>,
}

impl Deref for Code {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl Code {
    /// With nothing read on top of `tables`.
    pub(crate) fn new(tables: Arc<Tables>) -> Self {
        Self {
            tables,
            read: Vec::new(),
            read_size: 0,
            call_sites: CallSites::default(),
            wait_reasons: None,
            left_to_read: READ_IN_A_WALK,
            wanted: None,
            was_refused: false,
        }
    }
}

impl Tables {
    pub(crate) fn new(view: &dyn ModuleView, layout: &Layout) -> Result<Self, AttachError> {
        let module = Module::read(view.bytes());
        let imports = u32::try_from(view.function_imports().len()).unwrap_or(u32::MAX);
        let bodies: Vec<_> = (imports..u32::MAX).map_while(|function| view.function_body(function)).collect();
        let count = u32::try_from(bodies.len()).unwrap_or(u32::MAX);
        let table = Pclntab::find(module.image, count).map_err(|_| {
            AttachError(format!(
                "{} is Go's, but has no table of its {count} functions as Go 1.21 to 1.27 write it (a tool may have \
                 changed the module after the linker); frames will be wasm functions only",
                view.name()
            ))
        })?;
        let moduledata = Moduledata::find(&table, layout).ok_or_else(|| {
            AttachError(format!(
                "{} is Go's, but its moduledata cannot be found; frames will be wasm functions only",
                view.name()
            ))
        })?;
        if module.go_signature.len() != imports as usize + bodies.len() {
            return Err(AttachError(format!(
                "{} is Go's, but its sections do not agree on how many functions there are; frames will be wasm \
                 functions only",
                view.name()
            )));
        }
        let mut tables = Self {
            special: Special::find(&table),
            heap_profiler: Err(String::new()),
            table,
            moduledata,
            imports,
            code_section: module.code,
            bodies,
            go_signature: module.go_signature,
            read_ahead: Vec::new(),
        };
        tables.heap_profiler = HeapProfiler::find(&tables);
        tables.read_ahead();
        Ok(tables)
    }

    /// Reads bodies before the guest runs, all of them if the program is not huge: it takes a hundredth of the time to
    /// compile it, and later the guest stands still meanwhile.
    fn read_ahead(&mut self) {
        let (mut bodies, mut size) = (Vec::new(), 0);
        for index in 0..self.table.len() {
            if size > BODIES_KEPT / 2 {
                break;
            }
            let body = self.read(index);
            size += body.as_ref().map_or(0, |body| body.size());
            bodies.push(body);
        }
        self.read_ahead = bodies;
    }

    /// The body of one of the module's own functions, in binary form.
    pub(crate) fn own_body(&self, index: u32) -> Option<&[u8]> {
        let range = self.bodies.get(index as usize)?;
        self.code_section.get(range.start as usize..range.end as usize)
    }

    fn read(&self, index: u32) -> Option<Arc<Body>> {
        let range = self.bodies.get(index as usize).filter(|range| range.len() <= READ_IN_A_WALK)?;
        let bytes = self.own_body(index)?;
        let function = self.table.function(index)?;
        Some(Arc::new(Body::read(bytes, range.start, &self.table, &function, &self.go_signature)))
    }

    /// What the runtime knows wrappers by: what the compiler makes for method values, `defer f(x)` and `go f(x)`.
    pub(crate) fn wrapper_id(&self) -> Option<u8> {
        // It is told to treat this one as if it were a wrapper.
        Some(self.table.function(self.special.deferreturn?)?.id)
    }

    /// Number, among the module's own functions, of a wasm frame's.
    pub(crate) fn own(&self, frame: WasmFrame) -> Option<u32> {
        if frame.is_attached() { self.own_function(frame.function) } else { None }
    }

    /// Number, among the module's own functions, of wasm function `function`.
    pub(crate) fn own_function(&self, function: u32) -> Option<u32> {
        function.checked_sub(self.imports).filter(|index| *index < self.table.len())
    }

    /// Whether `target`, in wasm's function indices, is function `index` of the module's own.
    pub(crate) fn is_own(&self, target: u32, index: u32) -> bool {
        self.own_function(target) == Some(index)
    }
}

impl Code {
    /// What is known of the return address `pc`.
    pub(crate) fn call_site(&mut self, pc: u64) -> Option<CallSite> {
        if let Some(site) = self.call_sites.get(pc) {
            return Some(site);
        }
        let index = self.table.index(pc)?;
        let is_export = self.body(index).is_some_and(|body| body.convention == Convention::Export);
        let site = CallSite::read(pc, &self.table, &self.special, is_export)?;
        if !self.was_refused {
            self.call_sites.insert(site, self.left_to_read > 0);
        }
        Some(site)
    }

    /// The text of what a goroutine waits for.
    pub(crate) fn wait_reason(&mut self, reason: u8) -> Option<String> {
        let image = &self.tables.table.image;
        self.wait_reasons.get_or_insert_with(|| WaitReasons::find(image)).text(image, reason)
    }

    /// Begins a walk, in which bodies may be read or not. If so, it reads what was wanted before.
    pub(crate) fn begin_walk(&mut self, may_allocate: bool) {
        self.left_to_read = if may_allocate { READ_IN_A_WALK } else { 0 };
        self.was_refused = false;
        if may_allocate && let Some(index) = self.wanted.take() {
            self.body(index);
        }
    }

    /// Whether a body was asked for since then that must not be read.
    pub(crate) fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// What is known of a function's body, read now if it has not been yet.
    pub(crate) fn body(&mut self, index: u32) -> Option<Arc<Body>> {
        let known = |bodies: &[Option<Arc<Body>>]| bodies.get(index as usize).and_then(Option::clone);
        if let Some(body) = known(&self.tables.read_ahead).or_else(|| known(&self.read)) {
            return Some(body);
        }
        let range = self.tables.bodies.get(index as usize)?;
        match self.left_to_read.checked_sub(range.len()) {
            Some(left) => self.left_to_read = left,
            None => {
                self.wanted = Some(index);
                self.was_refused = true;
                return None;
            }
        }
        let body = self.tables.read(index)?;
        self.read_size += body.size();
        if self.read_size > BODIES_KEPT / 2 {
            self.read.fill(None);
            self.read_size = body.size();
        }
        self.read.resize(self.tables.bodies.len(), None);
        self.read[index as usize] = Some(Arc::clone(&body));
        Some(body)
    }

    pub(crate) fn role(&mut self, frame: WasmFrame) -> Role {
        let Some(index) = self.own(frame) else { return Role::Host };
        if self.special.loops.contains(&Some(index)) {
            return Role::Loop;
        }
        match self.body(index).map_or(Convention::Bare, |body| body.convention) {
            Convention::Go => Role::Go(index),
            Convention::Export => Role::Export(index),
            Convention::Bare => Role::Bare(index),
        }
    }

    /// The call that a wasm frame which is not the innermost stands at.
    pub(crate) fn call(&mut self, frame: WasmFrame) -> Option<Call> {
        let index = self.own(frame)?;
        self.body(index)?.call(frame.code_offset).copied()
    }

    /// The pc of a wasm frame, if it is one of the module's own functions: that of its block, or what stands for code between
    /// two of them.
    pub(crate) fn pc(&mut self, frame: WasmFrame) -> Option<u64> {
        let index = self.own(frame)?;
        let body = self.body(index)?;
        if body.state(frame.code_offset).place == Place::Dispatch {
            return Some(pclntab::between_blocks(index));
        }
        Some(pclntab::pc(index, body.block(frame.code_offset)))
    }
}
