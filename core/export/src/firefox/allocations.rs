//! What a guest has allocated, as the front end's native allocations: views of what was allocated, freed and retained.
//!
//! The front end takes an allocation for retained if no later one of its address is a deallocation (its weight is negative then), and it takes rows to be
//! in order of time. A recording has sums and no single blocks: for each stack there is one row of what is held, one of what was
//! freed again, and one that frees that. All rows have addresses of their own, since the front end shows what is retained only of those that have.

use super::ms;
use serde_json::{Value, json};
use std::borrow::Cow;
use wlprof_recording::{HeapSite, Recording, StackId, Thread};

/// A row of the table.
struct Row {
    time_ns: u64,
    bytes: i64,
    stack: usize,
    address: u64,
}

/// The recording with a thread for each store that has allocated: what allocates before it is sampled, or where time is not, has none.
pub(super) fn with_threads(recording: &Recording) -> Cow<'_, Recording> {
    let has_thread = |store: usize| recording.threads.iter().any(|thread| thread.store as usize == store);
    let allocates = |store: &usize| recording.stores[*store].heap.is_some();
    let without: Vec<usize> =
        (0..recording.stores.len()).filter(allocates).filter(|store| !has_thread(*store)).collect();
    if without.is_empty() {
        return Cow::Borrowed(recording);
    }
    let mut whole = recording.clone();
    let thread = |store| Thread { name: "guest".to_owned(), store: store as u32, ..Thread::default() };
    whole.threads.extend(without.into_iter().map(thread));
    Cow::Owned(whole)
}

/// The native allocations of thread `index`: those of its store, if it is the first of the store's. `row_of` is where a stack is in the
/// profile.
pub(super) fn table(recording: &Recording, index: usize, row_of: impl Fn(StackId) -> usize) -> Option<Value> {
    let store = recording.threads[index].store;
    let is_first = !recording.threads[..index].iter().any(|thread| thread.store == store);
    let heap = recording.stores[store as usize].heap.as_ref().filter(|_| is_first)?;
    // What is at the profile's end is not in it: with that, whatever was freed then would be retained.
    let last_ns = recording.meta.duration_ns.saturating_sub(1);
    let mut rows = Vec::new();
    for (number, HeapSite { stack, totals }) in (0..).zip(&heap.sites) {
        let stack = row_of(*stack);
        let held = totals.held.bytes.round() as i64;
        let freed = (totals.allocated.bytes - totals.held.bytes).round().max(0.0) as i64;
        // Where it is not known since when, it is there from the beginning.
        let oldest_ns = totals.held_since_ns.map_or(0, |(oldest_ns, _)| oldest_ns);
        let row = |time_ns, bytes, address| Row { time_ns, bytes, stack, address };
        let all = [
            row(oldest_ns.min(last_ns), held, 2 * number),
            row(0, freed, 2 * number + 1),
            row(last_ns, -freed, 2 * number + 1),
        ];
        rows.extend(all.into_iter().filter(|row| row.bytes != 0));
    }
    rows.sort_by_key(|row| row.time_ns);
    Some(json!({
        "length": rows.len(),
        "time": rows.iter().map(|row| ms(row.time_ns)).collect::<Vec<f64>>(),
        "weight": rows.iter().map(|row| row.bytes).collect::<Vec<i64>>(),
        "weightType": "bytes",
        "stack": rows.iter().map(|row| row.stack).collect::<Vec<usize>>(),
        "memoryAddress": rows.iter().map(|row| row.address).collect::<Vec<u64>>(),
        "threadId": vec![recording.threads[index].tid; rows.len()],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::{HeapPart, example};

    #[test]
    fn what_allocates_has_a_thread() {
        let mut recording = example();
        assert!(matches!(with_threads(&recording), Cow::Borrowed(_)));
        recording.threads.clear();
        let whole = with_threads(&recording);
        let stores: Vec<u32> = whole.threads.iter().map(|thread| thread.store).collect();
        assert_eq!(stores, [0], "one has a heap");
        assert!(table(&whole, 0, |stack| stack as usize).is_some());
    }

    #[test]
    fn what_is_retained_is_what_is_held() {
        let recording = example();
        let table = table(&recording, 0, |stack| stack as usize).unwrap();
        let column =
            |name: &str| table[name].as_array().unwrap().iter().map(|value| value.as_i64()).collect::<Vec<_>>();
        let (weights, addresses) = (column("weight"), column("memoryAddress"));
        let mut retained = std::collections::BTreeMap::new();
        for (weight, address) in weights.iter().flatten().zip(&addresses) {
            if *weight > 0 {
                retained.insert(address, *weight)
            } else {
                retained.remove(address)
            };
        }
        let heap = recording.stores[0].heap.as_ref().unwrap();
        let sum = |part| heap.total(part).bytes.round() as i64;
        assert!((retained.values().sum::<i64>() - sum(HeapPart::Held)).abs() <= 4);
        let allocated: i64 = weights.iter().flatten().filter(|weight| **weight > 0).sum();
        assert!((allocated - sum(HeapPart::Allocated)).abs() <= 8, "{allocated}");
        let times: Vec<f64> = serde_json::from_value(table["time"].clone()).unwrap();
        let end = ms(recording.meta.duration_ns);
        assert!(times.is_sorted() && times.iter().all(|time| *time < end), "{times:?} in {end}");
        assert!(times.len() as u64 == table["length"].as_u64().unwrap());
        assert!(super::table(&recording, 1, |stack| stack as usize).is_none(), "its store has no heap");
    }
}
