//! The heap of a store: what is told of it on the guest's thread, until the drain takes it.

use super::super::os::clock::monotonic_ns;
use super::super::reading::{Header, Kind, MAX_WORDS};
use super::super::running::StoreNumber;
use super::counted::totals;
use crate::heap::{Blocks, Rate, SharedHeap, Told};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wlprof_plugin::{HeapBucket, Truncation};
use wlprof_recording::{Amount, SiteTotals};
use wlprof_walk::WalkTruncation;

/// A stack that allocates: the number of those of its heap that came before.
pub(in crate::sampler) type SiteNumber = u32;

/// Distinct stacks that are kept, of all heaps of a session. A guest may make stacks without end.
const MAX_SITES: usize = if cfg!(test) { 1 << 8 } else { 1 << 17 };
/// Words that their records have together: 64 MiB.
const MAX_SITE_WORDS: usize = 1 << 23;

/// What the heaps of a session may hold, all together: stores that have gone have given it back.
#[derive(Default)]
struct Budget {
    blocks: Arc<SharedHeap>,
    sites: AtomicUsize,
    site_words: AtomicUsize,
}

impl Budget {
    /// Takes room for a site whose record has so many words, if there is any.
    fn take_site(&self, words: usize) -> bool {
        let take = |counter: &AtomicUsize, count: usize, most: usize| {
            let more = |taken: usize| Some(taken + count).filter(|taken| *taken <= most);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        };
        if !take(&self.sites, 1, MAX_SITES) {
            return false;
        }
        let has_room = take(&self.site_words, words, MAX_SITE_WORDS);
        if !has_room {
            self.sites.fetch_sub(1, Ordering::Relaxed);
        }
        has_room
    }
}

/// The heap of a store.
pub(in crate::sampler) struct StoreHeap {
    pub(in crate::sampler) store: StoreNumber,
    pub(in crate::sampler) rate: Rate,
    budget: Arc<Budget>,
    /// Locked by the guest's thread in its host calls and by the drain, never by a handler.
    state: Mutex<State>,
    /// Some heap of the session has new sites.
    has_new: Arc<AtomicBool>,
}

struct State {
    told: By,
    /// How often a site has made linear memory grow, and by how many bytes.
    grown: BTreeMap<SiteNumber, Amount>,
    sites: Sites,
    /// Room for a record, once there is one.
    words: Vec<u64>,
    /// How often its wasm has returned from within the allocator.
    left: u64,
    /// Something has been told since the drain has last looked.
    has_changed: bool,
}

impl State {
    fn totals(&self, rate: Rate) -> HeapTotals {
        let asked = rate.get();
        let mut told = HeapTotals { sites: BTreeMap::new(), rate: asked, peak_ns: 0, notes: Vec::new() };
        match &self.told {
            By::Nobody => {}
            By::Calls(blocks) => {
                told.sites = blocks.sites().map(|(site, totals)| (*site, totals)).collect();
                told.peak_ns = blocks.peak_ns();
                told.rate = blocks.largest_rate().get();
                if blocks.unheld() > 0 {
                    told.notes.push(format!(
                        "so many blocks are held, by all stores together, that {} more count as freed at once: less frequent samples (--memory-rate) tell of all",
                        blocks.unheld()
                    ));
                }
                if self.left > 0 {
                    told.notes.push(format!(
                        "a trap or an exception has ended calls of the allocator ({} times): what was allocated after that, until the guest returned to its host, is not counted",
                        self.left
                    ));
                }
            }
            By::Runtime(counted) => {
                (told.sites, told.peak_ns) = (counted.sites.clone(), counted.peak_ns);
                if ![0, asked].contains(&counted.rate) {
                    told.rate = counted.rate;
                    told.notes.push(format!(
                        "the guest has its runtime sample an allocation each {} bytes, and not each {asked}",
                        counted.rate
                    ));
                }
                if counted.is_off {
                    told.notes.push("the guest has switched its runtime's heap profiler off".to_owned());
                }
                if let Some(reason) = counted.failure {
                    let reason = match reason {
                        Truncation::TooDeep => "there is more than is taken at once".to_owned(),
                        _ => reason.to_string(),
                    };
                    told.notes.push(format!(
                        "what the guest's runtime has counted of its allocations could not be read when it was last tried ({reason})"
                    ));
                }
            }
        }
        if self.sites.overflow.is_some() {
            told.notes.push(
                "there are more stacks that allocate than are told apart: the others are shown as [truncated]"
                    .to_owned(),
            );
        }
        self.grown.iter().for_each(|(site, grown)| told.sites.entry(*site).or_default().grown = *grown);
        told
    }
}

/// By whom a heap is told of.
enum By {
    /// By nobody: nothing is known but how linear memory grows.
    Nobody,
    /// By an allocator, call by call.
    Calls(Blocks<SiteNumber>),
    /// By the language's runtime, all at once.
    Runtime(CountedTotals),
}

/// What a runtime has counted.
#[derive(Default)]
struct CountedTotals {
    sites: BTreeMap<SiteNumber, SiteTotals>,
    peak_bytes: f64,
    peak_ns: u64,
    /// The rate that the runtime samples at.
    rate: u64,
    /// Why it could not be read when that was last tried.
    failure: Option<Truncation>,
    /// The guest has switched it off.
    is_off: bool,
}

/// The stacks that allocate.
struct Sites {
    /// Records of stacks, without anything that is not the same each time.
    known: HashMap<Arc<[u64]>, SiteNumber>,
    /// Those that the drain has not taken, in order of their numbers.
    new: Vec<Arc<[u64]>>,
    budget: Arc<Budget>,
    /// What of it is taken: sites, and the words of their records.
    taken: (usize, usize),
    /// The site of those that there is no room for.
    overflow: Option<SiteNumber>,
}

impl Drop for Sites {
    fn drop(&mut self) {
        let (sites, words) = self.taken;
        self.budget.sites.fetch_sub(sites, Ordering::Relaxed);
        self.budget.site_words.fetch_sub(words, Ordering::Relaxed);
    }
}

impl Sites {
    fn new(budget: Arc<Budget>) -> Self {
        Self { known: HashMap::new(), new: Vec::new(), budget, taken: (0, 0), overflow: None }
    }

    fn number(&mut self, record: &[u64]) -> SiteNumber {
        if let Some(known) = self.known.get(record) {
            return *known;
        }
        if self.budget.take_site(record.len()) {
            self.taken = (self.taken.0 + 1, self.taken.1 + record.len());
            return self.add(record);
        }
        // What there is no room for is told of together, without its frames.
        match self.overflow {
            Some(site) => site,
            None => {
                let mut words = vec![0; MIN_WORDS];
                let length =
                    stack_header().write(&mut words, |_| Err(WalkTruncation::TooManyEntries), |_, _| 0, |_| ());
                let site = self.add(&words[..length]);
                self.overflow = Some(site);
                site
            }
        }
    }

    fn add(&mut self, record: &[u64]) -> SiteNumber {
        let (number, record) = (self.known.len() as SiteNumber, Arc::<[u64]>::from(record));
        self.known.insert(record.clone(), number);
        self.new.push(record);
        number
    }
}

/// What a heap has told.
pub(in crate::sampler) struct HeapDelta {
    /// Records of the sites that have come, in order of their numbers.
    pub(in crate::sampler) new: Vec<Arc<[u64]>>,
    /// What all have come to; `None` if nothing has changed.
    pub(in crate::sampler) totals: Option<HeapTotals>,
}

/// What a heap has come to.
pub(in crate::sampler) struct HeapTotals {
    pub(in crate::sampler) sites: BTreeMap<SiteNumber, SiteTotals>,
    /// Bytes between two samples at most, on average.
    pub(in crate::sampler) rate: u64,
    /// What the user should know.
    pub(in crate::sampler) notes: Vec<String>,
    /// When the guest held most, on the monotonic clock.
    pub(in crate::sampler) peak_ns: u64,
}

impl StoreHeap {
    fn new(store: StoreNumber, rate: Rate, budget: Arc<Budget>, has_new: Arc<AtomicBool>) -> Self {
        let state = State {
            told: By::Nobody,
            grown: BTreeMap::new(),
            sites: Sites::new(budget.clone()),
            words: Vec::new(),
            left: 0,
            has_changed: true,
        };
        Self { store, rate, budget, state: Mutex::new(state), has_new }
    }

    /// Has it be told of by an allocator, call by call. `false` if somebody tells of it already.
    pub(super) fn claim_for_calls(&self) -> bool {
        self.claim(By::Calls(Blocks::within(self.rate, self.budget.blocks.clone())))
    }

    /// Has it be told of by the language's runtime. `false` if somebody tells of it already.
    pub(in crate::sampler) fn claim_for_runtime(&self) -> bool {
        self.claim(By::Runtime(CountedTotals::default()))
    }

    fn claim(&self, by: By) -> bool {
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
        let site = self.site(sites, words, read);
        grown.entry(site).or_default().add(Amount::of_block(bytes, 1.0));
        *has_changed = true;
    }

    /// Bytes until the next sample.
    pub(super) fn draw(&self) -> i64 {
        match &mut self.state().told {
            By::Calls(blocks) => blocks.draw(),
            By::Runtime(_) | By::Nobody => i64::MAX,
        }
    }

    /// Its wasm has returned from within the allocator.
    pub(super) fn was_left(&self) {
        let mut state = self.state();
        state.left += 1;
        state.has_changed = true;
    }

    /// Takes a call of the allocator that was told of. `read` writes the record of its stack, which is to be equal for equal stacks, and
    /// gives its length; it is asked of samples alone.
    pub(super) fn allocated(&self, told: &Told, filter: &mut [u8], read: impl FnOnce(&mut [u64]) -> usize) {
        let mut state = self.state();
        let State { told: by, sites, words, has_changed, .. } = &mut *state;
        let By::Calls(blocks) = by else { return };
        *has_changed = true;
        blocks.allocated(told, filter, || self.site(sites, words, read));
    }

    /// Takes note of a block that was freed.
    pub(super) fn freed(&self, block: u32, filter: &mut [u8]) {
        let mut state = self.state();
        if let By::Calls(blocks) = &mut state.told {
            blocks.freed(block, filter);
        }
        state.has_changed = true;
    }

    /// The site of the record that `read` writes.
    fn site(&self, sites: &mut Sites, words: &mut Vec<u64>, read: impl FnOnce(&mut [u64]) -> usize) -> SiteNumber {
        words.resize(MAX_WORDS, 0);
        let length = read(words);
        let site = sites.number(&words[..length]);
        if !sites.new.is_empty() {
            self.has_new.store(true, Ordering::Relaxed);
        }
        site
    }

    /// What the runtime has counted could not be read.
    pub(in crate::sampler) fn was_not_counted(&self, reason: Truncation) {
        let mut state = self.state();
        if let By::Runtime(counted) = &mut state.told {
            counted.failure = Some(reason);
        }
        state.has_changed = true;
    }

    /// Takes all that the runtime has counted so far, sampling at that rate. `record` writes the record of a bucket's stack and gives its length.
    pub(in crate::sampler) fn counted(
        &self,
        rate: u64,
        buckets: &[HeapBucket],
        mut record: impl FnMut(&HeapBucket, &mut [u64]) -> usize,
    ) {
        let mut state = self.state();
        let State { told: by, sites, words, has_changed, .. } = &mut *state;
        let By::Runtime(counted) = by else { return };
        *has_changed = true;
        if rate == 0 {
            // What was counted before stays.
            counted.is_off = true;
            return;
        }
        if !buckets.iter().all(is_credible) {
            counted.failure = Some(Truncation::Inconsistent);
            return;
        }
        if rate != counted.rate {
            // What was held before was estimated otherwise.
            counted.peak_bytes = 0.0;
        }
        let mut now: BTreeMap<SiteNumber, SiteTotals> = BTreeMap::new();
        for bucket in buckets {
            let site = self.site(sites, words, |words| record(bucket, words));
            // The runtime tells stacks apart by what they allocate as well.
            now.entry(site).or_default().add(&totals(bucket, rate));
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
        (counted.sites, counted.rate) = (now, rate);
        (counted.failure, counted.is_off) = (None, false);
    }

    /// What has been told since this was last asked. Totals look at all blocks that are held.
    pub(in crate::sampler) fn take(&self, with_totals: bool) -> HeapDelta {
        let mut state = self.state();
        let totals = (with_totals && std::mem::take(&mut state.has_changed)).then(|| state.totals(self.rate));
        HeapDelta { new: std::mem::take(&mut state.sites.new), totals }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The heaps of a session's stores, until the drain has recorded the last of them.
#[derive(Default)]
pub(in crate::sampler) struct Heaps {
    all: Mutex<BTreeMap<StoreNumber, Arc<StoreHeap>>>,
    budget: Arc<Budget>,
    /// Some have new sites.
    has_new: Arc<AtomicBool>,
}

impl Heaps {
    /// The heap of a store.
    pub(in crate::sampler) fn of(&self, store: StoreNumber, rate: Rate) -> Arc<StoreHeap> {
        let new = || Arc::new(StoreHeap::new(store, rate, self.budget.clone(), self.has_new.clone()));
        self.heaps().entry(store).or_insert_with(new).clone()
    }

    /// Whether there are new sites in some since this was last asked.
    pub(in crate::sampler) fn take_has_new(&self) -> bool {
        self.has_new.swap(false, Ordering::Relaxed)
    }

    pub(in crate::sampler) fn all(&self) -> Vec<Arc<StoreHeap>> {
        self.heaps().values().cloned().collect()
    }

    /// Lets go of the heap of a store that has gone.
    pub(in crate::sampler) fn forget(&self, store: StoreNumber) {
        self.heaps().remove(&store);
    }

    fn heaps(&self) -> MutexGuard<'_, BTreeMap<StoreNumber, Arc<StoreHeap>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a bucket says what can be: no more than a guest can have allocated in years.
fn is_credible(bucket: &HeapBucket) -> bool {
    bucket.allocated_blocks < 1 << 40 && bucket.allocated_bytes < 1 << 60
}

/// Room for the record of a stack that has no frame.
const MIN_WORDS: usize = 64;

/// What a record of a stack says beside the stack: nothing, so that equal stacks have equal records.
pub(in crate::sampler) fn stack_header() -> Header {
    Header {
        time_ns: 0,
        cpu_ns: 0,
        weight_ns: 0,
        used_ns: 0,
        period_ns: 0,
        store: 0,
        entry: 0,
        host_call: 0,
        pause_ns: 0,
        memory_bytes: 0,
        state: wlprof_recording::State::Host,
        kind: Kind::Language,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many sites a heap tells apart of so many stacks.
    fn sites_of(heap: &StoreHeap, stacks: u64) -> usize {
        for stack in 0..stacks {
            heap.grew(1, |words| {
                words[0] = stack;
                1
            });
        }
        heap.take(true).totals.map_or(0, |totals| totals.sites.len())
    }

    #[test]
    fn stores_share_the_room_for_stacks_and_give_it_back() {
        let heaps = Heaps::default();
        let first = heaps.of(1, Rate::DEFAULT);
        assert_eq!(sites_of(&first, 200), 200);
        let second = heaps.of(2, Rate::DEFAULT);
        // What there is no room for is one more.
        assert_eq!(sites_of(&second, 200), MAX_SITES - 200 + 1);
        heaps.forget(1);
        drop(first);
        let third = heaps.of(3, Rate::DEFAULT);
        assert_eq!(sites_of(&third, 200), 200);
        let note = |heap: &StoreHeap| heap.state().totals(Rate::DEFAULT).notes.len();
        assert_eq!([&second, &third].map(|heap| note(heap)), [1, 0]);
    }
}
