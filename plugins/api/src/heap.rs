//! A program's heap as its language knows it: the functions that allocate, or what the runtime has counted itself.

use crate::FrameKey;

/// The way in which a function of an allocator is called: as a function of C's library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocatorCall {
    /// `malloc(size)`
    Malloc,
    /// `calloc(count, size)`
    Calloc,
    /// `realloc(block, size)`
    Realloc,
    /// `aligned_alloc(alignment, size)`, and `memalign`, which is called in the same way
    AlignedAlloc,
    /// `posix_memalign(result, alignment, size)`
    PosixMemalign,
    /// `free(block)`
    Free,
}

impl AllocatorCall {
    /// All ways.
    pub const ALL: [Self; 6] =
        [Self::Malloc, Self::Calloc, Self::Realloc, Self::AlignedAlloc, Self::PosixMemalign, Self::Free];

    /// Returns the name of the function in C's library.
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

    /// Returns the number of parameters. All are addresses or sizes, and so is the result, if there is one.
    pub fn parameters(self) -> u32 {
        match self {
            Self::Malloc | Self::Free => 1,
            Self::Calloc | Self::Realloc | Self::AlignedAlloc => 2,
            Self::PosixMemalign => 3,
        }
    }

    /// Returns whether the function has a result.
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
    /// Index of the function in the module.
    pub function: u32,
    /// The way in which it is called.
    pub call: AllocatorCall,
    /// Number of parameters that come before those of the call and mean nothing to wlprof: for example an arena.
    pub leading_parameters: u32,
    /// Number of parameters that come after them: for example what a garbage collector should know of the block.
    pub trailing_parameters: u32,
}

/// Bytes to write into a guest's memory before it runs.
///
/// ```
/// // Sets a switch at 1024 that is 0 as the program begins.
/// let patch = wlprof_plugin::MemoryPatch { address: 1024, expected: vec![vec![0]], bytes: vec![1] };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPatch {
    /// Address in the first memory.
    pub address: u64,
    /// Contents that may be there before, each as long as `bytes`. If one patch finds none of its own, no patch is written.
    pub expected: Vec<Vec<u8>>,
    /// Bytes to write.
    pub bytes: Vec<u8>,
}

/// The sampled allocations of one stack, as the language's runtime has counted them. Nothing is scaled.
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
    /// Frames of the stack, leaf first: the code that allocated, without the runtime's allocator.
    pub frames: Vec<FrameKey>,
    /// Number of blocks that were allocated and sampled.
    pub allocated_blocks: u64,
    /// Size of these blocks in bytes.
    pub allocated_bytes: u64,
    /// Number of these blocks that have been freed.
    pub freed_blocks: u64,
    /// Size of the freed blocks in bytes.
    pub freed_bytes: u64,
}
