//! From a native pc to the wasm function and instruction that it stands for.

use crate::machine_code::{CodeName, CompiledImage};
use crate::module::{CodeOffsets, ModuleImage, PositionIndex};
use crate::recording::{ModuleId, Origin};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use wasmtime::{Module, ModuleFunction};

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

/// All compiled code that may be sampled. Modules are added and taken away while it is read, by signal handlers among others. A module
/// that is taken away stays mapped until nobody can have found it, so that no address means two things to a reader.
pub(super) struct CodeMap {
    list: AtomicPtr<List>,
    /// All lists that `list` has been and a reader may still have. The last one is the one that it is.
    #[expect(clippy::vec_box, reason = "`list` and readers lead to them, so they must stay where they are")]
    lists: Mutex<Vec<Box<List>>>,
    /// How many read it now.
    readers: AtomicUsize,
}

/// Modules that are added in place before a new list is made.
const RECENT: usize = 32;

struct List {
    /// By their addresses.
    sorted: Vec<Arc<ModuleCode>>,
    recent: [OnceLock<Arc<ModuleCode>>; RECENT],
}

impl List {
    fn of(mut modules: Vec<Arc<ModuleCode>>) -> Box<Self> {
        modules.sort_by_key(|module| module.text.start);
        Box::new(Self { sorted: modules, recent: [const { OnceLock::new() }; RECENT] })
    }

    fn all(&self) -> impl Iterator<Item = &Arc<ModuleCode>> {
        self.sorted.iter().chain(self.recent.iter().map_while(OnceLock::get))
    }

    fn module(&self, address: usize) -> Option<&ModuleCode> {
        let before = self.sorted.partition_point(|module| module.text.start <= address);
        let nearest = before.checked_sub(1).map(|index| &self.sorted[index]);
        let recent = self.recent.iter().map_while(OnceLock::get);
        nearest.into_iter().chain(recent).map(|module| &**module).find(|module| module.text.contains(&address))
    }
}

/// The code of a module, not in a map yet or in one.
pub(super) struct ModuleCode {
    id: ModuleId,
    text: Range<usize>,
    code: Vec<Code>,
    /// Of `code`, from the start of the text.
    index: PositionIndex,
    module: Module,
    image: Arc<ModuleImage>,
    /// Made on first use by the drain, or at loading where a language's walker needs it in the handler.
    offsets: OnceLock<CodeOffsets>,
}

impl Default for CodeMap {
    fn default() -> Self {
        let empty = List::of(Vec::new());
        let list = AtomicPtr::new((&raw const *empty).cast_mut());
        Self { list, lists: Mutex::new(vec![empty]), readers: AtomicUsize::new(0) }
    }
}

impl CodeMap {
    /// Maps the code of `modules`; their places in the slice are their ids.
    pub(super) fn new(modules: &[(Module, Arc<ModuleImage>)]) -> Self {
        let map = Self::default();
        for (id, (module, image)) in (0..).zip(modules) {
            map.add(id, ModuleCode::new(module, image, false));
        }
        map
    }

    /// Adds the code of a module.
    pub(super) fn add(&self, id: ModuleId, code: ModuleCode) {
        let code = Arc::new(ModuleCode { id, ..code });
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.last().expect("there is always one");
        match list.recent.iter().find(|place| place.get().is_none()) {
            Some(place) => place.set(code).unwrap_or_else(|_| unreachable!("places are filled with the lock held")),
            None => {
                let modules = list.all().cloned().chain([code]).collect();
                self.replace(&mut lists, modules);
            }
        }
    }

    /// Has nobody find these modules any more. They are there until [`CodeMap::free_removed`].
    pub(super) fn remove(&self, ids: &[ModuleId]) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.last().expect("there is always one");
        let modules = list.all().filter(|module| !ids.contains(&module.id)).cloned().collect();
        self.replace(&mut lists, modules);
    }

    #[expect(clippy::vec_box, reason = "readers lead to them")]
    fn replace(&self, lists: &mut Vec<Box<List>>, modules: Vec<Arc<ModuleCode>>) {
        let new = List::of(modules);
        self.list.store((&raw const *new).cast_mut(), Ordering::SeqCst);
        lists.push(new);
    }

    /// Lets go of what was removed, if nobody is reading. `false` if somebody is: to be asked again.
    pub(super) fn free_removed(&self) -> bool {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever comes to read after this finds the list that is there now: readers count themselves before they look.
        let is_free = self.readers.load(Ordering::SeqCst) == 0;
        if is_free {
            let old = lists.len() - 1;
            lists.drain(..old);
        }
        is_free
    }

    /// Begins to read: what is found stays mapped until the reader is dropped, which must be soon. Async-signal-safe.
    pub(super) fn read(&self) -> CodeReader<'_> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        // SAFETY: it is the last of `lists`, which is boxed; from here on, with this reader counted, it is not dropped.
        let list = unsafe { &*self.list.load(Ordering::SeqCst) };
        CodeReader { list, readers: &self.readers }
    }

    /// Whether `address` lies in compiled code of the guest.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.read().contains(address)
    }

    /// What frame a native pc is; `None` for stubs and outside the guest.
    pub(super) fn origin(&self, pc: NativePc) -> Option<Origin> {
        self.read().origin(pc)
    }

    /// Builds what [`CodeReader::origin`] needs of the modules and would else build on its first call: some ten milliseconds for a
    /// large one, and no work for a signal handler.
    pub(super) fn prepare_origins(&self) {
        for module in self.read().list.all() {
            module.offsets();
        }
    }
}

/// Somebody who reads a [`CodeMap`].
pub(super) struct CodeReader<'a> {
    list: &'a List,
    readers: &'a AtomicUsize,
}

impl Drop for CodeReader<'_> {
    fn drop(&mut self) {
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CodeReader<'_> {
    fn module(&self, address: usize) -> Option<&ModuleCode> {
        self.list.module(address)
    }

    /// Whether `address` lies in compiled code of the guest.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.module(address).is_some()
    }

    /// The piece of code around `address`.
    pub(super) fn code(&self, address: usize) -> Option<Code> {
        self.module(address)?.code(address)
    }

    /// The module that `pc` lies in.
    pub(super) fn image(&self, pc: NativePc) -> Option<&ModuleImage> {
        Some(&self.module(pc.lookup_address())?.image)
    }

    /// What frame a native pc is; `None` for stubs and outside the guest.
    pub(super) fn origin(&self, pc: NativePc) -> Option<Origin> {
        let address = pc.lookup_address();
        let module = self.module(address)?;
        let code = module.code(address)?;
        let CodeKind::Function(function) = code.kind else { return None };
        let (function, code_offset) = module.place(address, &code, function)?;
        Some(Origin::Wasm { module: module.id, function, code_offset })
    }
}

impl ModuleCode {
    /// `with_origins`: see [`CodeMap::prepare_origins`].
    pub(super) fn new(module: &Module, image: &Arc<ModuleImage>, with_origins: bool) -> Self {
        let code = Self::of(pieces(module.text(), module.functions(), CompiledImage::of(module)), module, image);
        if with_origins {
            code.offsets();
        }
        code
    }

    fn of((text, code): (Range<usize>, Vec<Code>), module: &Module, image: &Arc<ModuleImage>) -> Self {
        let index = PositionIndex::new(code.iter().map(|code| code.start - text.start));
        Self { id: 0, text, code, index, module: module.clone(), image: image.clone(), offsets: OnceLock::new() }
    }

    fn code(&self, address: usize) -> Option<Code> {
        let at = address.checked_sub(self.text.start)?;
        let code = self.code[self.index.last_up_to(at, |piece| self.code[piece].start - self.text.start)?];
        (address < code.end).then_some(code)
    }

    fn offsets(&self) -> &CodeOffsets {
        self.offsets.get_or_init(|| CodeOffsets::of(&self.module, &self.image))
    }

    /// The function and code offset of the wasm instruction at `address`, in what was compiled as `function`; `None` of code that is
    /// not the module's own.
    fn place(&self, address: usize, code: &Code, function: u32) -> Option<(u32, u32)> {
        let range = code.start - self.text.start..code.end - self.text.start;
        self.image.compiled_from(function, self.offsets().at(address - self.text.start, &range))
    }
}

/// Where a text lies, and its pieces in order of address.
fn pieces(
    text: &[u8],
    functions: impl Iterator<Item = ModuleFunction>,
    image: Option<CompiledImage<'_>>,
) -> (Range<usize>, Vec<Code>) {
    let text = text.as_ptr() as usize..text.as_ptr() as usize + text.len();
    let function = |function: ModuleFunction| {
        let start = text.start + function.offset;
        Code { start, end: start + function.len, kind: CodeKind::Function(function.index.as_u32()) }
    };
    let mut code: Vec<Code> = functions.map(function).collect();
    code.extend(image.map(|image| stubs(&image, text.start)).unwrap_or_default());
    code.sort_by_key(|code| code.start);
    (text, code)
}

/// The trampolines of a module and Wasmtime's stubs, from the symbols of the compiled image.
fn stubs(image: &CompiledImage<'_>, text_start: usize) -> Vec<Code> {
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

/// Code of components, for tests of the stores that run them.
#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use wasmtime::component::Component;

    impl CodeMap {
        /// Adds the code of a component as if it were that of `module`, whose instructions nobody is to ask for.
        pub(in crate::sampler) fn add_component(
            &self,
            id: ModuleId,
            component: &Component,
            module: &Module,
            image: &Arc<ModuleImage>,
        ) {
            let range = component.image_range();
            let length = range.end as usize - range.start as usize;
            // SAFETY: the range is the component's mapped image, which lives as long as `component` and is never written.
            let bytes = unsafe { std::slice::from_raw_parts(range.start, length) };
            let pieces = pieces(component.text(), component.functions(), CompiledImage::parse(bytes));
            self.add(id, ModuleCode::of(pieces, module, image));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{EngineOptions, engine};

    /// A module of its own, by its id.
    fn module(engine: &wasmtime::Engine, id: ModuleId) -> (Module, Arc<ModuleImage>) {
        let bytes = wat::parse_str(format!("(module (func (drop (i32.const {id}))))")).unwrap();
        (Module::new(engine, &bytes).unwrap(), Arc::new(ModuleImage::parse(bytes, "test").unwrap()))
    }

    #[test]
    fn modules_are_found_while_others_come_and_go() {
        let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
        let map = CodeMap::default();
        let id_at = |start: usize| map.read().module(start).map(|module| module.id);
        let mut added = Vec::new();
        for id in 0..3 * RECENT as ModuleId {
            let (module, image) = module(&engine, id);
            map.add(id, ModuleCode::new(&module, &image, false));
            added.push(module.text().as_ptr() as usize);
            for (id, &start) in (0..).zip(&added) {
                assert_eq!(id_at(start), Some(id));
            }
        }
        assert_eq!(map.lists.lock().unwrap().len(), 3, "a new list for each {RECENT}");
        assert!(!map.contains(added[0] - 1) || !map.contains(usize::MAX));
        map.remove(&[1, 60, 95]);
        for (id, &start) in (0..).zip(&added) {
            assert_eq!(id_at(start), Some(id).filter(|id| ![1, 60, 95].contains(id)));
        }
        let (module, image) = module(&engine, 1);
        map.add(1, ModuleCode::new(&module, &image, false));
        assert_eq!(id_at(module.text().as_ptr() as usize), Some(1), "an id is free again");
    }

    #[test]
    fn what_somebody_reads_stays_until_he_is_done() {
        let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
        let map = CodeMap::default();
        let (module, image) = module(&engine, 7);
        map.add(7, ModuleCode::new(&module, &image, false));
        let start = module.text().as_ptr() as usize;
        drop(module);
        let before = map.read();
        map.remove(&[7]);
        assert!(!map.free_removed() && !map.contains(start));
        assert!(before.contains(start) && Arc::strong_count(&image) == 2, "it is still mapped");
        drop(before);
        assert!(map.free_removed());
        assert_eq!(Arc::strong_count(&image), 1, "it is no more");
    }
}
