//! How large a store's linear memory is: read where the instance that has it is sure to be there, and told as it was last where it is
//! not. When a store goes, its instances go before its call hook does, so that only wasm that is open says that they are there.

use super::super::reading::MemoryDefinition;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store's memory.
#[derive(Default)]
pub(super) struct LinearMemory {
    /// Where it stands; nowhere if there is no memory, or nobody has said so.
    definition: OnceLock<MemoryDefinition>,
    /// What it was when last read, in bytes.
    last: AtomicU64,
}

impl LinearMemory {
    /// The memory whose size is asked for; the first that is given counts. To be called on the store's thread.
    pub(super) fn set(&self, definition: MemoryDefinition) {
        let _ = self.definition.set(definition);
        // SAFETY: the store is borrowed on its own thread while its memory is set, so the instance is alive.
        unsafe { self.read() };
    }

    /// Whether there is one.
    pub(super) fn is_known(&self) -> bool {
        self.definition.get().is_some()
    }

    /// Its size now, in bytes. Async-signal-safe.
    ///
    /// # Safety
    /// Call this on the thread that runs the store. Its wasm must be open or about to be left, or the store be borrowed: then the instance
    /// that has the memory is alive.
    pub(super) unsafe fn read(&self) -> u64 {
        let Some(definition) = self.definition.get() else { return 0 };
        // SAFETY: wasm of the store is open, or the store is borrowed (see # Safety), so the instance that has the memory is alive.
        let (_, length) = unsafe { definition.read() };
        self.last.store(length as u64, Ordering::Relaxed);
        length as u64
    }

    /// Its size now, from any thread, in bytes; as last read where the system does not let it be read. Means nothing unless wasm of the
    /// store is open from before this is called until it has returned.
    pub(super) fn read_beside(&self) -> u64 {
        let length = self.definition.get().and_then(|definition| definition.read_through_kernel());
        length.map_or_else(|| self.last(), |length| length as u64)
    }

    /// What it was when last read, in bytes.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}
