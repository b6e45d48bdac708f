//! From a native pc to the wasm function and instruction that it stands for.

use crate::code_offsets::{CodeOffsets, Stretches};
use crate::compiled_image::{CodeName, CompiledImage};
use crate::mapped_image::MappedImage;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use wlprof_module::{ModuleImage, PositionIndex};
use wlprof_recording::{ModuleId, Origin};

/// An address of machine code in the process, and which instruction it means.
///
/// ```
/// use wlprof_walk::NativePc;
///
/// // A call that ends at 0x1005 has not returned.
/// assert_ne!(NativePc::Return(0x1005), NativePc::Exact(0x1005));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NativePc {
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
pub enum CodeKind {
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

/// A piece of compiled code, by its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// Address of its first byte.
    pub start: usize,
    /// Address behind its last byte.
    pub end: usize,
    /// What it is.
    pub kind: CodeKind,
}

/// All compiled code that may be sampled.
///
/// Code is added and taken away while it is read, by signal handlers among others. What is taken away stays mapped until nobody can have
/// found it, so that no address means two things to a reader.
///
/// ```
/// use wlprof_walk::{CodeMap, NativePc};
///
/// let map = CodeMap::default();
/// assert_eq!(map.origin(NativePc::Exact(0x1000)), None);
/// ```
pub struct CodeMap {
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

/// The code of a module or a component, for a [`CodeMap`].
#[derive(Debug)]
pub struct MappedCode {
    /// Of its modules, by their numbers in it.
    ids: Vec<ModuleId>,
    text: Range<usize>,
    /// Where the text begins in the image.
    text_in_image: usize,
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
    /// Makes a map of this code. Its modules have the first ids.
    pub fn of(image: &MappedImage) -> Self {
        let map = Self::default();
        map.add((0..image.modules.len() as ModuleId).collect(), MappedCode::new(image, false));
        map
    }

    /// Adds code. `ids` are those of its modules.
    pub fn add(&self, ids: Vec<ModuleId>, code: MappedCode) {
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

    /// Removes the code of these modules; those of a component go together. Nobody finds it any more. It stays mapped until
    /// [`CodeMap::free_removed`].
    pub fn remove(&self, ids: &[ModuleId]) {
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

    /// Frees what was removed, if nobody is reading. `false` if somebody is: to be asked again.
    pub fn free_removed(&self) -> bool {
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
    pub fn read(&self) -> CodeReader<'_> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        // SAFETY: it is the last of `lists`, which is boxed; from here on, with this reader counted, it is not dropped.
        let list = unsafe { &*self.list.load(Ordering::SeqCst) };
        CodeReader { list, readers: &self.readers }
    }

    /// Returns whether `address` lies in compiled code of the guest.
    pub fn contains(&self, address: usize) -> bool {
        self.read().contains(address)
    }

    /// Returns the frame that a native pc is; `None` for stubs and outside the guest.
    pub fn origin(&self, pc: NativePc) -> Option<Origin> {
        self.read().origin(pc)
    }

    /// Builds what [`CodeReader::origin`] needs of the code and would else build for each function when it is first asked of it: some ten
    /// milliseconds for a large one, and no work for a signal handler.
    pub fn prepare_origins(&self) {
        self.read().list.all().for_each(|code| code.prepare_origins());
    }
}

/// A reader of a [`CodeMap`]: see [`CodeMap::read`].
pub struct CodeReader<'a> {
    list: &'a List,
    readers: &'a AtomicUsize,
}

impl Drop for CodeReader<'_> {
    fn drop(&mut self) {
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CodeReader<'_> {
    /// Returns whether `address` lies in compiled code of the guest.
    pub fn contains(&self, address: usize) -> bool {
        self.list.at(address).is_some()
    }

    /// Returns addresses outside which there is no compiled code of the guest.
    pub fn span(&self) -> Range<usize> {
        let texts = || self.list.all().map(|code| &code.text);
        let start = texts().map(|text| text.start).min().unwrap_or(0);
        start..texts().map(|text| text.end).max().unwrap_or(start)
    }

    /// Returns whether the instruction that is meant lies in compiled code of the guest.
    pub fn knows(&self, pc: NativePc) -> bool {
        self.contains(pc.lookup_address())
    }

    /// Returns the piece of code around `address`.
    pub fn code(&self, address: usize) -> Option<Code> {
        let code = self.list.at(address)?;
        Some(code.pieces[code.piece(address)?])
    }

    /// Returns the bytes of code at these addresses. `None` if they do not all lie in the text of one image.
    pub fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        self.list.at(range.start)?.bytes(range)
    }

    /// Returns the module that the function at `pc` is of.
    pub fn image(&self, pc: NativePc) -> Option<&ModuleImage> {
        let address = pc.lookup_address();
        let code = self.list.at(address)?;
        match code.pieces[code.piece(address)?].kind {
            CodeKind::Function { module, .. } => code.offsets.image().module(module).map(|module| &**module),
            _ => None,
        }
    }

    /// Returns the frame that a native pc is; `None` for stubs and outside the guest.
    pub fn origin(&self, pc: NativePc) -> Option<Origin> {
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
    /// Finds the pieces of the image's code. `with_origins`: see [`CodeMap::prepare_origins`].
    pub fn new(image: &MappedImage, with_origins: bool) -> Self {
        let parsed = image.parse();
        let text_in_image = parsed.as_ref().map(CompiledImage::text).unwrap_or_default();
        let text = [text_in_image.start, text_in_image.end].map(|at| image.address.saturating_add(at));
        let pieces = parsed.as_ref().map(CompiledImage::pieces).unwrap_or_default();
        let code = |(name, Range { start, end })| Code {
            start: text[0].saturating_add(start),
            end: text[0].saturating_add(end),
            kind: kind(image, name),
        };
        let pieces: Vec<Code> = pieces.into_iter().map(code).collect();
        let code = Self {
            ids: Vec::new(),
            text: text[0]..text[1],
            text_in_image: text_in_image.start,
            index: PositionIndex::new(pieces.iter().map(|piece| piece.start - text[0])),
            offsets: CodeOffsets::new(image, parsed.as_ref()),
            stretches: pieces.iter().map(|_| OnceLock::new()).collect(),
            pieces,
        };
        if with_origins {
            code.prepare_origins();
        }
        code
    }

    fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        let at = |address: usize| Some(self.text_in_image + address.checked_sub(self.text.start)?);
        let range = at(range.start)?..at(range.end.min(self.text.end))?;
        self.offsets.image().bytes().get(range)
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
        self.offsets.image().module(module)?.compiled_from(function, code_offset)
    }
}

fn kind(image: &MappedImage, name: CodeName<'_>) -> CodeKind {
    match name {
        CodeName::Function { module, function } if image.module(module).is_some() => {
            CodeKind::Function { module, function }
        }
        CodeName::Function { .. } => CodeKind::Adapter,
        CodeName::Entry { .. } => CodeKind::Entry,
        CodeName::Stub(name) if is_entry(name) => CodeKind::Entry,
        CodeName::Stub(name) if name.starts_with("wasmtime_builtin") => CodeKind::Builtin,
        CodeName::Stub(_) => CodeKind::Stub,
    }
}

/// Whether the host enters wasm there: a module's start function, or a function of the host's that a component gives the host back.
fn is_entry(name: &str) -> bool {
    name.starts_with("module_start[") || name.starts_with("component-trampolines[") && name.contains("]-array-call-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code of 16 bytes at `start`, whose image is `bytes`.
    fn code(start: usize, bytes: &Arc<Vec<u8>>) -> MappedCode {
        let image = MappedImage { bytes: bytes.clone(), address: 0, modules: Vec::new() };
        MappedCode { text: start..start + 16, ..MappedCode::new(&image, false) }
    }

    fn start(id: ModuleId) -> usize {
        0x1000 + 0x100 * id as usize
    }

    #[test]
    fn modules_are_found_while_others_come_and_go() {
        let (map, bytes) = (CodeMap::default(), Arc::default());
        let id_at = |start: usize| map.read().list.at(start).map(|code| code.ids[0]);
        for added in 0..3 * RECENT as ModuleId {
            // Every other one in descending order of addresses.
            let id = if added % 2 == 0 { added } else { 3 * RECENT as ModuleId - added };
            map.add(vec![id], code(start(id), &bytes));
            assert_eq!((id_at(start(id)), id_at(start(id) + 15), id_at(start(id) + 16)), (Some(id), Some(id), None));
        }
        assert_eq!(map.lists.lock().unwrap().len(), 3, "a new list for each {RECENT}");
        map.remove(&[1, 60, 95]);
        for id in 0..3 * RECENT as ModuleId {
            assert_eq!(id_at(start(id)), Some(id).filter(|id| ![1, 60, 95].contains(id)));
        }
        map.add(vec![1], code(start(200), &bytes));
        assert_eq!(id_at(start(200)), Some(1), "an id is free again");
    }

    #[test]
    fn what_somebody_reads_stays_until_he_is_done() {
        let (map, bytes) = (CodeMap::default(), Arc::default());
        map.add(vec![7], code(start(7), &bytes));
        let before = map.read();
        map.remove(&[7]);
        assert!(!map.free_removed() && !map.contains(start(7)));
        assert!(before.contains(start(7)) && Arc::strong_count(&bytes) == 2, "it is still mapped");
        drop(before);
        assert!(map.free_removed());
        assert_eq!(Arc::strong_count(&bytes), 1, "it is no more");
    }
}
