//! Takes what a plugin says of its guests' heaps.

use super::containment::in_host;
use super::host::Receiver;
use super::threads::slice;
use wlprof_plugin::abi::{self, Bytes};
use wlprof_plugin::{Allocator, HeapBucket, MemoryPatch};

/// What one call may give, in bytes of memory: a Go program may have a hundred thousand stacks that allocate.
const ROOM: usize = 256 << 20;
/// What it may give of allocators and of patches: there are a few.
const LITTLE_ROOM: usize = 4 << 20;
/// The most bytes of one patch that are taken, and the most forms of what it is written over.
const MOST_PATCHED: usize = 1 << 16;
const MOST_EXPECTED: usize = 64;

/// Receives allocators.
#[repr(C)]
pub(super) struct HostAllocators<'a> {
    pub(super) abi: abi::Allocators,
    allocators: Receiver<'a, Allocator>,
}

impl<'a> HostAllocators<'a> {
    pub(super) fn new(allocators: &'a mut Vec<Allocator>) -> Self {
        let abi = abi::Allocators { size: size_of::<abi::Allocators>(), add: add_allocator };
        Self { abi, allocators: Receiver::new(allocators, LITTLE_ROOM) }
    }
}

/// What a plugin gives, if it is there and as large as this side knows it. A structure of an older plugin may be shorter.
///
/// # Safety
/// * `T` must begin with its size in bytes, a `usize`.
/// * `pointer` must be null, or lead to as many bytes as that size says, unchanged for as long as `'a`.
unsafe fn given<'a, T>(pointer: *const T) -> Option<&'a T> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: `pointer` is not null, and every version of `T` begins with its size (see # Safety).
    let size = unsafe { pointer.cast::<usize>().read() };
    // SAFETY: as many bytes are there as the size says (see # Safety), which is no less than a whole `T`.
    (size >= size_of::<T>()).then(|| unsafe { &*pointer })
}

unsafe extern "C" fn add_allocator(allocators: *const abi::Allocators, allocator: *const abi::Allocator) {
    in_host(|| {
        // SAFETY: by the ABI `allocators` is what the plugin was given for the call that goes on, and the allocator is there for this call.
        let (allocators, allocator) = unsafe { (&*allocators.cast::<HostAllocators<'_>>(), given(allocator)) };
        let Some(&abi::Allocator { function, call, leading_parameters, trailing_parameters, .. }) = allocator else {
            return;
        };
        if let Some(call) = abi::allocator_call_of(call) {
            let allocator = Allocator { function, call, leading_parameters, trailing_parameters };
            allocators.allocators.take(&[], 0, || allocator);
        }
    })
}

/// Receives patches.
#[repr(C)]
pub(super) struct HostPatches<'a> {
    pub(super) abi: abi::MemoryPatches,
    patches: Receiver<'a, MemoryPatch>,
}

impl<'a> HostPatches<'a> {
    pub(super) fn new(patches: &'a mut Vec<MemoryPatch>) -> Self {
        let abi = abi::MemoryPatches { size: size_of::<abi::MemoryPatches>(), add: add_patch };
        Self { abi, patches: Receiver::new(patches, LITTLE_ROOM) }
    }

    /// Whether there were more than are taken.
    pub(super) fn is_short(&self) -> bool {
        self.patches.is_short()
    }
}

/// A patch of which not all can be taken has nothing that is expected: then none is written.
unsafe extern "C" fn add_patch(patches: *const abi::MemoryPatches, patch: *const abi::MemoryPatch) {
    in_host(|| {
        // SAFETY: by the ABI `patches` is what the plugin was given for the call that goes on, and the patch is there for this call with
        // all that it has.
        let (patches, patch) = unsafe { (&*patches.cast::<HostPatches<'_>>(), given(patch)) };
        let Some(patch) = patch else {
            return patches.patches.take(&[], 0, || MemoryPatch {
                address: 0,
                expected: Vec::new(),
                bytes: Vec::new(),
            });
        };
        let is_whole = patch.expected_count <= MOST_EXPECTED && patch.bytes.length <= MOST_PATCHED;
        // SAFETY: by the ABI a patch has as many forms of what is expected as it says, for this call.
        let expected = if is_whole { unsafe { slice(patch.expected, patch.expected_count) } } else { &[] };
        let of_that_length = |bytes: &&Bytes| bytes.length == patch.bytes.length;
        // SAFETY: by the ABI the bytes of a patch are there for this call.
        let copy = |bytes: &Bytes| unsafe { bytes.get() }.to_vec();
        patches.patches.take(expected, patch.bytes.length.min(MOST_PATCHED), || MemoryPatch {
            address: patch.address,
            expected: expected.iter().filter(of_that_length).map(copy).collect(),
            bytes: if is_whole { copy(&patch.bytes) } else { Vec::new() },
        });
    })
}

/// Receives buckets.
#[repr(C)]
pub(super) struct HostBuckets<'a> {
    pub(super) abi: abi::HeapBuckets,
    buckets: Receiver<'a, HeapBucket>,
}

impl<'a> HostBuckets<'a> {
    pub(super) fn new(buckets: &'a mut Vec<HeapBucket>) -> Self {
        let abi = abi::HeapBuckets { size: size_of::<abi::HeapBuckets>(), add: add_bucket };
        Self { abi, buckets: Receiver::new(buckets, ROOM) }
    }

    /// Whether there were more than are taken.
    pub(super) fn is_short(&self) -> bool {
        self.buckets.is_short()
    }
}

unsafe extern "C" fn add_bucket(buckets: *const abi::HeapBuckets, bucket: *const abi::HeapBucket) {
    in_host(|| {
        // SAFETY: by the ABI `buckets` is what the plugin was given for the call that goes on, and the bucket is there for this call with
        // its frames.
        let (buckets, bucket) = unsafe { (&*buckets.cast::<HostBuckets<'_>>(), given(bucket)) };
        let Some(bucket) = bucket.filter(|_| !buckets.is_short()) else { return };
        // SAFETY: by the ABI a bucket has as many frames as it says, for this call.
        let frames = unsafe { slice(bucket.frames, bucket.frame_count) };
        buckets.buckets.take(&[], size_of_val(frames), || HeapBucket {
            frames: frames.iter().map(|&key| key.into()).collect(),
            allocated_blocks: bucket.allocated_blocks,
            allocated_bytes: bucket.allocated_bytes,
            freed_blocks: bucket.freed_blocks,
            freed_bytes: bucket.freed_bytes,
        });
    })
}
