//! The sampled allocations of a guest, by site: bytes allocated, bytes still held, and bytes held when the guest held most.

use super::allocators::Call;
use super::instructions::INSIDE;
use super::rate::Rate;
use super::shared::SharedHeap;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use wlprof_recording::{Amount, SiteTotals};

/// Room for so many blocks is kept when they are freed.
const KEPT_ROOM: usize = 1 << 12;

/// A reported call of the allocator.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Kind of call.
    pub call: Call,
    /// Size that was asked for, in bytes.
    pub size: u64,
    /// Block that the call returned; 0 if none.
    pub block: u32,
    /// The block that `realloc` was given; 0 otherwise.
    pub before: u32,
    /// The countdown has been used up. Otherwise the call is reported because of the block `before`.
    pub is_sample: bool,
    /// Time of the call, in nanoseconds since any fixed moment.
    pub time_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Site {
    samples: u64,
    allocated: Amount,
    held: Amount,
    /// Sampled blocks in what is held.
    held_samples: u64,
    at_peak: Amount,
    /// Number of the peak that `at_peak` is of.
    peak: u64,
}

/// A block that was sampled and is held.
#[derive(Clone, Copy, Debug)]
struct HeldBlock {
    site: u32,
    size: u64,
    since_ns: u64,
    /// The rate that it was sampled at.
    rate: Rate,
}

/// The sampled blocks of a memory, by sites, which `S` identifies.
#[derive(Debug)]
pub struct Blocks<S> {
    /// What was asked for.
    rate: Rate,
    /// What the countdown was drawn at last.
    rate_now: Rate,
    chance: RandomState,
    draws: u64,
    shared: Arc<SharedHeap>,
    sites: HashMap<S, u32>,
    totals: Vec<Site>,
    held: HashMap<u32, HeldBlock>,
    all_held: Amount,
    peak: Amount,
    /// How often there was a new peak.
    peaks: u64,
    /// Blocks that there was no room for: whether they are held is not known.
    unheld: u64,
    /// When the last one was.
    peak_ns: u64,
}

impl<S: Eq + Hash> Blocks<S> {
    /// Makes an account that samples at that rate.
    pub fn new(rate: Rate) -> Self {
        Self::within(rate, Arc::default())
    }

    /// Does as [`Blocks::new`], for one of the heaps that share `shared`.
    pub fn within(rate: Rate, shared: Arc<SharedHeap>) -> Self {
        Self {
            rate,
            rate_now: Rate::EVERY,
            shared,
            chance: RandomState::new(),
            draws: 0,
            sites: HashMap::new(),
            totals: Vec::new(),
            held: HashMap::new(),
            all_held: Amount::default(),
            peak: Amount::default(),
            peaks: 0,
            unheld: 0,
            peak_ns: 0,
        }
    }

    /// Draws the number of bytes until the next sample, for the countdown.
    ///
    /// # Accuracy
    /// The countdown has no memory, so it may be drawn anew at any time, and at another rate. The rate follows from what was sampled before. So
    /// each block is sampled with a probability that is known before it comes, and its weight is the inverse of that.
    pub fn draw(&mut self) -> i64 {
        self.rate_now = self.shared.rate_now(self.rate);
        if self.rate_now.is_every() {
            return -1;
        }
        self.draws += 1;
        // In the middle of 2^53 steps between 0 and 1, of which it is neither.
        let uniform = ((self.chance.hash_one(self.draws) >> 11) as f64 + 0.5) / 2_f64.powi(53);
        ((-uniform.ln() * self.rate_now.get() as f64) as i64).min(INSIDE)
    }

    /// Counts a reported call.
    ///
    /// `site` returns where the call was made, and is called only for samples. `filter` is the guest's: see [`EXPORTS`](super::EXPORTS).
    pub fn allocated(&mut self, told: &Told, filter: &mut [u8], site: impl FnOnce() -> S) {
        // A block that could not be made larger is where it was. One that is made nothing of is gone.
        if told.before != 0 && (told.block != 0 || told.size == 0) {
            self.freed(told.before, filter);
        }
        if !told.is_sample {
            return;
        }
        self.shared.count_sample();
        if told.block == 0 {
            return;
        }
        let next = self.totals.len() as u32;
        let site = *self.sites.entry(site()).or_insert(next);
        if site == next {
            self.totals.push(Site::default());
        }
        let rate = self.rate_now;
        let amount = amount(told.size, rate);
        let totals = &mut self.totals[site as usize];
        totals.samples += 1;
        totals.allocated.add(amount);
        // If its last end was missed it ends now.
        self.freed(told.block, filter);
        if !self.shared.take() {
            self.unheld += 1;
            return;
        }
        self.held.insert(told.block, HeldBlock { site, size: told.size, since_ns: told.time_ns, rate });
        let counter = &mut filter[hash(told.block)];
        *counter = counter.saturating_add(1);
        let site = self.changing(site);
        site.held.add(amount);
        site.held_samples += 1;
        self.all_held.add(amount);
        if self.peak.bytes < self.all_held.bytes {
            self.peak = self.all_held;
            self.peak_ns = told.time_ns;
            self.peaks += 1;
        }
    }

    /// Counts a block as freed. It need not be one that was sampled.
    pub fn freed(&mut self, block: u32, filter: &mut [u8]) {
        let Some(HeldBlock { site, size, rate, .. }) = self.held.remove(&block) else { return };
        self.shared.give_back(1);
        let room = self.held.capacity();
        if room > KEPT_ROOM && self.held.len() < room / 8 {
            // Others may need the memory.
            self.held.shrink_to(room / 4);
        }
        let amount = amount(size, rate);
        let counter = &mut filter[hash(block)];
        // One that is full is not known any more.
        if *counter < u8::MAX {
            *counter = counter.saturating_sub(1);
        }
        let site = self.changing(site);
        site.held.take(amount);
        site.held_samples -= 1;
        // Sums of fractions do not come back to nothing by themselves.
        if site.held_samples == 0 {
            site.held = Amount::default();
        }
        self.all_held.take(amount);
        if self.held.is_empty() {
            self.all_held = Amount::default();
        }
    }

    /// A site whose blocks change: what it held at the last peak is kept.
    fn changing(&mut self, site: u32) -> &mut Site {
        let site = &mut self.totals[site as usize];
        if site.peak < self.peaks {
            (site.at_peak, site.peak) = (site.held, self.peaks);
        }
        site
    }

    /// Returns what each site has allocated. Looks at all held blocks.
    pub fn sites(&self) -> impl Iterator<Item = (&S, SiteTotals)> {
        let mut since_ns: Vec<Option<(u64, u64)>> = vec![None; self.totals.len()];
        for HeldBlock { site, since_ns: at_ns, .. } in self.held.values() {
            let (oldest, newest) = since_ns[*site as usize].get_or_insert((*at_ns, *at_ns));
            (*oldest, *newest) = ((*oldest).min(*at_ns), (*newest).max(*at_ns));
        }
        self.sites.iter().map(move |(site, index)| {
            let index = *index as usize;
            let Site { samples, allocated, held, at_peak, peak, .. } = self.totals[index];
            // Nothing has changed since.
            let at_peak = if peak < self.peaks { held } else { at_peak };
            let held_since_ns = since_ns[index];
            (site, SiteTotals { samples, allocated, held, at_peak, held_since_ns, ..SiteTotals::default() })
        })
    }

    /// Returns what all sites hold.
    pub fn held(&self) -> Amount {
        self.all_held
    }

    /// Returns the most that all sites have held at once.
    pub fn peak(&self) -> Amount {
        self.peak
    }

    /// Returns the largest rate so far: 1 if every allocation was sampled.
    pub fn largest_rate(&self) -> Rate {
        self.rate_now
    }

    /// Returns how many sampled blocks were counted as freed at once, because too many were held.
    pub fn unheld(&self) -> u64 {
        self.unheld
    }

    /// Returns when the peak was: the time of the allocation that reached it.
    pub fn peak_ns(&self) -> u64 {
        self.peak_ns
    }
}

impl<S> Drop for Blocks<S> {
    fn drop(&mut self) {
        self.shared.give_back(self.held.len());
    }
}

/// What a block of that size stands for that was sampled at that rate.
fn amount(size: u64, rate: Rate) -> Amount {
    Amount::of_block(size, rate.weight(size))
}

/// The counter of the filter that a block belongs to.
fn hash(block: u32) -> usize {
    (block.wrapping_mul(super::instructions::HASH_FACTOR) >> 16) as usize
}

#[cfg(test)]
mod tests {
    use super::super::instructions::FILTER_BYTES;
    use super::super::shared::MAX_HELD;
    use super::*;

    fn told(call: Call, size: u64, block: u32, before: u32) -> Told {
        Told { call, size, block, before, is_sample: true, time_ns: 7 }
    }

    fn of(blocks: &Blocks<&'static str>, site: &str) -> SiteTotals {
        blocks.sites().find_map(|(name, totals)| (*name == site).then_some(totals)).unwrap_or_default()
    }

    fn amount(blocks: f64, bytes: f64) -> Amount {
        Amount { blocks, bytes, variance: 0.0 }
    }

    #[test]
    fn what_is_held_is_known_by_site_and_so_is_what_was_at_the_peak() {
        let mut filter = vec![0; FILTER_BYTES as usize];
        let mut blocks = Blocks::new(Rate::bytes(1));
        assert_eq!(blocks.draw(), -1);
        blocks.allocated(&told(Call::Malloc, 10, 0x100, 0), &mut filter, || "a");
        blocks.allocated(&told(Call::Malloc, 70, 0x200, 0), &mut filter, || "b");
        blocks.freed(0x100, &mut filter);
        blocks.allocated(&told(Call::Calloc, 5, 0x300, 0), &mut filter, || "a");
        assert_eq!((blocks.held(), blocks.peak()), (amount(2.0, 75.0), amount(2.0, 80.0)));
        assert_eq!(of(&blocks, "a").at_peak, amount(1.0, 10.0));
        assert_eq!(of(&blocks, "b").at_peak, amount(1.0, 70.0));
        // It grows, and moves; another cannot grow, and stays; a third ends so.
        blocks.allocated(&told(Call::Realloc, 100, 0x400, 0x200), &mut filter, || "c");
        blocks.allocated(&told(Call::Realloc, u64::MAX, 0, 0x400), &mut filter, || unreachable!());
        blocks.allocated(&told(Call::Realloc, 0, 0, 0x300), &mut filter, || unreachable!());
        assert_eq!(
            of(&blocks, "a"),
            SiteTotals {
                samples: 2,
                allocated: amount(2.0, 15.0),
                held: amount(0.0, 0.0),
                at_peak: amount(1.0, 5.0),
                ..SiteTotals::default()
            }
        );
        assert_eq!(of(&blocks, "b").held, amount(0.0, 0.0));
        assert_eq!(of(&blocks, "c").held, amount(1.0, 100.0));
        assert_eq!(blocks.peak(), amount(2.0, 105.0));
        blocks.freed(0x400, &mut filter);
        blocks.freed(0x400, &mut filter);
        assert!(filter.iter().all(|counter| *counter == 0) && blocks.held() == amount(0.0, 0.0));
    }

    #[test]
    fn blocks_that_are_too_many_are_counted_and_not_waited_for() {
        let mut filter = vec![0; FILTER_BYTES as usize];
        let mut blocks = Blocks::new(Rate::bytes(1));
        for block in 1..=MAX_HELD as u32 + 7 {
            blocks.allocated(&told(Call::Malloc, 1, 16 * block, 0), &mut filter, || "a");
        }
        assert_eq!((of(&blocks, "a").allocated.blocks, blocks.held().blocks), (1031.0, 1024.0));
        assert_eq!(blocks.unheld(), 7);
        blocks.freed(16, &mut filter);
        blocks.allocated(&told(Call::Malloc, 1, 16, 0), &mut filter, || "a");
        assert_eq!((blocks.held().blocks, blocks.unheld()), (1024.0, 7));
    }

    #[test]
    fn a_counter_that_is_full_stays_so() {
        let mut filter = vec![0; FILTER_BYTES as usize];
        let mut blocks = Blocks::new(Rate::bytes(1));
        // All of one hash.
        let alike: Vec<u32> = (1..u32::MAX).step_by(16).filter(|block| hash(*block) == 7).take(300).collect();
        alike.iter().for_each(|block| blocks.allocated(&told(Call::Malloc, 1, *block, 0), &mut filter, || "a"));
        alike.iter().for_each(|block| blocks.freed(*block, &mut filter));
        assert_eq!((blocks.held(), filter[7]), (amount(0.0, 0.0), u8::MAX));
    }
}
