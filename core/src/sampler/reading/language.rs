//! A language's walker on the guest's thread: gives it the stopped guest's memory and globals.

use super::super::os::memory;
use super::super::shared::LoadedModule;
use super::vm_context::{InstanceContext, MemoryDefinition};
use std::sync::Arc;
use wlprof_plugin::{GuestMemory, HeapBucket, OutOfBounds, Program, Truncation, Walker};
use wlprof_walk::{CodeReader, Dump, LanguageStacks};

/// From where a guest is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Reading {
    /// On its thread, in wasm code or in a host call that is about to end.
    Standing,
    /// On its thread, where host code between wasm and a host call was interrupted, which may hold the allocator's lock.
    InterruptedHost,
    /// The same, where that may be moving the memory.
    InterruptedGrowth,
    /// From another thread, while host code may change its memory.
    Beside,
}

impl Reading {
    fn is_through_kernel(self) -> bool {
        matches!(self, Self::InterruptedGrowth | Self::Beside)
    }

    fn may_allocate(self) -> bool {
        matches!(self, Self::Standing | Self::Beside)
    }
}

/// A walker and what it reads.
pub(in crate::sampler) struct LanguageWalk {
    /// What was walked is named by it.
    _module: Arc<LoadedModule>,
    stacks: LanguageStacks,
    memory: Option<MemoryDefinition>,
    /// Other threads may write the memory.
    is_shared: bool,
    globals: Vec<Global>,
}

/// A global that the walker wants.
struct Global {
    index: u32,
    address: *const u8,
    width: u8,
}

// SAFETY: the address is that of a global of an instance whose store outlives the walk; it is only read, and where the
// guest does not run.
unsafe impl Send for Global {}

impl LanguageWalk {
    /// Prepares `walker`, of `program`, to read `instance`, of `module`.
    pub(in crate::sampler) fn new(
        module: Arc<LoadedModule>,
        program: Arc<dyn Program>,
        walker: Box<dyn Walker>,
        instance: InstanceContext,
    ) -> Self {
        let image = &module.image;
        let spaces = image.compiled_index_spaces();
        let globals = program
            .wanted_globals()
            .iter()
            .filter_map(|&index| {
                let width = image.global_width(index)?;
                Some(Global { index, address: instance.global(spaces, index)?, width })
            })
            .collect();
        let siblings = module.siblings().iter().map(|sibling| sibling.id).collect();
        Self {
            memory: instance.memory(spaces, 0),
            is_shared: spaces.shared_memories + spaces.imported_shared_memories > 0,
            stacks: LanguageStacks::new(module.id, siblings, program, walker),
            _module: module,
            globals,
        }
    }

    /// Walks the language's stack: see [`LanguageStacks::collect`].
    ///
    /// # Safety
    /// * The store must be alive, and its wasm must not run before this returns.
    /// * Unless `reading` is [`Reading::Beside`], call this on the thread that runs the store.
    /// * Unless `reading` is that or [`Reading::InterruptedGrowth`], nothing may move or free the memory meanwhile.
    pub(in crate::sampler) unsafe fn collect(
        &mut self,
        code: &CodeReader<'_>,
        frames: &[u64],
        reading: Reading,
        words: &mut [u64],
    ) -> usize {
        // SAFETY: the store is alive (see # Safety). The guest stands still, or the kernel reads the memory.
        let guest =
            unsafe { StoppedGuest::new(self.memory, &self.globals, self.is_shared, reading.is_through_kernel()) };
        self.stacks.collect(&guest, code, frames, reading.may_allocate(), words)
    }

    /// Reads and names the stacks of all threads: see [`LanguageStacks::threads`]. `through_kernel`: see [`StoppedGuest`].
    ///
    /// # Safety
    /// * The store must be alive, and its wasm must not run before this returns.
    /// * On another thread than the store's, `through_kernel` must be set: host code may move the memory meanwhile.
    pub(in crate::sampler) unsafe fn threads(
        &mut self,
        code: &CodeReader<'_>,
        frames: &[u64],
        state: &str,
        through_kernel: bool,
    ) -> Dump {
        // SAFETY: the store is alive and its wasm does not run; where host code may move the memory, the kernel reads it (see # Safety).
        let guest = unsafe { StoppedGuest::new(self.memory, &self.globals, self.is_shared, through_kernel) };
        self.stacks.threads(&guest, code, frames, state)
    }

    /// What the language's runtime has counted itself: see [`LanguageStacks::heap_profile`]. Whoever calls has the walker to himself, on the
    /// guest's thread, in a host call.
    ///
    /// # Errors
    /// Why it could not be read.
    ///
    /// # Safety
    /// Call this on the thread that runs the store, which must be alive. Its wasm must not run before this returns.
    pub(in crate::sampler) unsafe fn heap_profile(&mut self) -> Result<(u64, Vec<HeapBucket>), Truncation> {
        // SAFETY: the store is alive and its wasm does not run (see # Safety), so base and length belong together and stay what they are.
        let guest = unsafe { StoppedGuest::new(self.memory, &self.globals, self.is_shared, false) };
        self.stacks.heap_profile(&guest)
    }

    /// Writes a stack of a bucket as [`Self::collect`] does, and gives the number of words.
    pub(in crate::sampler) fn write_bucket(&mut self, bucket: &HeapBucket, words: &mut [u64]) -> usize {
        self.stacks.write_bucket(bucket, words)
    }

    /// Whether the last walk ended in a panic, or was left because it did not end.
    pub(in crate::sampler) fn panicked_last(&self) -> bool {
        self.stacks.panicked_last()
    }

    /// Whether it gives what suspended tasks await.
    pub(in crate::sampler) fn reads_suspended_tasks(&self) -> bool {
        self.stacks.reads_suspended_tasks()
    }

    /// Whether it can walk where host code was interrupted, which may hold the allocator's lock.
    pub(in crate::sampler) fn walks_without_allocating(&self) -> bool {
        self.stacks.walks_without_allocating()
    }
}

/// The guest, standing still.
struct StoppedGuest<'a> {
    base: *const u8,
    length: usize,
    globals: &'a [Global],
    /// Other threads of the guest may write the memory while this one stands still.
    is_shared: bool,
    /// Memory is read by a system call that fails where memory is not there any more: host code that runs meanwhile, or was interrupted,
    /// may grow it, and so move it.
    through_kernel: bool,
}

impl<'a> StoppedGuest<'a> {
    /// # Safety
    /// * The store of the memory and of the globals must be alive for as long as this value.
    /// * Unless `through_kernel` is set, the memory must neither move nor be freed meanwhile.
    unsafe fn new(
        memory: Option<MemoryDefinition>,
        globals: &'a [Global],
        is_shared: bool,
        through_kernel: bool,
    ) -> Self {
        // SAFETY: the store of the memory is alive (see # Safety).
        let (base, length) = memory.map_or((0, 0), |memory| unsafe { memory.read() });
        Self { base: base as *const u8, length, globals, is_shared, through_kernel }
    }
}

impl GuestMemory for StoppedGuest<'_> {
    fn size(&self) -> u64 {
        self.length as u64
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let start = usize::try_from(address).map_err(|_| OutOfBounds)?;
        let end = start.checked_add(buffer.len()).ok_or(OutOfBounds)?;
        if end > self.length {
            return Err(OutOfBounds);
        }
        if self.through_kernel {
            let is_there = memory::read(self.base.wrapping_add(start), buffer);
            return if is_there { Ok(()) } else { Err(OutOfBounds) };
        }
        // SAFETY: the range lies in the memory, of which `length` bytes from `base` are mapped while the guest stands
        // still; the buffer is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(start), buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    fn in_place(&self) -> Option<&[u8]> {
        // SAFETY: `length` bytes from `base` are mapped while the guest stands still, and nobody writes them: no other thread
        // has the memory.
        let whole = || unsafe { std::slice::from_raw_parts(self.base, self.length) };
        (!self.through_kernel && !self.is_shared && !self.base.is_null()).then(whole)
    }

    fn global(&self, index: u32) -> Option<u64> {
        let global = self.globals.iter().find(|global| global.index == index)?;
        Some(match global.width {
            // SAFETY: the store of the global is alive (see `StoppedGuest::new`), and the image says that the global has this width.
            4 => unsafe { global.address.cast::<u32>().read_volatile() }.into(),
            // SAFETY: the store of the global is alive (see `StoppedGuest::new`), and the image says that the global has this width.
            8 => unsafe { global.address.cast::<u64>().read_volatile() },
            _ => return None,
        })
    }
}
