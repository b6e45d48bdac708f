//! A heap whose guest's runtime counts what it allocates itself: it is read now and then, where the guest stands in a host call.

use super::super::os::clock::monotonic_ns;
use super::StoreHeap;
use crate::heap::not_expected;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wasmtime::{Instance, Store};
use wlprof_plugin::{HeapBucket, MemoryPatch};
use wlprof_recording::{Amount, SiteTotals};

/// Nanoseconds between two readings at least.
const LEAST_NS: u64 = 20_000_000;
/// How much longer than a reading takes it is until the next one: a hundredth of the time goes into it.
const PAUSE: u64 = 100;

/// The heap of a store, and when it is to be read.
pub(in crate::sampler) struct CountedHeap {
    pub(in crate::sampler) heap: Arc<StoreHeap>,
    due_ns: AtomicU64,
}

impl CountedHeap {
    pub(in crate::sampler) fn new(heap: Arc<StoreHeap>) -> Self {
        Self { heap, due_ns: AtomicU64::new(0) }
    }

    /// Whether it is time.
    pub(in crate::sampler) fn is_due(&self) -> bool {
        monotonic_ns() >= self.due_ns.load(Ordering::Relaxed)
    }

    /// It has been read, since `began_ns` on the monotonic clock.
    pub(in crate::sampler) fn was_read(&self, began_ns: u64) {
        let now_ns = monotonic_ns();
        let pause_ns = (now_ns.saturating_sub(began_ns) * PAUSE).max(LEAST_NS);
        self.due_ns.store(now_ns + pause_ns, Ordering::Relaxed);
    }
}

/// Writes `patches` into the memory that begins at `base`, which `instance` exports, all of them or none.
///
/// # Errors
/// If it does not export it, or not what is expected is there.
pub(in crate::sampler) fn patch<T: 'static>(
    store: &mut Store<T>,
    instance: &Instance,
    base: usize,
    patches: &[MemoryPatch],
) -> wasmtime::Result<()> {
    let exported: Vec<_> = instance.exports(&mut *store).filter_map(|export| export.into_memory()).collect();
    let memory = exported.into_iter().find(|memory| memory.data_ptr(&*store) as usize == base);
    let memory = memory.ok_or_else(|| wasmtime::format_err!("it does not export its memory"))?;
    let data = memory.data_mut(store);
    let range = |patch: &MemoryPatch| {
        let start = usize::try_from(patch.address).ok()?;
        Some(start..start.checked_add(patch.bytes.len())?)
    };
    for patch in patches {
        let found = range(patch).and_then(|range| data.get(range));
        let is_expected = found.is_some_and(|found| patch.expected.iter().any(|expected| expected == found));
        wasmtime::ensure!(is_expected, "{}", not_expected(patch, found));
    }
    for patch in patches {
        if let Some(place) = range(patch).and_then(|range| data.get_mut(range)) {
            place.copy_from_slice(&patch.bytes);
        }
    }
    Ok(())
}

/// What a bucket says of all allocations of its stack, of which one each `rate` bytes was sampled.
///
/// # Accuracy
/// As the runtime's own tools have it: sums of blocks of unlike sizes are scaled by their mean size.
pub(super) fn totals(bucket: &HeapBucket, rate: u64) -> SiteTotals {
    let HeapBucket { allocated_blocks, allocated_bytes, freed_blocks, freed_bytes, .. } = *bucket;
    let held_blocks = allocated_blocks.saturating_sub(freed_blocks);
    let held_bytes = allocated_bytes.saturating_sub(freed_bytes);
    SiteTotals {
        samples: allocated_blocks,
        allocated: scaled(allocated_blocks, allocated_bytes, rate),
        held: scaled(held_blocks, held_bytes, rate),
        ..SiteTotals::default()
    }
}

fn scaled(blocks: u64, bytes: u64, rate: u64) -> Amount {
    if blocks == 0 {
        return Amount::default();
    }
    let (blocks, bytes) = (blocks as f64, bytes as f64);
    let mean = bytes / blocks;
    let weight = if rate <= 1 || bytes == 0.0 { 1.0 } else { 1.0 / -f64::exp_m1(-mean / rate as f64) };
    Amount { blocks: blocks * weight, bytes: bytes * weight, variance: blocks * weight * (weight - 1.0) * mean * mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_scaled_as_pprof_does() {
        let bucket = HeapBucket {
            allocated_blocks: 10,
            allocated_bytes: 10 * 1024,
            freed_blocks: 4,
            freed_bytes: 4 * 1024,
            ..HeapBucket::default()
        };
        let every = totals(&bucket, 1);
        assert_eq!((every.allocated.blocks, every.allocated.bytes, every.held.bytes), (10.0, 10240.0, 6144.0));
        assert_eq!(every.allocated.bound(), 0.0);
        let some = totals(&bucket, 512 << 10);
        // Go's own: scale = 1 / (1 - exp(-avgSize / rate)).
        let scale = 1.0 / (1.0 - (-1024.0_f64 / 524_288.0).exp());
        assert!((some.allocated.bytes / (10240.0 * scale) - 1.0).abs() < 1e-9, "{some:?}");
        assert!((some.held.blocks / (6.0 * scale) - 1.0).abs() < 1e-9 && some.held.bound() > 0.0);
        assert_eq!(totals(&HeapBucket { freed_blocks: 9, ..HeapBucket::default() }, 7).held, Amount::default());
    }
}
