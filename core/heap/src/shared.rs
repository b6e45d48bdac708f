//! What the heaps of a session share: room for held blocks, and the number of samples, by which they sample ever less often.

use super::rate::Rate;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Sampled blocks whose ends are waited for, in all memories of a session: 90 MB in one table, which is full then. A guest says where blocks
/// are, and need not have the memory.
pub(super) const MAX_HELD: usize = if cfg!(test) { 1 << 10 } else { (1 << 21) / 8 * 7 };

/// Samples at the beginning of a session, which are of every allocation: small guests are counted exactly. Guests that allocate often
/// soon leave them behind.
const EXACT_SAMPLES: u64 = 1 << 10;

/// Bytes between two samples after those, on average. C's allocators give no smaller block.
const FIRST_RATE: u64 = 16;

/// After so many samples the rate doubles, until it is the one that was asked for. Sums of so many have a 95 % bound of 10 %. All
/// samples up to a rate of 512 KiB are 2,944: with more held, `free` would take more blocks for sampled ones.
const SAMPLES_A_RATE: u64 = 128;

/// What the heaps of a session share.
#[derive(Debug, Default)]
pub struct SharedHeap {
    /// Sampled blocks that are held.
    held: AtomicUsize,
    /// Samples that were taken.
    samples: AtomicU64,
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

    /// Counts a sample. One that gave no block counts, too: it took as long.
    pub(super) fn count_sample(&self) {
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    /// The rate until the next sample, where `asked` was asked for.
    pub(super) fn rate_now(&self, asked: Rate) -> Rate {
        let samples = self.samples.load(Ordering::Relaxed);
        let Some(later) = samples.checked_sub(EXACT_SAMPLES) else { return Rate::EVERY };
        let doublings = u32::try_from(later / SAMPLES_A_RATE).unwrap_or(u32::MAX);
        let rate = FIRST_RATE.saturating_mul(2_u64.saturating_pow(doublings));
        Rate::bytes(rate.min(asked.get()))
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
        let rate_after = |samples: u64| {
            (shared.samples.load(Ordering::Relaxed)..samples).for_each(|_| shared.count_sample());
            [Rate::DEFAULT, Rate::bytes(1000), Rate::bytes(u64::MAX)].map(|asked| shared.rate_now(asked).get())
        };
        assert_eq!(rate_after(1023), [1, 1, 1]);
        assert_eq!(rate_after(1024), [16, 16, 16]);
        assert_eq!(rate_after(1024 + 127), [16, 16, 16]);
        assert_eq!(rate_after(1024 + 128), [32, 32, 32]);
        assert_eq!(rate_after(1024 + 6 * 128), [1024, 1000, 1024]);
        assert_eq!(rate_after(2943), [256 << 10, 1000, 256 << 10]);
        assert_eq!(rate_after(2944), [512 << 10, 1000, 512 << 10]);
        assert_eq!(rate_after(100_000), [512 << 10, 1000, u64::MAX]);
        assert_eq!(shared.rate_now(Rate::bytes(1)), Rate::bytes(1));
        // A heap that comes later begins where the session is.
        let mut later = Blocks::<()>::within(Rate::bytes(1000), Arc::new(shared));
        later.draw();
        assert_eq!(later.largest_rate().get(), 1000);
    }

    #[test]
    fn calls_that_give_no_block_count() {
        let mut filter = vec![0; FILTER_BYTES as usize];
        let mut blocks = Blocks::new(Rate::DEFAULT);
        blocks.draw();
        for _ in 0..EXACT_SAMPLES {
            let told = Told { call: Call::Malloc, size: u64::MAX, block: 0, before: 0, is_sample: true, time_ns: 7 };
            assert_eq!(blocks.draw(), -1, "every call is a sample");
            blocks.allocated(&told, &mut filter, || unreachable!());
        }
        blocks.draw();
        assert_eq!((blocks.largest_rate().get(), blocks.sites().count()), (FIRST_RATE, 0));
    }
}
