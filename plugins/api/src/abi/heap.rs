//! What walkers say of their guests' heaps.

use super::{Bytes, FrameKey};

/// A function of a module that is called for memory. All its parameters, and its result if it has one, are 32 bits wide.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Its index in the module.
    pub function: u32,
    /// How it is called: one of `ALLOCATOR_CALL_…`. One of a kind that is not among them is left out.
    pub call: u32,
    /// Parameters that come before those of the call, and mean nothing to anybody else: an arena, say.
    pub leading_parameters: u32,
    /// Parameters that come after them: what a garbage collector should know of the block, say.
    pub trailing_parameters: u32,
}

/// As `malloc(size)`.
pub const ALLOCATOR_CALL_MALLOC: u32 = 0;
/// As `calloc(count, size)`.
pub const ALLOCATOR_CALL_CALLOC: u32 = 1;
/// As `realloc(block, size)`.
pub const ALLOCATOR_CALL_REALLOC: u32 = 2;
/// As `aligned_alloc(alignment, size)`.
pub const ALLOCATOR_CALL_ALIGNED_ALLOC: u32 = 3;
/// As `posix_memalign(result, alignment, size)`.
pub const ALLOCATOR_CALL_POSIX_MEMALIGN: u32 = 4;
/// As `free(block)`.
pub const ALLOCATOR_CALL_FREE: u32 = 5;

/// Receives allocators. It is wlprof's.
#[repr(C)]
#[derive(Debug)]
pub struct Allocators {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Takes one more allocator.
    pub add: unsafe extern "C" fn(allocators: *const Allocators, allocator: *const Allocator),
}

/// Bytes to be written into a guest's memory before it runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryPatch {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Where, in the first memory.
    pub address: u64,
    /// What has to be there, one of these, each as long as `bytes`: else nothing of all patches is written.
    pub expected: *const Bytes,
    /// How many there are.
    pub expected_count: usize,
    /// What is to be there.
    pub bytes: Bytes,
}

/// Receives patches. It is wlprof's.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryPatches {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Takes one more patch.
    pub add: unsafe extern "C" fn(patches: *const MemoryPatches, patch: *const MemoryPatch),
}

/// What a stack has allocated by the account of the language's runtime, as far as its allocations were sampled: nothing is
/// scaled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HeapBucket {
    /// Size of this structure in bytes.
    pub size: usize,
    /// The stack, leaf first: the code that allocated, without the runtime's allocator.
    pub frames: *const FrameKey,
    /// How many frames there are.
    pub frame_count: usize,
    /// Blocks that were allocated and sampled.
    pub allocated_blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Of the blocks, how many have been freed.
    pub freed_blocks: u64,
    /// Their bytes.
    pub freed_bytes: u64,
}

/// Receives buckets. It is wlprof's.
#[repr(C)]
#[derive(Debug)]
pub struct HeapBuckets {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Takes one more bucket.
    pub add: unsafe extern "C" fn(buckets: *const HeapBuckets, bucket: *const HeapBucket),
}
