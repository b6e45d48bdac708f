//! What stacks have allocated from one window of a run to the next: heaps count from the beginning of the run.

use super::keyed::{Keyed, keyed};
use super::{Amount, Heap, Recording, StackId, Store};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

/// Turns the totals of successive windows into what was allocated in each window.
///
/// Heaps are recognized by their numbers ([`Heap::number`]), and stacks by the names, files and lines of their functions, since the ids of both
/// change between windows.
///
/// ```
/// use wlprof_recording::{HeapGrowth, HeapPart, example};
///
/// let mut growth = HeapGrowth::default();
/// let [first, second] = [growth.take(example()), growth.take(example())];
/// let allocated = |window: &wlprof_recording::Recording| {
///     window.stores[0].heap.as_ref().unwrap().total(HeapPart::Allocated).bytes
/// };
/// assert!(allocated(&first) > 0.0);
/// assert_eq!(allocated(&second), 0.0, "nothing has come since");
/// ```
#[derive(Debug)]
pub struct HeapGrowth {
    hasher: Keyed,
    /// What the heaps of the window before had allocated, by their numbers and by stack.
    before: HashMap<u64, HashMap<u64, Amount>>,
}

impl Default for HeapGrowth {
    fn default() -> Self {
        Self { hasher: keyed(), before: HashMap::new() }
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
        for Store { heap, .. } in &mut recording.stores {
            let Some(heap) = heap else { continue };
            self.before.insert(heap.number, totals_of(heap, &keys));
            if let Some(totals) = before.get_mut(&heap.number) {
                reduce(heap, &keys, totals);
            }
            heap.sites.retain(|site| has_any(site.totals.allocated) || has_any(site.totals.held));
        }
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

fn totals_of(heap: &Heap, keys: &HashMap<StackId, u64>) -> HashMap<u64, Amount> {
    let mut totals: HashMap<u64, Amount> = HashMap::new();
    heap.sites.iter().for_each(|site| totals.entry(keys[&site.stack]).or_default().add(site.totals.allocated));
    totals
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
    use crate::{HeapPart, HeapSite, SiteTotals, example};

    fn amount(blocks: f64) -> Amount {
        Amount { blocks, bytes: blocks * 8.0, variance: blocks * 2.0 }
    }

    /// A store with a heap of that number, with sites of the example's stacks: stack, allocated, held.
    fn store(number: u64, sites: &[(StackId, f64, f64)]) -> Store {
        let site = |&(stack, allocated, held): &(StackId, f64, f64)| HeapSite {
            stack,
            totals: SiteTotals { allocated: amount(allocated), held: amount(held), ..SiteTotals::default() },
        };
        let heap = Heap { number, rate: 1, sites: sites.iter().map(site).collect(), ..Heap::default() };
        Store { name: "request".to_owned(), heap: Some(heap), ..Store::default() }
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
        let first = growth.take(window(vec![store(1, &[(3, 10.0, 2.0), (5, 4.0, 0.0)])]));
        assert_eq!(sites(&first), [[(3, 10.0, 2.0), (5, 4.0, 0.0)]]);
        let second = growth.take(window(vec![store(1, &[(3, 15.0, 1.0), (5, 4.0, 0.0), (7, 1.0, 1.0)])]));
        assert_eq!(sites(&second), [[(3, 5.0, 1.0), (7, 1.0, 1.0)]], "of the second nothing is new or held");
        let allocated = second.stores[0].heap.as_ref().unwrap().total(HeapPart::Allocated);
        assert_eq!((allocated.bytes, allocated.variance), (48.0, 12.0));
        let third = growth.take(window(vec![store(1, &[(3, 15.0, 1.0), (5, 6.0, 0.0), (7, 1.0, 0.0)])]));
        assert_eq!(sites(&third), [[(3, 0.0, 1.0), (5, 2.0, 0.0)]]);
    }

    #[test]
    fn stacks_are_recognized_by_names_and_not_by_ids() {
        let mut growth = HeapGrowth::default();
        let _ = growth.take(window(vec![store(1, &[(3, 10.0, 0.0)]), store(2, &[(3, 1.0, 0.0)])]));
        // The same with another frame, and so other stacks, before it.
        let mut next = window(vec![store(2, &[(4, 3.0, 0.0)]), store(1, &[(4, 11.0, 0.0)])]);
        next.stacks.insert(0, crate::Stack { parent: None, frame: 9 });
        next.stacks[1..].iter_mut().for_each(|stack| stack.parent = stack.parent.map(|parent| parent + 1));
        assert_eq!(sites(&growth.take(next)), [[(4, 2.0, 0.0)], [(4, 1.0, 0.0)]]);
    }

    #[test]
    fn each_store_is_new_that_has_a_number_of_its_own() {
        let mut growth = HeapGrowth::default();
        assert_eq!(sites(&growth.take(window(vec![store(1, &[(3, 4.0, 0.0)])]))), [[(3, 4.0, 0.0)]]);
        // The first one has gone, and another of the same name has done the same.
        assert_eq!(sites(&growth.take(window(vec![store(2, &[(3, 4.0, 0.0)])]))), [[(3, 4.0, 0.0)]]);
        let next = window(vec![store(2, &[(3, 6.0, 0.0)]), store(3, &[(3, 7.0, 0.0)])]);
        assert_eq!(sites(&growth.take(next)), [[(3, 2.0, 0.0)], [(3, 7.0, 0.0)]]);
    }

    #[test]
    fn what_is_held_stays_as_it_is() {
        let mut growth = HeapGrowth::default();
        let window = example().of_memory(HeapPart::Held);
        let [first, second] = [growth.take(window.clone()), growth.take(window)];
        let held = |recording: &Recording| recording.stores[0].heap.as_ref().unwrap().total(HeapPart::Held);
        assert_eq!(held(&first).bytes, held(&second).bytes);
        let allocated = second.stores[0].heap.as_ref().unwrap().total(HeapPart::Allocated);
        assert_eq!(allocated, Amount::default());
    }
}
