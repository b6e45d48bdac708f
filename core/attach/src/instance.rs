//! The instance that a stopped thread runs: found by its `VMContext`, and believed only if its memory is that of the module.

use crate::initial_data::InitialData;
use crate::layout::{Layout, MAGIC, STORE_CONTEXT};
use crate::pages::Pages;
use wlprof_module::ModuleImage;
use wlprof_plugin::{GuestMemory, OutOfBounds};

/// Addresses that user programs have: what is not among them is no pointer.
const ADDRESSES: std::ops::Range<usize> = 0x1000..1 << if cfg!(target_arch = "aarch64") { 48 } else { 47 };

/// An instance of a module in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    context: usize,
    layout: Layout,
    /// Where its store has what compiled code writes.
    store: usize,
    /// Where its first memory has base and length.
    definition: usize,
    /// Where that memory was when it had the module's data, if that still counts.
    base: Option<usize>,
}

impl Instance {
    /// The instance of `module` whose `VMContext` is at `address`, if there is one.
    ///
    /// # Security
    /// What is not proved is not believed: the magic word, the store's part, and the memory, which has most of `data` where the modules that work
    /// on it put that. A program may change its data; constants are a part of it.
    pub(crate) fn at(
        memory: &Pages<'_>,
        address: usize,
        (module, data): (&ModuleImage, &InitialData),
        layout: Layout,
    ) -> Option<Self> {
        let store = store_of_context(memory, address)?;
        let pointer = layout.first_memory(module.compiled_index_spaces())?;
        let definition = memory.word(address + pointer)?;
        let instance = Self { context: address, layout, store, definition, base: None };
        let (base, length) = instance.memory(memory)?;
        data.is_in(memory, base, length).then_some(Self { base: Some(base), ..instance })
    }

    /// It as it is now, as far as it is the same one: of the same store, and with the data in its memory where that has moved.
    pub(crate) fn again(&self, memory: &Pages<'_>, of: (&ModuleImage, &InitialData)) -> Option<Self> {
        let is_of_store = store_of_context(memory, self.context) == Some(self.store);
        let (base, _) = self.memory(memory).filter(|_| is_of_store)?;
        if self.base == Some(base) {
            return Some(*self);
        }
        Self::at(memory, self.context, of, self.layout)
    }

    /// Has its memory be looked at again before it is used.
    pub(crate) fn doubt(&mut self) {
        self.base = None;
    }

    /// Base and length of its first memory now.
    pub(crate) fn memory(&self, memory: &Pages<'_>) -> Option<(usize, usize)> {
        let (base, length) = (memory.word(self.definition)?, memory.word(self.definition.checked_add(8)?)?);
        let is_memory = ADDRESSES.contains(&base) && base.is_multiple_of(4096) && length > 0;
        (is_memory && length <= ADDRESSES.end - base).then_some((base, length))
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
    store_of_context(memory, address).is_some()
}

/// The store of what is like a `VMContext` at `address`, if something is.
fn store_of_context(memory: &Pages<'_>, address: usize) -> Option<usize> {
    let mut magic = [0; MAGIC.len()];
    let is_context = ADDRESSES.contains(&address)
        && address.is_multiple_of(16)
        // Of each of many words, without the pages that they would be in.
        && memory.process().read(address, &mut magic)
        && magic == MAGIC;
    let store = is_context.then(|| memory.word(address + STORE_CONTEXT))??;
    (ADDRESSES.contains(&store) && store.is_multiple_of(8)).then_some(store)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::WORK_OF_SAMPLE;
    use crate::process::Process;
    use std::hint::black_box;
    use std::sync::Arc;
    use wasm_encoder::{ConstExpr, DataSection, MemorySection, MemoryType, Module};

    const DATA: [u8; 64] = [7; 64];

    /// A module with a memory, and data at its beginning.
    fn module() -> ModuleImage {
        let (mut memories, mut data, mut module) = (MemorySection::new(), DataSection::new(), Module::new());
        let memory = MemoryType { minimum: 1, maximum: None, memory64: false, shared: false, page_size_log2: None };
        memories.memory(memory);
        data.active(0, &ConstExpr::i32_const(0), DATA);
        module.section(&memories).section(&data);
        ModuleImage::parse(module.finish(), "x").unwrap()
    }

    /// A `VMContext` and two memories in this process, the first with the data.
    struct Own {
        words: Vec<usize>,
        context: usize,
        memories: Vec<u8>,
        first: usize,
    }

    impl Own {
        fn new(layout: Layout, module: &ModuleImage) -> Self {
            let (words, memories) = (vec![0; 64], vec![0; 4 * 4096]);
            let context = words.as_ptr().addr().next_multiple_of(16);
            let first = memories.as_ptr().addr().next_multiple_of(4096);
            let mut own = Self { words, context, memories, first };
            let at = own.first - own.memories.as_ptr().addr();
            own.memories[at..at + DATA.len()].copy_from_slice(&DATA);
            own.set(0, u32::from_le_bytes(MAGIC) as usize);
            own.set(STORE_CONTEXT, own.context + 256);
            own.set(layout.first_memory(module.compiled_index_spaces()).unwrap(), own.context + 128);
            own.set(128, first);
            own.set(136, 4096);
            own
        }

        fn set(&mut self, at: usize, word: usize) {
            let index = (self.context + at - self.words.as_ptr().addr()) / 8;
            self.words[index] = word;
            // The compiler does not see that it is read.
            black_box((&mut self.words, &mut self.memories));
        }
    }

    #[test]
    fn another_instance_at_the_same_address_is_not_taken_for_the_one_that_was() {
        let process = Process::open(std::process::id() as i32).unwrap();
        let pages = || Pages::new(&process, WORK_OF_SAMPLE);
        let (layout, module) = (Layout::of(48).unwrap(), Arc::new(module()));
        let data = InitialData::of(std::slice::from_ref(&module));
        let of = (&*module, &data);
        let mut own = Own::new(layout, &module);
        let instance = Instance::at(&pages(), own.context, of, layout).unwrap();
        let again = || instance.again(&pages(), of);
        assert_eq!(again(), Some(instance));
        own.set(STORE_CONTEXT, own.context + 264);
        assert_eq!(again(), None, "of another store");
        own.set(STORE_CONTEXT, own.context + 256);
        own.set(128, own.first + 4096);
        assert_eq!(again(), None, "with a memory that has not its data");
        own.set(136, usize::MAX);
        assert_eq!(again(), None, "with a memory that is too long");
        own.set(128, own.first);
        own.set(136, 4096);
        assert_eq!(again(), Some(instance));
        // What has another's data is not seen before it is doubted.
        let at = own.first - own.memories.as_ptr().addr();
        own.memories[at..at + DATA.len()].fill(0);
        own.set(136, 8192);
        let mut doubted = instance;
        doubted.doubt();
        assert_eq!((again(), doubted.again(&pages(), of)), (Some(instance), None));
    }

    #[test]
    fn addresses_of_this_process_are_addresses() {
        let (on_stack, on_heap) = (0, Box::new(0));
        let code = addresses_of_this_process_are_addresses as fn() as usize;
        for address in [(&raw const on_stack).addr(), (&raw const *on_heap).addr(), code] {
            assert!(ADDRESSES.contains(&address), "{address:#x}");
        }
    }
}
