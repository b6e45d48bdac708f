//! Reads what Wasmtime keeps about a store and an instance, at the offsets that `wasmtime-environ` publishes for exactly
//! this version. [`super::self_check`] proves them against the public API before anything relies on them.

use super::super::os::memory;
use wasmtime::{AsContextMut, Func};
use wasmtime_environ::{
    DefinedGlobalIndex, DefinedMemoryIndex, EntityRef, GlobalIndex, HostPtr, MemoryIndex, PtrSize, VMCONTEXT_MAGIC,
    VMOffsets, VMOffsetsFields,
};
use wlprof_module::IndexSpaces;
use wlprof_walk::Activation;

/// The part of a store in which running wasm leaves its traces (`VMStoreContext`).
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct StoreContext(*const u8);

// SAFETY: only read, and only while the store lives, as `activation` and `fiber` demand. The words are read as volatile.
unsafe impl Send for StoreContext {}
// SAFETY: reading it from several threads is as it is from one.
unsafe impl Sync for StoreContext {}

impl StoreContext {
    /// What the store says of its innermost entry into wasm.
    ///
    /// The exit fields are not cleared when a host call returns: they mean something only while host code runs.
    ///
    /// # Safety
    /// The store must be alive.
    pub(in crate::sampler) unsafe fn activation(self) -> Activation {
        let offsets = HostPtr.vm_store_context();
        // SAFETY: the store is alive (see # Safety), and each of these offsets is that of a field of pointer size.
        let field = |offset: u8| unsafe { self.field(offset.into()) };
        Activation {
            exit_pc: field(offsets.last_wasm_exit_pc()),
            exit_trampoline_fp: field(offsets.last_wasm_exit_trampoline_fp()),
            entry_fp: field(offsets.last_wasm_entry_fp()),
        }
    }

    /// Lowest address of the fiber that runs in the store; 0 if it runs on a thread's own stack.
    ///
    /// # Safety
    /// The store must be alive.
    pub(in crate::sampler) unsafe fn fiber(self) -> usize {
        // The end of the guard page below the fiber's stack: the second word of a range.
        let end = usize::from(HostPtr.vm_store_context().async_guard_range()) + size_of::<usize>();
        // SAFETY: the store is alive (see # Safety), and `end` is the offset of the range's second word, which has pointer size.
        unsafe { self.field(end) }
    }

    /// # Safety
    /// The store must be alive, and `offset` must be that of a field of pointer size in `VMStoreContext`.
    unsafe fn field(self, offset: usize) -> usize {
        // SAFETY: the field lies inside the structure, which lives as long as the store. Volatile, because the thread that
        // runs the store may write it meanwhile.
        unsafe { self.0.add(offset).cast::<usize>().read_volatile() }
    }
}

/// An instance (`VMContext`).
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct InstanceContext(*const u8);

// SAFETY: a pointer into an instance, only read, and only while its store lives (the holder's part).
unsafe impl Send for InstanceContext {}
// SAFETY: reading it from several threads is as it is from one.
unsafe impl Sync for InstanceContext {}

impl InstanceContext {
    /// The instance that defines `func`, and where its code begins; `None` if that is no wasm function.
    pub(in crate::sampler) fn and_code_of(store: impl AsContextMut, func: &Func) -> Option<(Self, usize)> {
        let func_ref = func.to_raw(store).cast::<u8>();
        // SAFETY: `to_raw` gives a pointer to a `VMFuncRef` of the store, of which `wasm_call` is a pointer field.
        let code = unsafe { *func_ref.add(HostPtr.vm_func_ref().wasm_call().into()).cast::<usize>() };
        // SAFETY: `to_raw` gives a pointer to a `VMFuncRef` of the store, of which `vmctx` is a pointer field.
        let vmctx = unsafe { *func_ref.add(HostPtr.vm_func_ref().vmctx().into()).cast::<*const u8>() };
        // SAFETY: every kind of vmctx begins with a magic word of four bytes.
        let magic = unsafe { *vmctx.add(HostPtr.vmctx_magic().into()).cast::<u32>() };
        (magic == VMCONTEXT_MAGIC).then_some((Self(vmctx), code))
    }

    /// The instance that defines `func`; `None` if that is no wasm function.
    pub(in crate::sampler) fn of(store: impl AsContextMut, func: &Func) -> Option<Self> {
        Self::and_code_of(store, func).map(|(context, _)| context)
    }

    /// The store of the instance.
    pub(in crate::sampler) fn store_context(self) -> StoreContext {
        // SAFETY: `self` is an instance's vmctx (checked by its magic), of which this is a pointer field.
        StoreContext(unsafe { *self.0.add(HostPtr.vmctx_store_context().into()).cast::<*const u8>() })
    }

    /// Where the instance keeps global `index`; `None` past the end.
    pub(in crate::sampler) fn global(self, spaces: &IndexSpaces, index: u32) -> Option<*const u8> {
        let offsets = offsets(spaces);
        if let Some(defined) = index.checked_sub(spaces.imported_globals) {
            let offset = (defined < spaces.globals)
                .then(|| offsets.vmctx_vmglobal_definition(DefinedGlobalIndex::new(defined as usize)))?;
            // SAFETY: the offset lies inside the vmctx of an instance with these index spaces.
            return Some(unsafe { self.0.add(offset as usize) });
        }
        let offset = offsets.vmctx_vmglobal_import_from(GlobalIndex::new(index as usize));
        // SAFETY: the offset lies inside the vmctx of an instance with these index spaces; an imported global is a pointer to where its
        // owner keeps it.
        Some(unsafe { *self.0.add(offset as usize).cast::<*const u8>() })
    }

    /// Where the instance keeps the base and the length of memory `index`; `None` past the end.
    pub(in crate::sampler) fn memory(self, spaces: &IndexSpaces, index: u32) -> Option<MemoryDefinition> {
        let offsets = offsets(spaces);
        let offset = match index.checked_sub(spaces.imported_memories) {
            Some(defined) if defined < spaces.memories => {
                offsets.vmctx_vmmemory_pointer(DefinedMemoryIndex::new(defined as usize))
            }
            Some(_) => return None,
            None => offsets.vmctx_vmmemory_import_from(MemoryIndex::new(index as usize)),
        };
        // SAFETY: the offset lies inside the vmctx of an instance with these index spaces; the word there is a
        // pointer to the memory's definition, whether its own or imported.
        Some(MemoryDefinition(unsafe { *self.0.add(offset as usize).cast::<*const [usize; 2]>() }))
    }
}

/// Where a memory's base and length stand (`VMMemoryDefinition`). They change when the memory grows.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct MemoryDefinition(*const [usize; 2]);

// SAFETY: a pointer into a store, only read. `read` demands that the store lives; `read_through_kernel` has the kernel check the address.
unsafe impl Send for MemoryDefinition {}
// SAFETY: reading it from several threads is as it is from one.
unsafe impl Sync for MemoryDefinition {}

impl MemoryDefinition {
    /// Base address and length in bytes, at this moment.
    ///
    /// # Safety
    /// The store must be alive.
    pub(in crate::sampler) unsafe fn read(self) -> (usize, usize) {
        // SAFETY: the definition lives as long as the store. The words are read each for itself and are only trusted
        // where the guest stands still in wasm code.
        let [base, length] = unsafe { self.0.read_volatile() };
        (base, length)
    }

    /// Length in bytes, read by the kernel: the store may be gone, and then this means nothing. `None` if nothing is there.
    pub(in crate::sampler) fn read_through_kernel(self) -> Option<usize> {
        let mut words = [0; 2 * size_of::<usize>()];
        let (_, length) = memory::read(self.0.cast(), &mut words).then(|| words.split_at(size_of::<usize>()))?;
        length.try_into().map(usize::from_ne_bytes).ok()
    }
}

fn offsets(spaces: &IndexSpaces) -> VMOffsets<HostPtr> {
    VMOffsets::from(VMOffsetsFields {
        ptr: HostPtr,
        num_imported_functions: spaces.imported_functions,
        num_imported_tables: spaces.imported_tables,
        num_imported_memories: spaces.imported_memories,
        num_imported_globals: spaces.imported_globals,
        num_imported_tags: spaces.imported_tags,
        num_defined_tables: spaces.tables,
        num_defined_memories: spaces.memories,
        num_owned_memories: spaces.memories - spaces.shared_memories,
        num_defined_globals: spaces.globals,
        num_defined_tags: spaces.tags,
        // These lie after all that is read here.
        num_escaped_funcs: 0,
        num_runtime_data: 0,
        has_startup_func: false,
    })
}
