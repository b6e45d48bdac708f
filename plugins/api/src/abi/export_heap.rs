//! What programs and walkers written in Rust say of their guests' heaps, as the C ABI has it.

use super::convert::{allocator_call_number, walk_end_number};
use super::export::{ExportedProgram, ExportedWalker, say};
use super::guest::{ForeignGuest, ForeignModule};
use super::{
    Allocator, Allocators, Bytes, FrameKey, Guest, HeapBucket, HeapBuckets, MemoryPatch, MemoryPatches, Module,
    Program, Texts, WALK_END_FAILED, Walker,
};

pub(super) unsafe extern "C" fn allocators(
    program: *mut Program,
    module: *const Module,
    found: *const Allocators,
    missed: *const Texts,
) {
    // SAFETY: by the ABI `program` is one of `leak`'s and not destroyed before this call ends.
    let ExportedProgram { program, panics, .. } = unsafe { ExportedProgram::from_abi(program) };
    panics.guard((), || {
        // SAFETY: by the ABI `module` stays for this call.
        let module = unsafe { ForeignModule::new(module) };
        let mut notes = Vec::new();
        for allocator in program.allocators(&module, &mut notes) {
            let allocator = Allocator {
                size: size_of::<Allocator>(),
                function: allocator.function,
                call: allocator_call_number(allocator.call),
                leading_parameters: allocator.leading_parameters,
                trailing_parameters: allocator.trailing_parameters,
            };
            // SAFETY: by the ABI `found` is a receiver of wlprof's, which stays for this call. The allocator lives until `add` returns.
            unsafe { ((*found).add)(found, &allocator) };
        }
        for note in notes {
            // SAFETY: by the ABI `missed` is a receiver of wlprof's, which stays for this call.
            unsafe { say(missed, &note) };
        }
    });
}

pub(super) unsafe extern "C" fn switch_heap_profiler_on(
    program: *mut Program,
    rate: u64,
    patches: *const MemoryPatches,
) {
    // SAFETY: by the ABI `program` is one of `leak`'s and not destroyed before this call ends.
    let ExportedProgram { program, panics, .. } = unsafe { ExportedProgram::from_abi(program) };
    panics.guard((), || {
        for patch in program.switch_heap_profiler_on(rate) {
            let expected: Vec<Bytes> = patch.expected.iter().map(|bytes| Bytes::of(bytes)).collect();
            let patch = MemoryPatch {
                size: size_of::<MemoryPatch>(),
                address: patch.address,
                expected: expected.as_ptr(),
                expected_count: expected.len(),
                bytes: Bytes::of(&patch.bytes),
            };
            // SAFETY: by the ABI `patches` is a receiver of wlprof's, which stays for this call. The patch and all that it has live until
            // `add` returns.
            unsafe { ((*patches).add)(patches, &patch) };
        }
    });
}

pub(super) unsafe extern "C" fn heap_profile(
    walker: *mut Walker,
    guest: *const Guest,
    buckets: *const HeapBuckets,
    rate: *mut u64,
) -> u32 {
    // SAFETY: by the ABI `walker` is one of `leak`'s that no other call uses.
    let ExportedWalker { walker, panics, .. } = unsafe { ExportedWalker::from_abi(walker) };
    panics.guard(WALK_END_FAILED, || {
        // SAFETY: by the ABI `guest` stays for this call.
        let guest = unsafe { &*guest };
        let mut found = Vec::new();
        let read = walker.heap_profile(&ForeignGuest(guest), &mut found);
        if let Ok(sampled) = read {
            // SAFETY: by the ABI `rate` is a place for one number, which stays for this call.
            unsafe { rate.write(sampled) };
        }
        for bucket in found {
            let frames: Vec<FrameKey> = bucket.frames.iter().map(|&key| key.into()).collect();
            let bucket = HeapBucket {
                size: size_of::<HeapBucket>(),
                frames: frames.as_ptr(),
                frame_count: frames.len(),
                allocated_blocks: bucket.allocated_blocks,
                allocated_bytes: bucket.allocated_bytes,
                freed_blocks: bucket.freed_blocks,
                freed_bytes: bucket.freed_bytes,
            };
            // SAFETY: by the ABI `buckets` is a receiver of wlprof's, which stays for this call. The bucket and its frames live until `add`
            // returns.
            unsafe { ((*buckets).add)(buckets, &bucket) };
        }
        walk_end_number(read.map(drop))
    })
}
