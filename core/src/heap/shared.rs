//! What the heaps of a session share: room for held blocks, and how often they sample.

use super::rate::Rate;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use wlprof_recording::Amount;

/// Sampled blocks whose ends are waited for, in all memories of a session: 90 MB in one table, which is full then. A guest says where blocks
/// are, and need not have the memory.
pub(super) const MAX_HELD: usize = if cfg!(test) { 1 << 10 } else { (1 << 21) / 8 * 7 };

/// Bytes of a session whose every allocation is sampled: small guests are seen exactly.
const EXACT_BYTES: u64 = 1 << 20;

/// From then on two samples are so small a part of what was allocated before apart, up to the rate that was asked for: sums of small blocks
/// are within 5 % at any time, and 512 MiB take 6,400 samples.
const PART: u64 = 1 << 10;

/// What C's allocators take at least. A smaller block counts as so many bytes, so that samples of empty ones come to an end.
const SMALLEST_BLOCK: f64 = 16.0;

/// What the heaps of a session share.
#[derive(Debug, Default)]
pub struct SharedHeap {
    /// Sampled blocks that are held.
    held: AtomicUsize,
    /// Bytes that have been allocated, as far as samples tell.
    allocated: AtomicU64,
}

impl SharedHeap {
    /// Takes room for a held block, if there is any.
    pub(super) fn take(&self) -> bool {
        let more = |held: usize| (held < MAX_HELD).then_some(held + 1);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives back the room of so many blocks.
    pub(super) fn give_back(&self, count: usize) {
        self.held.fetch_sub(count, Ordering::Relaxed);
    }

    /// Counts what a sample stands for.
    pub(super) fn count(&self, amount: Amount) {
        let bytes = amount.bytes.max(amount.blocks * SMALLEST_BLOCK);
        self.allocated.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The rate until the next sample, where `rate` was asked for.
    pub(super) fn rate_now(&self, rate: Rate) -> Rate {
        match self.allocated.load(Ordering::Relaxed) {
            0..EXACT_BYTES => Rate::EVERY,
            allocated => Rate::bytes(rate.get().min(allocated / PART)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocators::Call;
    use super::super::blocks::{Blocks, Told};
    use super::super::instructions::FILTER_BYTES;
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_bound_is_of_all_that_share_it_and_room_comes_back() {
        let mut filter = vec![0; FILTER_BYTES as usize];
        let shared = Arc::new(SharedHeap::default());
        let take = |blocks: &mut Blocks<&'static str>, filter: &mut [u8]| {
            for block in 1..=MAX_HELD as u32 {
                let told =
                    Told { call: Call::Malloc, size: 1, block: 16 * block, before: 0, is_sample: true, time_ns: 7 };
                blocks.allocated(&told, filter, || "a");
            }
        };
        let mut first = Blocks::within(Rate::bytes(1), shared.clone());
        let mut second = Blocks::within(Rate::bytes(1), shared.clone());
        take(&mut first, &mut filter);
        take(&mut second, &mut filter);
        assert_eq!((first.held().blocks, first.unheld()), (1024.0, 0));
        assert_eq!((second.held().blocks, second.unheld()), (0.0, 1024), "all of it is counted, and nothing held");
        let allocated: f64 = second.sites().map(|(_, totals)| totals.allocated.blocks).sum();
        assert_eq!(allocated, 1024.0);
        first.freed(16, &mut filter);
        take(&mut second, &mut filter);
        assert_eq!((second.held().blocks, second.unheld()), (1.0, 1024 + 1023));
        drop(first);
        take(&mut second, &mut filter);
        assert_eq!((second.held().blocks, second.unheld()), (1024.0, 1024 + 1023));
        drop(second);
        assert_eq!(shared.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn samples_are_ever_further_apart_up_to_what_was_asked_for() {
        let shared = SharedHeap::default();
        let rate_after = |bytes: u64| {
            shared.count(Amount::of_block(bytes - shared.allocated.load(Ordering::Relaxed), 1.0));
            [Rate::DEFAULT, Rate::bytes(1000)].map(|rate| shared.rate_now(rate).get())
        };
        assert_eq!(rate_after(100), [1, 1]);
        assert_eq!(rate_after((1 << 20) - 1), [1, 1]);
        assert_eq!(rate_after(1 << 20), [1 << 10, 1000]);
        assert_eq!(rate_after(1 << 25), [1 << 15, 1000]);
        assert_eq!(rate_after(1 << 40), [512 << 10, 1000]);
        // A heap that comes later begins where the session is.
        let mut later = Blocks::<()>::within(Rate::bytes(1000), Arc::new(shared));
        later.draw();
        assert_eq!(later.largest_rate().get(), 1000);
        // Blocks of nothing take something.
        let empty = SharedHeap::default();
        (0..1 << 16).for_each(|_| empty.count(Amount::of_block(0, 1.0)));
        assert_eq!(empty.rate_now(Rate::DEFAULT).get(), 1 << 10);
    }
}
