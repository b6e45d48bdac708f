//! The buckets of the Go runtime's own heap profiler, in a guest that stands still: one for each stack and size of block
//! that was sampled.
//!
//! ```text
//! next  allnext  typ  hash  size  nstk    words; allnext leads to the next of all of them
//! nstk words                              the stack: return addresses, leaf first
//! active  future[3]                       what was counted in each cycle
//! ```
//!
//! The runtime counts into cycles that it publishes after the next garbage collections, so that what was allocated is not
//! shown before what was garbage had its chance to be freed. All of them together are what was counted so far.

use crate::heap_profiler::{Counters, HeapProfiler};
use wlprof_plugin::{Budget, GuestMemory, Truncation};

/// Words before a bucket's stack.
const HEADER: usize = 6;
/// `memProfile`, in `typ`.
const MEMORY: u64 = 1;
const CYCLES: usize = 4;
/// `maxProfStackDepth` of Go 1.23 and later; it was 32 before.
const DEEPEST: u64 = 1024;
/// More buckets than programs have: at a rate of 1, one that allocates in 10,000 places has some 100,000.
const MOST_BUCKETS: usize = 1 << 20;
/// More words than these buckets would have.
const MOST_WORDS: u64 = 1 << 25;

/// What one bucket has counted. Its stack is given beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) allocated_blocks: u64,
    pub(crate) freed_blocks: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) freed_bytes: u64,
}

/// Gives `each` the stack and the counts of every bucket that has any, until it fails.
pub(crate) fn for_each(
    profiler: &HeapProfiler,
    guest: &dyn GuestMemory,
    mut each: impl FnMut(&[u64], Counts) -> Result<(), Truncation>,
) -> Result<(), Truncation> {
    // Buckets do not overlap, so more words than memory has are those of a cycle.
    let words_of_memory = guest.size() / 8;
    let mut budget = Budget::new(words_of_memory.min(MOST_WORDS));
    let spent = if words_of_memory < MOST_WORDS { Truncation::Cycle } else { Truncation::TooDeep };
    let mut pay = |words: usize| budget.spend(words).map_err(|_| spent);
    let mut stack = Vec::new();
    let mut bucket = guest.read_u64(profiler.buckets)?;
    for _ in 0..MOST_BUCKETS {
        if bucket == 0 {
            return Ok(());
        }
        pay(HEADER)?;
        let [_, all_next, kind, _, size, depth] = words::<HEADER>(guest, bucket)?;
        if kind != MEMORY || depth > DEEPEST || bucket % 8 != 0 {
            return Err(Truncation::Inconsistent);
        }
        let depth = depth as usize;
        pay(depth + 4 * CYCLES)?;
        // Each of these lies within memory if it can be read, so sums with what is known of its size do not overflow.
        let stack_at = bucket.wrapping_add(8 * HEADER as u64);
        read_words(guest, stack_at, depth, &mut stack)?;
        let counts = counts(guest, stack_at.wrapping_add(8 * depth as u64), size, profiler.counters)?;
        if counts != Counts::default() {
            each(&stack, counts)?;
        }
        bucket = all_next;
    }
    if bucket == 0 { Ok(()) } else { Err(Truncation::TooDeep) }
}

/// The sum of a bucket's cycles, which are at `address`.
fn counts(guest: &dyn GuestMemory, address: u64, size: u64, counters: Counters) -> Result<Counts, Truncation> {
    let sum = |values: [u64; CYCLES]| values.into_iter().try_fold(0_u64, u64::checked_add);
    let summed = || -> Result<Option<Counts>, Truncation> {
        Ok(match counters {
            Counters::BlocksAndBytes => {
                let words = words::<{ 4 * CYCLES }>(guest, address)?;
                let field = |field: usize| sum(std::array::from_fn(|cycle| words[4 * cycle + field]));
                let fields = (field(0), field(1), field(2), field(3));
                let (Some(allocated_blocks), Some(freed_blocks), Some(allocated_bytes), Some(freed_bytes)) = fields
                else {
                    return Ok(None);
                };
                Some(Counts { allocated_blocks, freed_blocks, allocated_bytes, freed_bytes })
            }
            Counters::Blocks => {
                let words = words::<{ 2 * CYCLES }>(guest, address)?;
                let field = |field: usize| {
                    let blocks = sum(std::array::from_fn(|cycle| words[2 * cycle + field]))?;
                    Some((blocks, blocks.checked_mul(size)?))
                };
                let (Some((allocated_blocks, allocated_bytes)), Some((freed_blocks, freed_bytes))) =
                    (field(0), field(1))
                else {
                    return Ok(None);
                };
                Some(Counts { allocated_blocks, freed_blocks, allocated_bytes, freed_bytes })
            }
        })
    };
    // Only what was sampled when it was allocated is counted when it is freed.
    let holds = |counts: &Counts| {
        counts.freed_blocks <= counts.allocated_blocks && counts.freed_bytes <= counts.allocated_bytes
    };
    summed()?.filter(holds).ok_or(Truncation::Inconsistent)
}

/// `N` words from `address` on.
fn words<const N: usize>(guest: &dyn GuestMemory, address: u64) -> Result<[u64; N], Truncation> {
    let mut bytes = [[0; 8]; N];
    guest.read(address, bytes.as_flattened_mut())?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// Replaces what `out` has by `count` words from `address` on.
fn read_words(guest: &dyn GuestMemory, address: u64, count: usize, out: &mut Vec<u64>) -> Result<(), Truncation> {
    let mut bytes = [[0; 8]; 64];
    out.clear();
    while out.len() < count {
        let part = &mut bytes[..(count - out.len()).min(64)];
        guest.read(address.wrapping_add(8 * out.len() as u64), part.as_flattened_mut())?;
        out.extend(part.iter().map(|word| u64::from_le_bytes(*word)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_plugin::testing::Frozen;

    const LIST: u64 = 64;

    fn profiler(counters: Counters) -> HeapProfiler {
        HeapProfiler { disabled: 8, rate: 16, buckets: LIST, counters }
    }

    fn put(guest: &mut Frozen, address: u64, words: &[u64]) {
        for (at, word) in (address as usize..).step_by(8).zip(words) {
            guest.memory[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }

    type Found = Vec<(Vec<u64>, Counts)>;

    fn read(guest: &Frozen, counters: Counters) -> (Result<(), Truncation>, Found) {
        let mut found = Vec::new();
        guest.reset_counts();
        let end = for_each(&profiler(counters), guest, |stack, counts| {
            found.push((stack.to_vec(), counts));
            Ok(())
        });
        assert!(guest.bytes_read.get() <= 2 * guest.memory.len() as u64 + 16, "{}", guest.bytes_read.get());
        (end, found)
    }

    /// A list of two buckets, at 0x100 and at 0x300, and an empty one between them.
    fn guest(counters: Counters) -> Frozen {
        let mut guest = Frozen::new(vec![0; 0x1000]);
        put(&mut guest, LIST, &[0x100]);
        put(&mut guest, 0x100, &[9, 0x200, 1, 9, 48, 2, 0xa0, 0xb0]);
        put(&mut guest, 0x200, &[9, 0x300, 1, 9, 16, 0]);
        put(&mut guest, 0x300, &[9, 0, 1, 9, 16, 1, 0xc0]);
        let (first, second): (&[u64], &[u64]) = match counters {
            Counters::BlocksAndBytes => (
                &[1, 0, 48, 0, 2, 1, 96, 48, 0, 1, 0, 48, 4, 0, 192, 0],
                &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 16, 16],
            ),
            Counters::Blocks => (&[1, 0, 2, 1, 0, 1, 4, 0], &[0, 0, 0, 0, 0, 0, 1, 1]),
        };
        put(&mut guest, 0x100 + 48 + 16, first);
        put(&mut guest, 0x300 + 48 + 8, second);
        guest
    }

    const BOTH: [Counters; 2] = [Counters::BlocksAndBytes, Counters::Blocks];

    #[test]
    fn all_cycles_of_all_buckets_are_summed() {
        for counters in BOTH {
            let first = Counts { allocated_blocks: 7, freed_blocks: 2, allocated_bytes: 336, freed_bytes: 96 };
            let second = Counts { allocated_blocks: 1, freed_blocks: 1, allocated_bytes: 16, freed_bytes: 16 };
            let found = vec![(vec![0xa0, 0xb0], first), (vec![0xc0], second)];
            assert_eq!(read(&guest(counters), counters), (Ok(()), found), "{counters:?}");
        }
        let empty = Frozen::new(vec![0; 128]);
        assert_eq!(read(&empty, Counters::Blocks), (Ok(()), Vec::new()));
    }

    #[test]
    fn lists_that_lie_end_with_a_reason() {
        for counters in BOTH {
            let with = |address: u64, words: &[u64]| {
                let mut guest = guest(counters);
                put(&mut guest, address, words);
                read(&guest, counters).0
            };
            assert_eq!(with(0x308, &[0x100]), Err(Truncation::Cycle));
            assert_eq!(with(0x108, &[0x100]), Err(Truncation::Cycle));
            for outside in [0xff8, 0x1000, 1 << 32, u64::MAX - 7, u64::MAX] {
                assert_eq!(with(0x308, &[outside]), Err(Truncation::BadPointer), "{outside:#x}");
                assert_eq!(with(LIST, &[outside]), Err(Truncation::BadPointer), "{outside:#x}");
            }
            assert_eq!(with(0x308, &[0x321]), Err(Truncation::Inconsistent), "not aligned");
            assert_eq!(with(0x310, &[2]), Err(Truncation::Inconsistent), "of another kind");
            for depth in [1025, 1 << 32, u64::MAX] {
                assert_eq!(with(0x328, &[depth]), Err(Truncation::Inconsistent), "{depth}");
            }
            assert_eq!(with(0x328, &[1000]), Err(Truncation::Cycle), "more than memory has");
            assert_eq!(with(0x328, &[430]), Err(Truncation::BadPointer), "past its end");
            // Freed but never allocated, and so often that it has no sum.
            assert_eq!(with(0x100 + 64 + 8, &[1000]), Err(Truncation::Inconsistent));
            assert_eq!(with(0x100 + 64, &[u64::MAX]), Err(Truncation::Inconsistent));
        }
        let mut huge = guest(Counters::Blocks);
        put(&mut huge, 0x120, &[u64::MAX]);
        assert_eq!(read(&huge, Counters::Blocks).0, Err(Truncation::Inconsistent), "bytes without a product");
    }

    #[test]
    fn what_comes_after_a_failure_is_not_read() {
        let guest = guest(Counters::Blocks);
        let mut calls = 0;
        let end = for_each(&profiler(Counters::Blocks), &guest, |_, _| {
            calls += 1;
            Err(Truncation::Inconsistent)
        });
        assert_eq!((end, calls), (Err(Truncation::Inconsistent), 1));
    }
}
