//! The instance that a stopped thread runs: found by its `VMContext`, and believed only if its memory is that of the module.

use crate::layout::{Layout, MAGIC, STORE_CONTEXT};
use crate::pages::Pages;
use wlprof_module::ModuleImage;
use wlprof_plugin::{GuestMemory, OutOfBounds};

/// Pieces of the module's data that are looked for in the memory, and how long one is.
const PIECES: usize = 64;
const PIECE: usize = 32;

/// Addresses that user programs have: what is not among them is no pointer.
const ADDRESSES: std::ops::Range<usize> = 0x1000..1 << 47;

/// An instance of a module in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    context: usize,
    layout: Layout,
    /// Where its first memory has base and length.
    definition: usize,
}

impl Instance {
    /// The instance of `module` whose `VMContext` is at `address`, if there is one.
    ///
    /// # Security
    /// What is not proved is not believed: the magic word, the store's part, and the memory, which has most of the module's data where the module
    /// puts it. A program may change its data; constants are a part of it.
    pub(crate) fn at(memory: &Pages<'_>, address: usize, module: &ModuleImage, layout: Layout) -> Option<Self> {
        if !is_context(memory, address) {
            return None;
        }
        let pointer = layout.first_memory(module.compiled_index_spaces())?;
        let instance = Self { context: address, layout, definition: memory.word(address + pointer)? };
        let (base, length) = instance.memory(memory)?;
        let is_memory = ADDRESSES.contains(&base) && base.is_multiple_of(4096) && length > 0;
        (is_memory && has_data_of(memory, base, length, module)).then_some(instance)
    }

    /// Base and length of its first memory now.
    pub(crate) fn memory(&self, memory: &Pages<'_>) -> Option<(usize, usize)> {
        Some((memory.word(self.definition)?, memory.word(self.definition + 8)?))
    }

    /// What is in a global now, in its first eight bytes.
    pub(crate) fn global(&self, memory: &Pages<'_>, module: &ModuleImage, index: u32) -> Option<u64> {
        let (at, is_imported) = self.layout.global(module.compiled_index_spaces(), index)?;
        let address = self.context + at;
        let address = if is_imported { memory.word(address)? } else { address };
        let mut bytes = [0; 8];
        memory.read(address, &mut bytes).then_some(())?;
        match module.global_width(index)? {
            4 => Some(u32::from_le_bytes(bytes[..4].try_into().ok()?).into()),
            8 => Some(u64::from_le_bytes(bytes)),
            _ => None,
        }
    }
}

/// Whether something like a `VMContext` is at `address`.
pub(crate) fn is_context(memory: &Pages<'_>, address: usize) -> bool {
    let mut magic = [0; MAGIC.len()];
    ADDRESSES.contains(&address)
        && address.is_multiple_of(16)
        // Of each of many words, without the pages that they would be in.
        && memory.process().read(address, &mut magic)
        && magic == MAGIC
        && memory.word(address + STORE_CONTEXT).is_some_and(|store| ADDRESSES.contains(&store) && store.is_multiple_of(8))
}

/// Whether most of the pieces of the module's data are in the memory where the module puts them.
fn has_data_of(memory: &Pages<'_>, base: usize, length: usize, module: &ModuleImage) -> bool {
    let pieces = module.initial_segments().flat_map(|(address, bytes)| {
        let pieces = bytes.chunks_exact(PIECE).enumerate();
        pieces.map(move |(number, piece)| (address as usize + number * PIECE, piece))
    });
    let pieces: Vec<_> =
        pieces.filter(|(_, piece)| piece.iter().filter(|byte| **byte != 0).count() > PIECE / 4).collect();
    let step = (pieces.len() / PIECES).max(1);
    let (mut looked_at, mut equal) = (0, 0);
    for (address, piece) in pieces.into_iter().step_by(step) {
        let mut found = [0; PIECE];
        looked_at += 1;
        let is_within = address.checked_add(PIECE).is_some_and(|end| end <= length);
        equal += usize::from(is_within && memory.read(base + address, &mut found) && found == piece);
    }
    looked_at > 0 && equal * 2 > looked_at
}

/// The memory and the globals of an instance whose thread stands still.
pub(crate) struct RemoteGuest<'a> {
    pub(crate) memory: &'a Pages<'a>,
    pub(crate) module: &'a ModuleImage,
    pub(crate) instance: Instance,
    pub(crate) base: usize,
    pub(crate) length: usize,
}

impl GuestMemory for RemoteGuest<'_> {
    fn size(&self) -> u64 {
        self.length as u64
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let start = usize::try_from(address).map_err(|_| OutOfBounds)?;
        let end = start.checked_add(buffer.len()).ok_or(OutOfBounds)?;
        let is_read = end <= self.length && self.memory.read(self.base + start, buffer);
        is_read.then_some(()).ok_or(OutOfBounds)
    }

    fn global(&self, index: u32) -> Option<u64> {
        self.instance.global(self.memory, self.module, index)
    }
}
