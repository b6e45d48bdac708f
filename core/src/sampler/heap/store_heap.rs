//! The heap of a store: what is told of it on the guest's thread, until the drain takes it.

use super::super::os::clock::monotonic_ns;
use super::super::reading::MAX_WORDS;
use super::super::running::StoreNumber;
use super::counted::totals;
use crate::heap::{Blocks, Rate, Told};
use crate::recording::{Amount, SiteTotals};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wlprof_plugin::HeapBucket;

/// A stack that allocates: the number of those of its heap that came before.
pub(in crate::sampler) type SiteNumber = u32;

/// Distinct stacks of a heap that are told apart. A guest may make stacks without end.
const MAX_SITES: usize = 1 << 17;

/// The heap of a store.
pub(in crate::sampler) struct StoreHeap {
    pub(in crate::sampler) store: StoreNumber,
    pub(in crate::sampler) rate: Rate,
    /// Locked by the guest's thread in its host calls and by the drain, never by a handler.
    state: Mutex<State>,
}

struct State {
    told: By,
    /// How often a site has made linear memory grow, and by how many bytes.
    grown: BTreeMap<SiteNumber, Amount>,
    sites: Sites,
    /// Room for a record.
    words: Vec<u64>,
    /// Something has been told since the drain has last looked.
    has_changed: bool,
}

impl State {
    fn totals(&self) -> HeapTotals {
        let (mut sites, peak_ns): (BTreeMap<SiteNumber, SiteTotals>, u64) = match &self.told {
            By::Nobody => (BTreeMap::new(), 0),
            By::Calls(blocks) => (blocks.sites().map(|(site, totals)| (*site, totals)).collect(), blocks.peak_ns()),
            By::Runtime(counted) => (counted.sites.clone(), counted.peak_ns),
        };
        self.grown.iter().for_each(|(site, grown)| sites.entry(*site).or_default().grown = *grown);
        HeapTotals { sites, peak_ns }
    }
}

/// By whom a heap is told of.
enum By {
    /// By nobody: nothing is known but how linear memory grows.
    Nobody,
    /// By an allocator, call by call.
    Calls(Blocks<SiteNumber>),
    /// By the language's runtime, all at once.
    Runtime(Counted),
}

/// What a runtime has counted.
#[derive(Default)]
struct Counted {
    sites: BTreeMap<SiteNumber, SiteTotals>,
    peak_bytes: f64,
    peak_ns: u64,
}

/// The stacks that allocate.
#[derive(Default)]
struct Sites {
    /// Records of stacks, without anything that is not the same each time.
    known: HashMap<Arc<[u64]>, SiteNumber>,
    /// Those that the drain has not taken, in order of their numbers.
    new: Vec<Arc<[u64]>>,
}

impl Sites {
    fn number(&mut self, record: &[u64]) -> SiteNumber {
        if let Some(known) = self.known.get(record) {
            return *known;
        }
        // What there is no room for goes to the first one.
        if self.known.len() >= MAX_SITES {
            return 0;
        }
        let (number, record) = (self.known.len() as SiteNumber, Arc::<[u64]>::from(record));
        self.known.insert(record.clone(), number);
        self.new.push(record);
        number
    }
}

/// What a heap has told.
pub(in crate::sampler) struct Taken {
    /// Records of the sites that have come, in order of their numbers.
    pub(in crate::sampler) new: Vec<Arc<[u64]>>,
    /// What all have come to; `None` if nothing has changed.
    pub(in crate::sampler) totals: Option<HeapTotals>,
}

/// What a heap has come to.
pub(in crate::sampler) struct HeapTotals {
    pub(in crate::sampler) sites: BTreeMap<SiteNumber, SiteTotals>,
    /// When the guest held most, on the monotonic clock.
    pub(in crate::sampler) peak_ns: u64,
}

impl StoreHeap {
    fn new(store: StoreNumber, rate: Rate) -> Self {
        let state = State {
            told: By::Nobody,
            grown: BTreeMap::new(),
            sites: Sites::default(),
            words: vec![0; MAX_WORDS],
            has_changed: true,
        };
        Self { store, rate, state: Mutex::new(state) }
    }

    /// An allocator tells of it, call by call. `false` if another one does already.
    pub(super) fn is_told_by_calls(&self) -> bool {
        self.is_told(By::Calls(Blocks::new(self.rate)))
    }

    /// The language's runtime tells of it. `false` if somebody else does already.
    pub(in crate::sampler) fn is_told_by_runtime(&self) -> bool {
        self.is_told(By::Runtime(Counted::default()))
    }

    fn is_told(&self, by: By) -> bool {
        let mut state = self.state();
        let is_first = matches!(state.told, By::Nobody);
        if is_first {
            state.told = by;
        }
        is_first
    }

    /// Linear memory is about to grow by so many bytes. `read` is as for [`StoreHeap::allocated`].
    pub(in crate::sampler) fn grew(&self, bytes: u64, read: impl FnOnce(&mut [u64]) -> usize) {
        let mut state = self.state();
        let State { grown, sites, words, has_changed, .. } = &mut *state;
        let length = read(words);
        grown.entry(sites.number(&words[..length])).or_default().add(Amount::of_block(bytes, 1.0));
        *has_changed = true;
    }

    /// Bytes until the next sample.
    pub(super) fn draw(&self) -> i64 {
        match &mut self.state().told {
            By::Calls(blocks) => blocks.draw(),
            By::Runtime(_) | By::Nobody => i64::MAX,
        }
    }

    /// Takes a call of the allocator that was told of. `read` writes the record of its stack, which is to be equal for equal stacks, and
    /// gives its length; it is asked of samples alone.
    pub(super) fn allocated(&self, told: &Told, filter: &mut [u8], read: impl FnOnce(&mut [u64]) -> usize) {
        let mut state = self.state();
        let State { told: by, sites, words, has_changed, .. } = &mut *state;
        let By::Calls(blocks) = by else { return };
        *has_changed = true;
        blocks.allocated(told, filter, || {
            let length = read(words);
            sites.number(&words[..length])
        });
    }

    /// Takes note of a block that was freed.
    pub(super) fn freed(&self, block: u32, filter: &mut [u8]) {
        let mut state = self.state();
        if let By::Calls(blocks) = &mut state.told {
            blocks.freed(block, filter);
        }
        state.has_changed = true;
    }

    /// Takes all that the runtime has counted so far. `record` writes the record of a bucket's stack and gives its length.
    pub(in crate::sampler) fn counted(
        &self,
        buckets: &[HeapBucket],
        mut record: impl FnMut(&HeapBucket, &mut [u64]) -> usize,
    ) {
        let mut state = self.state();
        let State { told: by, sites, words, has_changed, .. } = &mut *state;
        let By::Runtime(counted) = by else { return };
        *has_changed = true;
        let mut now: BTreeMap<SiteNumber, SiteTotals> = BTreeMap::new();
        for bucket in buckets {
            let length = record(bucket, words);
            // The runtime tells stacks apart by what they allocate as well.
            now.entry(sites.number(&words[..length])).or_default().add(&totals(bucket, self.rate.get()));
        }
        let held = now.values().map(|totals| totals.held.bytes).sum::<f64>();
        let is_peak = held > counted.peak_bytes;
        if is_peak {
            (counted.peak_bytes, counted.peak_ns) = (held, monotonic_ns());
        }
        for (number, totals) in &mut now {
            totals.at_peak = match counted.sites.get(number) {
                _ if is_peak => totals.held,
                Some(before) => before.at_peak,
                None => Amount::default(),
            };
        }
        counted.sites = now;
    }

    /// What has been told since this was last asked. Totals look at all blocks that are held.
    pub(in crate::sampler) fn take(&self, with_totals: bool) -> Taken {
        let mut state = self.state();
        let totals = (with_totals && std::mem::take(&mut state.has_changed)).then(|| state.totals());
        Taken { new: std::mem::take(&mut state.sites.new), totals }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The heaps of a session's stores, until the drain has recorded the last of them.
#[derive(Default)]
pub(in crate::sampler) struct Heaps(Mutex<Vec<Arc<StoreHeap>>>);

impl Heaps {
    /// The heap of a store.
    pub(in crate::sampler) fn of(&self, store: StoreNumber, rate: Rate) -> Arc<StoreHeap> {
        let mut heaps = self.heaps();
        if let Some(heap) = heaps.iter().find(|heap| heap.store == store) {
            return heap.clone();
        }
        let heap = Arc::new(StoreHeap::new(store, rate));
        heaps.push(heap.clone());
        heap
    }

    pub(in crate::sampler) fn all(&self) -> Vec<Arc<StoreHeap>> {
        self.heaps().clone()
    }

    /// Lets go of the heap of a store that has gone.
    pub(in crate::sampler) fn forget(&self, store: StoreNumber) {
        self.heaps().retain(|heap| heap.store != store);
    }

    fn heaps(&self) -> MutexGuard<'_, Vec<Arc<StoreHeap>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
