//! What stacks have allocated from one window of a run to the next: heaps count from the beginning of the run.

use super::keyed::{Keyed, keyed};
use super::{Amount, Heap, Recording, StackId, Store};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

/// Turns the totals of successive windows into what was allocated in each window.
///
/// # Accuracy
/// Ids change between windows. Stacks are recognized by the function names, files and lines of their frames. Stores are recognized by
/// their names; of several with one name, by their order, by the sizes of their memories and by totals, which never shrink. A store that
/// replaces one of the same name is recognized as new if the sizes of its memory are known, or if it has allocated less.
///
/// ```
/// use wlprof_recording::{HeapGrowth, HeapPart, example};
///
/// let mut window = example();
/// // The next window of a store that goes on has a size of its memory from the beginning.
/// window.stores[0].memory[0].time_ns = 0;
/// let mut growth = HeapGrowth::default();
/// let [first, second] = [growth.take(window.clone()), growth.take(window)];
/// let allocated = |window: &wlprof_recording::Recording| {
///     window.stores[0].heap.as_ref().unwrap().total(HeapPart::Allocated).bytes
/// };
/// assert!(allocated(&first) > 0.0);
/// assert_eq!(allocated(&second), 0.0, "nothing has come since");
/// ```
#[derive(Debug)]
pub struct HeapGrowth {
    hasher: Keyed,
    /// The stores of the window before that may go on, in their order.
    before: Vec<StoreTotals>,
}

/// What a store had allocated, by stack.
#[derive(Debug)]
struct StoreTotals {
    name: String,
    /// Whether sizes of its memory were known.
    has_memory: bool,
    stacks: HashMap<u64, Amount>,
}

impl Default for HeapGrowth {
    fn default() -> Self {
        Self { hasher: keyed(), before: Vec::new() }
    }
}

impl HeapGrowth {
    /// Returns the recording with what was allocated since the window before; all of it, in the first window. What is held stays as it is.
    /// Sites that have neither are left out.
    ///
    /// Call this with every window of a run, in order, with all of a run's stores. Call it before [`Recording::of_memory`], so that samples
    /// are of the growth, too.
    #[must_use]
    pub fn take(&mut self, mut recording: Recording) -> Recording {
        let keys = self.stack_keys(&recording);
        let mut before = std::mem::take(&mut self.before);
        let mut now = Vec::new();
        // Of each name, the first store of the window before that has not been met yet.
        let mut next_of_name: HashMap<String, usize> = HashMap::new();
        for store in &mut recording.stores {
            let has_gone = has_gone(store);
            let has_come = has_come(store);
            let Store { name, memory, heap: Some(heap), .. } = store else { continue };
            let totals =
                StoreTotals { name: name.clone(), has_memory: !memory.is_empty(), stacks: totals_of(heap, &keys) };
            let next = next_of_name.entry(name.clone()).or_default();
            let is_same = |old: &StoreTotals| {
                old.name == totals.name && !(has_come && old.has_memory) && has_all_of(&totals, old)
            };
            let place = before[*next..].iter().position(is_same);
            if let Some(place) = place {
                *next += place + 1;
                reduce(heap, &keys, &mut before[*next - 1].stacks);
            }
            heap.sites.retain(|site| has_any(site.totals.allocated) || has_any(site.totals.held));
            if !has_gone {
                now.push(totals);
            }
        }
        self.before = now;
        recording
    }

    /// A number for each stack that allocates, the same in every window.
    fn stack_keys(&self, recording: &Recording) -> HashMap<StackId, u64> {
        let key = |stack: StackId| {
            let mut hasher = self.hasher.build_hasher();
            for line in recording.lines_of(stack) {
                let function = &recording.functions[line.function as usize];
                (&function.name, &function.file, line.line).hash(&mut hasher);
            }
            hasher.finish()
        };
        let mut keys = HashMap::new();
        for stack in recording.heap_stacks() {
            keys.entry(stack).or_insert_with(|| key(stack));
        }
        keys
    }
}

fn has_any(amount: Amount) -> bool {
    amount.blocks > 0.0 || amount.bytes > 0.0
}

/// Its memory was given back in this window, so that it is in no later one.
fn has_gone(store: &Store) -> bool {
    store.memory.last().is_some_and(|size| size.bytes == 0)
}

/// Its memory was first seen in this window. One that was seen before has a size at the window's beginning.
fn has_come(store: &Store) -> bool {
    store.memory.first().is_some_and(|size| size.time_ns > 0)
}

fn totals_of(heap: &Heap, keys: &HashMap<StackId, u64>) -> HashMap<u64, Amount> {
    let mut totals: HashMap<u64, Amount> = HashMap::new();
    heap.sites.iter().for_each(|site| totals.entry(keys[&site.stack]).or_default().add(site.totals.allocated));
    totals
}

/// Whether `now` may be what `old` has become.
fn has_all_of(now: &StoreTotals, old: &StoreTotals) -> bool {
    // Sums of the same numbers in another order differ by less.
    const ROUNDING: f64 = 1.0 - 1e-9;
    let is_less = |key: &u64, old: &Amount| {
        let now = now.stacks.get(key).copied().unwrap_or_default();
        now.bytes < old.bytes * ROUNDING || now.blocks < old.blocks * ROUNDING
    };
    !old.stacks.iter().any(|(key, old)| is_less(key, old))
}

/// Takes what had been allocated `before` from the sites. Several may have one key: the first ones are the older ones.
fn reduce(heap: &mut Heap, keys: &HashMap<StackId, u64>, before: &mut HashMap<u64, Amount>) {
    for site in &mut heap.sites {
        let Some(left) = before.get_mut(&keys[&site.stack]) else { continue };
        let allocated = &mut site.totals.allocated;
        let old = Amount {
            blocks: left.blocks.min(allocated.blocks),
            bytes: left.bytes.min(allocated.bytes),
            variance: left.variance.min(allocated.variance),
        };
        left.take(old);
        allocated.take(old);
        // Such a rest comes of rounding.
        if allocated.blocks < 1e-6 || allocated.bytes < 1e-6 {
            *allocated = Amount::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeapPart, HeapSite, MemorySize, SiteTotals, example};

    fn amount(blocks: f64) -> Amount {
        Amount { blocks, bytes: blocks * 8.0, variance: blocks * 2.0 }
    }

    /// A store with sites of the example's stacks: stack, allocated, held.
    fn store(name: &str, sites: &[(StackId, f64, f64)]) -> Store {
        let site = |&(stack, allocated, held): &(StackId, f64, f64)| HeapSite {
            stack,
            totals: SiteTotals { allocated: amount(allocated), held: amount(held), ..SiteTotals::default() },
        };
        let heap = Heap { rate: 1, sites: sites.iter().map(site).collect(), ..Heap::default() };
        Store { name: name.to_owned(), heap: Some(heap), ..Store::default() }
    }

    fn window(stores: Vec<Store>) -> Recording {
        let mut recording = example();
        recording.threads.clear();
        recording.stores = stores;
        recording
    }

    /// Of each store's sites, what was allocated and what is held.
    fn sites(recording: &Recording) -> Vec<Vec<(StackId, f64, f64)>> {
        let of_store = |store: &Store| {
            let sites = &store.heap.as_ref().unwrap().sites;
            sites.iter().map(|site| (site.stack, site.totals.allocated.blocks, site.totals.held.blocks)).collect()
        };
        recording.stores.iter().map(of_store).collect()
    }

    #[test]
    fn each_window_has_what_has_come_since_the_one_before() {
        let mut growth = HeapGrowth::default();
        let first = growth.take(window(vec![store("a", &[(3, 10.0, 2.0), (5, 4.0, 0.0)])]));
        assert_eq!(sites(&first), [[(3, 10.0, 2.0), (5, 4.0, 0.0)]]);
        let second = growth.take(window(vec![store("a", &[(3, 15.0, 1.0), (5, 4.0, 0.0), (7, 1.0, 1.0)])]));
        assert_eq!(sites(&second), [[(3, 5.0, 1.0), (7, 1.0, 1.0)]], "of the second nothing is new or held");
        let allocated = second.stores[0].heap.as_ref().unwrap().total(HeapPart::Allocated);
        assert_eq!((allocated.bytes, allocated.variance), (48.0, 12.0));
        let third = growth.take(window(vec![store("a", &[(3, 15.0, 1.0), (5, 6.0, 0.0), (7, 1.0, 0.0)])]));
        assert_eq!(sites(&third), [[(3, 0.0, 1.0), (5, 2.0, 0.0)]]);
    }

    #[test]
    fn stacks_are_recognized_by_names_and_not_by_ids() {
        let mut growth = HeapGrowth::default();
        let _ = growth.take(window(vec![store("a", &[(3, 10.0, 0.0)]), store("b", &[(3, 1.0, 0.0)])]));
        // The same with another frame, and so other stacks, before it.
        let mut next = window(vec![store("b", &[(4, 3.0, 0.0)]), store("a", &[(4, 11.0, 0.0)])]);
        next.stacks.insert(0, crate::Stack { parent: None, frame: 9 });
        next.stacks[1..].iter_mut().for_each(|stack| stack.parent = stack.parent.map(|parent| parent + 1));
        assert_eq!(sites(&growth.take(next)), [[(4, 2.0, 0.0)], [(4, 1.0, 0.0)]]);
    }

    #[test]
    fn stores_of_one_name_are_told_apart_by_order_and_memory() {
        let of_time = |mut store: Store, sizes: &[(u64, u64)]| {
            store.memory = sizes.iter().map(|&(time_ns, bytes)| MemorySize { time_ns, bytes }).collect();
            store
        };
        let mut growth = HeapGrowth::default();
        let gone = of_time(store("a", &[(3, 4.0, 0.0)]), &[(1, 9), (5, 0)]);
        let stays = of_time(store("a", &[(3, 4.0, 0.0)]), &[(2, 9)]);
        assert_eq!(sites(&growth.take(window(vec![gone, stays]))), [[(3, 4.0, 0.0)], [(3, 4.0, 0.0)]]);
        let stays = of_time(store("a", &[(3, 6.0, 0.0)]), &[(0, 9)]);
        let comes = of_time(store("a", &[(3, 7.0, 0.0)]), &[(3, 9)]);
        assert_eq!(sites(&growth.take(window(vec![stays, comes]))), [[(3, 2.0, 0.0)], [(3, 7.0, 0.0)]]);
        // Without sizes, totals that have shrunk are another store's.
        let mut growth = HeapGrowth::default();
        let _ = growth.take(window(vec![store("a", &[(3, 9.0, 0.0)]), store("a", &[(3, 4.0, 0.0)])]));
        let next = growth.take(window(vec![store("a", &[(3, 5.0, 0.0)]), store("a", &[(3, 2.0, 0.0)])]));
        assert_eq!(sites(&next), [[(3, 1.0, 0.0)], [(3, 2.0, 0.0)]]);
    }

    #[test]
    fn what_is_held_stays_as_it_is() {
        let mut growth = HeapGrowth::default();
        let mut window = example().of_memory(HeapPart::Held);
        window.stores[0].memory[0].time_ns = 0;
        let [first, second] = [growth.take(window.clone()), growth.take(window)];
        let held = |recording: &Recording| recording.stores[0].heap.as_ref().unwrap().total(HeapPart::Held);
        assert_eq!(held(&first).bytes, held(&second).bytes);
        let allocated = second.stores[0].heap.as_ref().unwrap().total(HeapPart::Allocated);
        assert_eq!(allocated, Amount::default());
    }
}
