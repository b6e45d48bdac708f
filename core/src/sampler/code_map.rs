//! From a native pc to the wasm function and instruction that it stands for.

use crate::machine_code::{CodeName, CompiledImage};
use crate::module::{CodeOffsets, ModuleImage};
use crate::recording::{ModuleId, Origin};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use wasmtime::Module;
use wlprof_plugin::ModuleView;

/// An address of machine code in this process, and which instruction it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NativePc {
    /// The instruction at this address was about to run.
    Exact(usize),
    /// The instruction before this address, a call, has not returned.
    Return(usize),
}

impl NativePc {
    /// An address inside the instruction that is meant.
    fn lookup_address(self) -> usize {
        match self {
            Self::Exact(pc) => pc,
            Self::Return(pc) => pc - 1,
        }
    }
}

/// What a piece of compiled code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// A wasm function, by its index in the module.
    Function(u32),
    /// Where the host enters wasm: no wasm frame of this activation is below it.
    Entry,
    /// Where wasm leaves for an operation that Wasmtime carries out in host code: `memory.grow` and its kin.
    Builtin,
    /// Where wasm leaves for an imported function, and Wasmtime's other stubs.
    Stub,
}

/// A piece of compiled code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: CodeKind,
}

/// All compiled code of a guest. Immutable, so a signal handler may read it.
pub(super) struct CodeMap {
    modules: Vec<ModuleCode>,
}

struct ModuleCode {
    id: ModuleId,
    text: Range<usize>,
    code: Vec<Code>,
    module: Module,
    image: Arc<ModuleImage>,
    /// Made on first use, since only the drain needs it.
    offsets: OnceLock<CodeOffsets>,
}

impl CodeMap {
    /// Maps the code of `modules`; their places in the slice are their ids.
    pub(super) fn new(modules: &[(Module, Arc<ModuleImage>)]) -> Self {
        let mut modules: Vec<ModuleCode> = modules
            .iter()
            .enumerate()
            .map(|(id, (module, image))| ModuleCode::new(id as ModuleId, module, image))
            .collect();
        modules.sort_by_key(|module| module.text.start);
        Self { modules }
    }

    fn module(&self, address: usize) -> Option<&ModuleCode> {
        self.modules.iter().find(|module| module.text.contains(&address))
    }

    /// Whether `address` lies in compiled code of the guest.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.module(address).is_some()
    }

    /// The piece of code around `address`.
    pub(super) fn code(&self, address: usize) -> Option<Code> {
        self.module(address)?.code(address)
    }

    /// Builds what [`CodeMap::origin`] needs and would else build on its first call: some ten milliseconds for a large
    /// module, and no work for a signal handler.
    pub(super) fn prepare_origins(&self) {
        for module in &self.modules {
            module.offsets();
        }
    }

    /// What frame a native pc is; `None` for stubs and outside the guest.
    pub(super) fn origin(&self, pc: NativePc) -> Option<Origin> {
        let address = pc.lookup_address();
        let module = self.module(address)?;
        let code = module.code(address)?;
        let CodeKind::Function(function) = code.kind else { return None };
        Some(Origin::Wasm { module: module.id, function, code_offset: module.code_offset(address, &code, function) })
    }
}

impl ModuleCode {
    fn new(id: ModuleId, module: &Module, image: &Arc<ModuleImage>) -> Self {
        let text_bytes = module.text();
        let text = text_bytes.as_ptr() as usize..text_bytes.as_ptr() as usize + text_bytes.len();
        let mut code: Vec<Code> = module
            .functions()
            .map(|function| {
                let start = text.start + function.offset;
                Code { start, end: start + function.len, kind: CodeKind::Function(function.index.as_u32()) }
            })
            .collect();
        code.extend(stubs(module, text.start));
        code.sort_by_key(|code| code.start);
        Self { id, text, code, module: module.clone(), image: image.clone(), offsets: OnceLock::new() }
    }

    fn code(&self, address: usize) -> Option<Code> {
        let next = self.code.partition_point(|code| code.start <= address);
        let code = self.code[next.checked_sub(1)?];
        (address < code.end).then_some(code)
    }

    fn offsets(&self) -> &CodeOffsets {
        self.offsets.get_or_init(|| CodeOffsets::of(&self.module, &self.image))
    }

    /// Code offset of the wasm instruction at `address`; the function's start where nothing is known.
    fn code_offset(&self, address: usize, code: &Code, function: u32) -> u32 {
        let range = code.start - self.text.start..code.end - self.text.start;
        let code_offset = self.offsets().at(address - self.text.start, &range);
        code_offset.unwrap_or_else(|| self.image.function_body(function).map_or(0, |body| body.start))
    }
}

/// The trampolines of a module and Wasmtime's stubs, from the symbols of the compiled image.
fn stubs(module: &Module, text_start: usize) -> Vec<Code> {
    let Some(image) = CompiledImage::of(module) else { return Vec::new() };
    let stubs = image.stubs().map(|(name, range)| {
        let kind = match name {
            CodeName::Entry { .. } => CodeKind::Entry,
            CodeName::Stub(name) if name.starts_with("module_start[") => CodeKind::Entry,
            CodeName::Stub(name) if name.starts_with("wasmtime_builtin") => CodeKind::Builtin,
            CodeName::Stub(_) | CodeName::Function(_) => CodeKind::Stub,
        };
        Code { start: text_start + range.start, end: text_start + range.end, kind }
    });
    stubs.collect()
}
