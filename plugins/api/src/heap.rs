//! Heap profiles that a language's runtime keeps itself.

use crate::FrameKey;

/// Bytes to be written into a guest's memory before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPatch {
    /// Where, in the first memory.
    pub address: u64,
    /// What has to be there, one of these, each as long as `bytes`: else nothing of all patches is written.
    pub expected: Vec<Vec<u8>>,
    /// What is to be there.
    pub bytes: Vec<u8>,
}

/// What a stack has allocated by the account of the language's runtime, as far as its allocations were sampled: nothing is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapBucket {
    /// The stack, leaf first: the code that allocated, without the runtime's allocator.
    pub frames: Vec<FrameKey>,
    /// Blocks that were allocated and sampled.
    pub allocated_blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Of the blocks, how many have been freed.
    pub freed_blocks: u64,
    /// Their bytes.
    pub freed_bytes: u64,
}
