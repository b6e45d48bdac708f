//! What a language says of its heap: which functions allocate, or what its runtime has counted itself.

use crate::FrameKey;

/// How a function of an allocator is called: as that of C's library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocatorCall {
    /// `malloc(size)`
    Malloc,
    /// `calloc(count, size)`
    Calloc,
    /// `realloc(block, size)`
    Realloc,
    /// `aligned_alloc(alignment, size)` and `memalign`, which is called alike
    AlignedAlloc,
    /// `posix_memalign(result, alignment, size)`
    PosixMemalign,
    /// `free(block)`
    Free,
}

impl AllocatorCall {
    /// All there are.
    pub const ALL: [Self; 6] =
        [Self::Malloc, Self::Calloc, Self::Realloc, Self::AlignedAlloc, Self::PosixMemalign, Self::Free];

    /// What C's library calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Calloc => "calloc",
            Self::Realloc => "realloc",
            Self::AlignedAlloc => "aligned_alloc",
            Self::PosixMemalign => "posix_memalign",
            Self::Free => "free",
        }
    }

    /// Number of parameters; all are addresses or sizes, and so is what is returned, if anything is.
    pub fn parameters(self) -> u32 {
        match self {
            Self::Malloc | Self::Free => 1,
            Self::Calloc | Self::Realloc | Self::AlignedAlloc => 2,
            Self::PosixMemalign => 3,
        }
    }

    /// Whether anything is returned.
    pub fn returns(self) -> bool {
        self != Self::Free
    }
}

/// A function of a module that is called for memory. All its parameters, and its result if it has one, are 32 bits wide.
///
/// ```
/// use wlprof_plugin::{Allocator, AllocatorCall};
///
/// // `my_malloc(arena, size)`
/// let allocator =
///     Allocator { function: 12, call: AllocatorCall::Malloc, leading_parameters: 1, trailing_parameters: 0 };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// Its index in the module.
    pub function: u32,
    /// How it is called.
    pub call: AllocatorCall,
    /// Parameters that come before those of the call, and mean nothing to anybody else: an arena, say.
    pub leading_parameters: u32,
    /// Parameters that come after them: what a garbage collector should know of the block, say.
    pub trailing_parameters: u32,
}

/// Bytes to be written into a guest's memory before it runs.
///
/// ```
/// // Sets a switch at 1024 that is 0 as the program begins.
/// let patch = wlprof_plugin::MemoryPatch { address: 1024, expected: vec![vec![0]], bytes: vec![1] };
/// ```
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
///
/// ```
/// use wlprof_plugin::{FrameKey, HeapBucket};
///
/// let bucket = HeapBucket {
///     frames: vec![FrameKey::Own(0x1234)],
///     allocated_blocks: 10,
///     allocated_bytes: 640,
///     freed_blocks: 9,
///     freed_bytes: 576,
/// };
/// ```
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
