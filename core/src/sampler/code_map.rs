//! From a native pc to the wasm function and instruction that it stands for.

use crate::machine_code::GuestCode;
use crate::machine_code::{CodeName, CodeOffsets, CompiledImage, Stretches};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use wlprof_module::{ModuleImage, PositionIndex};
use wlprof_recording::{ModuleId, Origin};

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
    /// A wasm function.
    Function {
        /// The number of its module in the component; 0 of a module alone.
        module: u32,
        /// Its index in the module.
        function: u32,
    },
    /// What takes a call from one component to another.
    Adapter,
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

/// All compiled code that may be sampled. Code is added and taken away while it is read, by signal handlers among others. What
/// is taken away stays mapped until nobody can have found it, so that no address means two things to a reader.
pub(super) struct CodeMap {
    list: AtomicPtr<List>,
    /// All lists that `list` has been and a reader may still have. The last one is the one that it is.
    #[expect(clippy::vec_box, reason = "`list` and readers lead to them, so they must stay where they are")]
    lists: Mutex<Vec<Box<List>>>,
    /// How many read it now.
    readers: AtomicUsize,
}

/// Code that is added in place before a new list is made.
const RECENT: usize = 32;

struct List {
    /// By their addresses.
    sorted: Vec<Arc<MappedCode>>,
    recent: [OnceLock<Arc<MappedCode>>; RECENT],
}

impl List {
    fn of(mut all: Vec<Arc<MappedCode>>) -> Box<Self> {
        all.sort_by_key(|code| code.text.start);
        Box::new(Self { sorted: all, recent: [const { OnceLock::new() }; RECENT] })
    }

    fn all(&self) -> impl Iterator<Item = &Arc<MappedCode>> {
        self.sorted.iter().chain(self.recent.iter().map_while(OnceLock::get))
    }

    fn at(&self, address: usize) -> Option<&MappedCode> {
        let before = self.sorted.partition_point(|code| code.text.start <= address);
        let nearest = before.checked_sub(1).map(|index| &self.sorted[index]);
        let recent = self.recent.iter().map_while(OnceLock::get);
        nearest.into_iter().chain(recent).map(|code| &**code).find(|code| code.text.contains(&address))
    }
}

/// The code of a module or a component, not in a map yet or in one.
pub(super) struct MappedCode {
    /// Of its modules, by their numbers in it.
    ids: Vec<ModuleId>,
    text: Range<usize>,
    pieces: Vec<Code>,
    /// Of `pieces`, from the start of the text.
    index: PositionIndex,
    offsets: CodeOffsets,
    /// Of each piece. Made on first use by the drain, or at loading where a language's walker needs them in the handler.
    stretches: Box<[OnceLock<Stretches>]>,
}

impl Default for CodeMap {
    fn default() -> Self {
        let empty = List::of(Vec::new());
        let list = AtomicPtr::new((&raw const *empty).cast_mut());
        Self { list, lists: Mutex::new(vec![empty]), readers: AtomicUsize::new(0) }
    }
}

impl CodeMap {
    /// Maps this code; its modules have the first ids.
    pub(super) fn of(guest: &GuestCode) -> Self {
        let map = Self::default();
        map.add((0..guest.images.len() as ModuleId).collect(), MappedCode::new(guest, false));
        map
    }

    /// Adds code. `ids` are those of its modules.
    pub(super) fn add(&self, ids: Vec<ModuleId>, code: MappedCode) {
        let code = Arc::new(MappedCode { ids, ..code });
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.last().expect("there is always one");
        match list.recent.iter().find(|place| place.get().is_none()) {
            Some(place) => place.set(code).unwrap_or_else(|_| unreachable!("places are filled with the lock held")),
            None => {
                let all = list.all().cloned().chain([code]).collect();
                self.replace(&mut lists, all);
            }
        }
    }

    /// Has nobody find the code of these modules any more; those of a component go together. It is there until [`CodeMap::free_removed`].
    pub(super) fn remove(&self, ids: &[ModuleId]) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.last().expect("there is always one");
        let stays = |code: &&Arc<MappedCode>| !code.ids.iter().any(|id| ids.contains(id));
        let all = list.all().filter(stays).cloned().collect();
        self.replace(&mut lists, all);
    }

    #[expect(clippy::vec_box, reason = "readers lead to them")]
    fn replace(&self, lists: &mut Vec<Box<List>>, all: Vec<Arc<MappedCode>>) {
        let new = List::of(all);
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

    /// Builds what [`CodeReader::origin`] needs of the code and would else build for each function when it is first asked of it: some ten
    /// milliseconds for a large one, and no work for a signal handler.
    pub(super) fn prepare_origins(&self) {
        self.read().list.all().for_each(|code| code.prepare_origins());
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
    /// Whether `address` lies in compiled code of the guest.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.list.at(address).is_some()
    }

    /// Whether the instruction that is meant lies in compiled code of the guest.
    pub(super) fn knows(&self, pc: NativePc) -> bool {
        self.contains(pc.lookup_address())
    }

    /// The piece of code around `address`.
    pub(super) fn code(&self, address: usize) -> Option<Code> {
        let code = self.list.at(address)?;
        Some(code.pieces[code.piece(address)?])
    }

    /// The module that the function at `pc` is of.
    pub(super) fn image(&self, pc: NativePc) -> Option<&ModuleImage> {
        let address = pc.lookup_address();
        let code = self.list.at(address)?;
        match code.pieces[code.piece(address)?].kind {
            CodeKind::Function { module, .. } => Some(&code.offsets.code().images[module as usize]),
            _ => None,
        }
    }

    /// What frame a native pc is; `None` for stubs and outside the guest.
    pub(super) fn origin(&self, pc: NativePc) -> Option<Origin> {
        let address = pc.lookup_address();
        let code = self.list.at(address)?;
        let piece = code.piece(address)?;
        match code.pieces[piece].kind {
            CodeKind::Function { module, function } => {
                let (function, code_offset) = code.place(address, piece, module, function)?;
                Some(Origin::Wasm { module: code.ids[module as usize], function, code_offset })
            }
            CodeKind::Adapter => Some(Origin::Adapter),
            CodeKind::Entry | CodeKind::Builtin | CodeKind::Stub => None,
        }
    }
}

impl MappedCode {
    /// `with_origins`: see [`CodeMap::prepare_origins`].
    pub(super) fn new(guest: &GuestCode, with_origins: bool) -> Self {
        let text = guest.compiled.text();
        let text = text.as_ptr() as usize..text.as_ptr() as usize + text.len();
        let image = CompiledImage::of(&guest.compiled);
        let pieces = pieces(guest, image.as_ref(), text.start);
        let offsets = CodeOffsets::of(guest, image.as_ref());
        let index = PositionIndex::new(pieces.iter().map(|piece| piece.start - text.start));
        let stretches = pieces.iter().map(|_| OnceLock::new()).collect();
        let code = Self { ids: Vec::new(), text, pieces, index, offsets, stretches };
        if with_origins {
            code.prepare_origins();
        }
        code
    }

    /// The number of the piece at `address`.
    fn piece(&self, address: usize) -> Option<usize> {
        let at = address.checked_sub(self.text.start)?;
        let piece = self.index.last_up_to(at, |piece| self.pieces[piece].start - self.text.start)?;
        (address < self.pieces[piece].end).then_some(piece)
    }

    fn prepare_origins(&self) {
        for (number, piece) in self.pieces.iter().enumerate() {
            if let CodeKind::Function { module, function } = piece.kind {
                self.stretches(number, module, function);
            }
        }
    }

    /// Those of a piece that is a function.
    fn stretches(&self, piece: usize, module: u32, function: u32) -> &Stretches {
        self.stretches[piece].get_or_init(|| {
            let Code { start, end, .. } = self.pieces[piece];
            self.offsets.of_function(module, function, &(start - self.text.start..end - self.text.start))
        })
    }

    /// The function and code offset of the wasm instruction at `address`, in the piece that was compiled as `function` of `module`; `None` of
    /// code that is not the module's own.
    fn place(&self, address: usize, piece: usize, module: u32, function: u32) -> Option<(u32, u32)> {
        let code_offset = self.stretches(piece, module, function).at(address - self.text.start);
        self.offsets.code().images[module as usize].compiled_from(function, code_offset)
    }
}

/// The pieces of compiled code that begins at `text_start`, in order of address.
fn pieces(guest: &GuestCode, image: Option<&CompiledImage<'_>>, text_start: usize) -> Vec<Code> {
    let functions = guest.compiled.functions();
    let functions = functions.iter().map(|function| {
        let start = text_start + function.offset;
        let kind = match guest.module_of(function) {
            Some(module) => CodeKind::Function { module, function: function.index.as_u32() },
            None => CodeKind::Adapter,
        };
        Code { start, end: start + function.len, kind }
    });
    let mut pieces: Vec<Code> = functions.collect();
    pieces.extend(image.map(|image| stubs(image, text_start)).unwrap_or_default());
    pieces.sort_by_key(|code| code.start);
    pieces
}

/// The trampolines and Wasmtime's stubs, from the symbols of the compiled image.
fn stubs(image: &CompiledImage<'_>, text_start: usize) -> Vec<Code> {
    let stubs = image.stubs().map(|(name, range)| {
        let kind = match name {
            CodeName::Entry { .. } => CodeKind::Entry,
            CodeName::Stub(name) if is_entry(name) => CodeKind::Entry,
            CodeName::Stub(name) if name.starts_with("wasmtime_builtin") => CodeKind::Builtin,
            CodeName::Stub(_) | CodeName::Function { .. } => CodeKind::Stub,
        };
        Code { start: text_start + range.start, end: text_start + range.end, kind }
    });
    stubs.collect()
}

/// Whether the host enters wasm there: a module's start function, or a function of the host's that a component gives the host back.
fn is_entry(name: &str) -> bool {
    name.starts_with("module_start[") || name.starts_with("component-trampolines[") && name.contains("]-array-call-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_run::guest::{EngineOptions, engine};

    /// Code of its own, by the id of its module.
    fn code(engine: &wasmtime::Engine, id: ModuleId) -> GuestCode {
        let bytes = wat::parse_str(format!("(module (func (drop (i32.const {id}))))")).unwrap();
        let module = wasmtime::Module::new(engine, &bytes).unwrap();
        GuestCode::of_module(module, Arc::new(ModuleImage::parse(bytes, "test").unwrap()))
    }

    fn start(guest: &GuestCode) -> usize {
        guest.compiled.text().as_ptr() as usize
    }

    #[test]
    fn modules_are_found_while_others_come_and_go() {
        let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
        let map = CodeMap::default();
        let id_at = |start: usize| map.read().list.at(start).map(|code| code.ids[0]);
        let mut added = Vec::new();
        for id in 0..3 * RECENT as ModuleId {
            let guest = code(&engine, id);
            map.add(vec![id], MappedCode::new(&guest, false));
            added.push(start(&guest));
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
        let guest = code(&engine, 1);
        map.add(vec![1], MappedCode::new(&guest, false));
        assert_eq!(id_at(start(&guest)), Some(1), "an id is free again");
    }

    #[test]
    fn what_somebody_reads_stays_until_he_is_done() {
        let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
        let map = CodeMap::default();
        let guest = code(&engine, 7);
        map.add(vec![7], MappedCode::new(&guest, false));
        let (start, image) = (start(&guest), guest.images[0].clone());
        drop(guest);
        let before = map.read();
        map.remove(&[7]);
        assert!(!map.free_removed() && !map.contains(start));
        assert!(before.contains(start) && Arc::strong_count(&image) == 2, "it is still mapped");
        drop(before);
        assert!(map.free_removed());
        assert_eq!(Arc::strong_count(&image), 1, "it is no more");
    }
}
