//! What a guest has allocated, and by which stacks: estimates, from a sample of its allocations.

use super::share::Z_95;
use super::{LabelSetId, Recording, Sample, StackId, State, Store, Thread};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// An estimate of how many blocks there are, and how many bytes are in them.
///
/// # Accuracy
/// A block of `size` bytes is in a sample with probability `p = 1 - exp(-size / rate)`, with the rate of its time, and stands for `1 / p` such
/// blocks then: the sums are right on average. Their variance is that of Poisson sampling, `Σ (1 - p) / p² · size²` over the samples. Where every allocation is
/// sampled there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// Number of blocks.
    pub blocks: f64,
    /// What was asked for, in bytes.
    pub bytes: f64,
    /// Variance of the bytes, in square bytes.
    pub variance: f64,
}

impl Amount {
    /// A block of `size` bytes that stands for `weight` such blocks.
    pub fn of_block(size: u64, weight: f64) -> Self {
        let size = size as f64;
        Self { blocks: weight, bytes: weight * size, variance: weight * (weight - 1.0) * size * size }
    }

    /// Adds what is elsewhere.
    pub fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.variance += other.variance;
    }

    /// Takes away what is there no more.
    pub fn take(&mut self, other: Self) {
        self.blocks -= other.blocks;
        self.bytes -= other.bytes;
        self.variance -= other.variance;
    }

    /// The truth is as near as that, in bytes, in 95 of 100 recordings. Of fewer than twenty samples it is seldom.
    pub fn bound(self) -> f64 {
        Z_95 * self.variance.max(0.0).sqrt()
    }

    /// Whether it is what an estimate can be.
    fn is_sane(self) -> bool {
        /// More than all memories of a run: sums of it are finite.
        const MOST: f64 = 1e30;
        [self.blocks, self.bytes].iter().all(|number| (0.0..MOST).contains(number)) && self.variance.is_finite()
    }
}

/// What a site has allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteTotals {
    /// Allocations that were sampled.
    pub samples: u64,
    /// All that was allocated.
    pub allocated: Amount,
    /// What of it is held.
    pub held: Amount,
    /// What was held when the guest held most.
    pub at_peak: Amount,
    /// By how much it has made linear memory grow, and how often: exactly.
    pub grown: Amount,
    /// When the oldest and the newest of the sampled blocks that are held were allocated, in nanoseconds since sampling began; `None`
    /// if none is, or that is not known.
    pub held_since_ns: Option<(u64, u64)>,
}

/// A stack that allocates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeapSite {
    /// Whoever called the allocator is its leaf.
    pub stack: StackId,
    /// What it has allocated.
    pub totals: SiteTotals,
}

/// Of what a guest has allocated, which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeapPart {
    /// What was held when the guest held most.
    Peak,
    /// What is held at the end.
    Held,
    /// All of it, freed or not.
    Allocated,
    /// What linear memory has grown by.
    Grown,
}

impl HeapPart {
    /// What bytes of it are called, as in `3 MiB allocated`.
    pub fn participle(self) -> &'static str {
        match self {
            Self::Peak => "held at the peak",
            Self::Held => "still held",
            Self::Allocated => "allocated",
            Self::Grown => "more of linear memory",
        }
    }
}

impl SiteTotals {
    /// Adds those of another site.
    pub fn add(&mut self, other: &Self) {
        self.held_since_ns = match (self.held_since_ns, other.held_since_ns) {
            (Some((oldest, newest)), Some((other_oldest, other_newest))) => {
                Some((oldest.min(other_oldest), newest.max(other_newest)))
            }
            (one, other) => one.or(other),
        };
        self.samples = self.samples.saturating_add(other.samples);
        self.allocated.add(other.allocated);
        self.held.add(other.held);
        self.at_peak.add(other.at_peak);
        self.grown.add(other.grown);
    }

    /// That part of it.
    pub fn part(&self, part: HeapPart) -> Amount {
        match part {
            HeapPart::Peak => self.at_peak,
            HeapPart::Held => self.held,
            HeapPart::Allocated => self.allocated,
            HeapPart::Grown => self.grown,
        }
    }
}

/// What the guest of a store has allocated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// Tells the heaps of a run apart while it lasts: stores may have one name. Files do not have it.
    #[serde(skip)]
    pub number: u64,
    /// Mean bytes between two samples where they are furthest apart; 1 if every allocation was sampled.
    pub rate: u64,
    /// When the guest held most, in nanoseconds since sampling began.
    pub peak_ns: u64,
    /// No two have the same stack.
    pub sites: Vec<HeapSite>,
    /// What the user should know of what is missing.
    pub notes: Vec<String>,
}

impl Heap {
    /// That part of what all sites have allocated.
    pub fn total(&self, part: HeapPart) -> Amount {
        let mut total = Amount::default();
        self.sites.iter().for_each(|site| total.add(site.totals.part(part)));
        total
    }

    /// With times that are counted from `from_ns` on; what was before is there from the beginning.
    pub(super) fn since(mut self, from_ns: u64) -> Self {
        self.peak_ns = self.peak_ns.saturating_sub(from_ns);
        for HeapSite { totals, .. } in &mut self.sites {
            let since = |time_ns: u64| time_ns.saturating_sub(from_ns);
            totals.held_since_ns = totals.held_since_ns.map(|(oldest, newest)| (since(oldest), since(newest)));
        }
        self
    }

    /// With one site a stack: stacks that were told apart may have become equal.
    #[must_use]
    pub fn joined(mut self) -> Self {
        self.restack(Some);
        self
    }

    /// Gives each site the stack that `new_of` says of its own, and leaves it out if there is none. Those that have the same then are one.
    fn restack(&mut self, mut new_of: impl FnMut(StackId) -> Option<StackId>) {
        let mut places: HashMap<StackId, usize> = HashMap::new();
        let mut sites: Vec<HeapSite> = Vec::new();
        for site in std::mem::take(&mut self.sites) {
            let Some(stack) = new_of(site.stack) else { continue };
            let place = *places.entry(stack).or_insert(sites.len());
            match sites.get_mut(place) {
                Some(same) => same.totals.add(&site.totals),
                None => sites.push(HeapSite { stack, ..site }),
            }
        }
        self.sites = sites;
    }

    /// Whether it says what can be, of so many stacks.
    pub(super) fn is_sane(&self, stacks: usize) -> bool {
        /// More than a run can take: sums of it are numbers.
        const MOST_SAMPLES: u64 = 1 << 40;
        let is_sane = |site: &HeapSite| {
            let SiteTotals { samples, allocated, held, at_peak, grown, held_since_ns } = site.totals;
            let has_order = held_since_ns.is_none_or(|(oldest, newest)| oldest <= newest);
            let is_in_place = (site.stack as usize) < stacks && samples <= MOST_SAMPLES && has_order;
            is_in_place && [allocated, held, at_peak, grown].into_iter().all(Amount::is_sane)
        };
        self.rate > 0 && self.sites.len() <= stacks && self.sites.iter().all(is_sane)
    }
}

impl Store {
    /// The stacks that allocate.
    pub(super) fn heap_stacks(&self) -> impl Iterator<Item = StackId> {
        self.heap.iter().flat_map(|heap| heap.sites.iter().map(|site| site.stack))
    }

    /// Gives each site of its heap the stack that `new_of` says of its own, and leaves it out if there is none.
    pub(super) fn restack(&mut self, new_of: impl FnMut(StackId) -> Option<StackId>) {
        if let Some(heap) = &mut self.heap {
            heap.restack(new_of);
        }
    }
}

impl Recording {
    /// The stacks that allocate, in all stores.
    pub(super) fn heap_stacks(&self) -> impl Iterator<Item = StackId> {
        self.stores.iter().flat_map(Store::heap_stacks)
    }

    /// Whether it says what guests have allocated.
    pub fn has_heaps(&self) -> bool {
        self.stores.iter().any(|store| store.heap.is_some())
    }

    /// The recording with samples of memory in place of those of time: a thread a store, whose samples stand for bytes of `part`
    /// ([`Sample::period_ns`]). What the heaps themselves say stays as it is.
    #[must_use]
    pub fn of_memory(mut self, part: HeapPart) -> Self {
        // Of more samples no bound is seen; and formats write each of them.
        let most = (MOST_SAMPLES / self.heap_stacks().count().max(1) as u64).clamp(1, 1000);
        let Self { stores, label_sets, .. } = &mut self;
        let mut sets: HashMap<&[(String, String)], LabelSetId> = HashMap::new();
        let heaps = (0..).zip(&*stores).filter_map(|(id, store)| Some((id, store, store.heap.as_ref()?)));
        let threads = heaps.map(|(id, store, heap)| {
            let labels = (!store.labels.is_empty()).then(|| {
                *sets.entry(&store.labels).or_insert_with(|| {
                    label_sets.push(store.labels.clone());
                    (label_sets.len() - 1) as LabelSetId
                })
            });
            Thread {
                name: store.shown_name(),
                tid: 0,
                store: id,
                samples: heap.sites.iter().flat_map(|site| samples(site, part, most, labels)).collect(),
                host_calls: Vec::new(),
            }
        });
        self.threads = threads.collect();
        self.part = Some(part);
        self
    }
}

/// Samples of memory that a recording has at most, but one a site.
const MOST_SAMPLES: u64 = 1 << 16;

/// As many samples as a site's bytes were found by, but for `most`, so that bounds of shares are of so many.
fn samples(site: &HeapSite, part: HeapPart, most: u64, labels: Option<LabelSetId>) -> impl Iterator<Item = Sample> {
    let HeapSite { stack, totals } = *site;
    let bytes = totals.part(part).bytes.round() as u64;
    let found = match part {
        HeapPart::Grown => totals.grown.blocks,
        _ => totals.samples as f64 * totals.part(part).bytes / totals.allocated.bytes.max(1.0),
    };
    let count = if bytes == 0 { 0 } else { (found.round() as u64).clamp(1, most) };
    (0..count).map(move |index| Sample {
        // Apart from each other: samples of one moment are one draw.
        time_ns: index,
        period_ns: bytes / count + u64::from(index < bytes % count),
        cpu_delta_ns: 1,
        stack,
        state: State::Guest,
        labels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    const PARTS: [HeapPart; 4] = [HeapPart::Peak, HeapPart::Held, HeapPart::Allocated, HeapPart::Grown];

    #[test]
    fn samples_of_memory_come_to_what_is_held() {
        let recording = example();
        let totals: Vec<f64> = PARTS
            .into_iter()
            .map(|part| recording.stores.iter().filter_map(|store| Some(store.heap.as_ref()?.total(part).bytes)).sum())
            .collect();
        for (part, total) in PARTS.into_iter().zip(totals) {
            let shown = recording.clone().of_memory(part);
            let bytes: u64 = shown.samples().map(|sample| sample.period_ns).sum();
            assert!(total > 0.0 && (bytes as f64 - total).abs() <= 2.0, "{part:?}: {bytes} of {total}");
            assert!(shown.draws().count() == shown.samples().count() && shown.part == Some(part));
        }
    }

    #[test]
    fn samples_of_memory_have_the_labels_of_their_stores() {
        let mut recording = example();
        let with_heap = recording.stores.iter_mut().find(|store| store.heap.is_some()).unwrap();
        with_heap.labels = vec![("tenant".to_owned(), "a".to_owned())];
        let labels = with_heap.labels.clone();
        let shown = recording.of_memory(HeapPart::Allocated);
        assert!(shown.samples().count() > 0);
        let of = |sample: Sample| sample.labels.map(|set| shown.label_sets[set as usize].clone());
        let has_heap = |thread: &&Thread| shown.stores[thread.store as usize].labels == labels;
        let labelled = shown.threads.iter().filter(has_heap).flat_map(|thread| thread.samples.iter());
        assert!(labelled.map(of).all(|found| found.as_ref() == Some(&labels)));
    }

    #[test]
    fn a_heap_that_cannot_be_is_not_believed() {
        let heap = |change: fn(&mut HeapSite)| {
            let mut site = HeapSite { stack: 2, totals: SiteTotals::default() };
            change(&mut site);
            Heap { rate: 1, sites: vec![site], ..Heap::default() }
        };
        assert!(heap(|_| ()).is_sane(3));
        assert!(!heap(|site| site.stack = 3).is_sane(3));
        assert!(!heap(|site| site.totals.samples = u64::MAX).is_sane(3));
        assert!(!heap(|site| site.totals.held_since_ns = Some((2, 1))).is_sane(3));
        assert!(!Heap { rate: 0, ..heap(|_| ()) }.is_sane(3));
        assert!(!heap(|site| site.totals.held.bytes = f64::NAN).is_sane(3));
        assert!(!heap(|site| site.totals.at_peak.blocks = -1.0).is_sane(3));
        assert!(!heap(|site| site.totals.allocated.bytes = f64::INFINITY).is_sane(3));
        assert!(!heap(|site| site.totals.allocated.variance = f64::NAN).is_sane(3));
    }
}
