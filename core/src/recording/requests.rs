//! Requests that guests have answered: how many of each kind, how long they took, and the stores of each kind as one.

use super::{MemorySize, Recording, Sample, Store, StoreId, Thread};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The label of a store that says which requests it answers.
pub const REQUEST: &str = "request";
/// The label of a store that says how they were answered: a status of HTTP.
pub const STATUS: &str = "status";

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTotal {
    /// Method and path, whose parts that differ are left out.
    pub request: String,
    /// The status of the answer.
    pub status: u16,
    /// How many there were.
    pub count: u64,
    /// How long they took, from their head to the end of the answer, in nanoseconds: the median, and what 90 and 99 of 100 took at most.
    pub latency_ns: [u64; 3],
    /// The longest.
    pub longest_ns: u64,
}

impl Recording {
    /// CPU time that samples stand for of the stores that answered such requests, in nanoseconds.
    pub fn request_cpu_ns(&self, total: &RequestTotal) -> u64 {
        let is_label = |store: &Store, name: &str, value: &str| {
            store.labels.iter().any(|(label, text)| label == name && text == value)
        };
        let status = total.status.to_string();
        let stores: Vec<bool> = self
            .stores
            .iter()
            .map(|store| is_label(store, REQUEST, &total.request) && is_label(store, STATUS, &status))
            .collect();
        let threads = self.threads.iter().filter(|thread| stores[thread.store as usize]);
        let samples = threads.flat_map(|thread| thread.samples.iter());
        samples.map(|sample| sample.cpu_delta_ns).fold(0, u64::saturating_add)
    }

    /// Stores that answered requests of one kind as one store: each request has one of its own, and there are thousands. Those whose heaps
    /// are known stay apart.
    pub(super) fn with_requests_together(mut self) -> Self {
        let mut firsts: HashMap<(String, Vec<(String, String)>), StoreId> = HashMap::new();
        let mut stores = Vec::new();
        let mut numbers = Vec::new();
        for store in self.stores {
            let answers = store.heap.is_none() && store.labels.iter().any(|(name, _)| name == REQUEST);
            let next = stores.len() as StoreId;
            let kind = (store.name.clone(), store.labels.clone());
            let number = if answers { *firsts.entry(kind).or_insert(next) } else { next };
            if number == next {
                let name = if answers { name_of(&store) } else { store.name.clone() };
                stores.push(Store { name, ..store });
            } else {
                // Whose size it was cannot be told any more.
                stores[number as usize].memory = Vec::<MemorySize>::new();
            }
            numbers.push(number);
        }
        self.stores = stores;
        if numbers.len() == self.stores.len() {
            return self;
        }
        let mut threads: Vec<Thread> = Vec::new();
        let mut places: HashMap<(StoreId, u64), usize> = HashMap::new();
        let mut samples: Vec<Vec<Sample>> = Vec::new();
        for thread in self.threads {
            let store = numbers[thread.store as usize];
            let place = *places.entry((store, thread.tid)).or_insert(threads.len());
            let own: Vec<Sample> = thread.samples.iter().collect();
            if place == threads.len() {
                threads.push(Thread { store, ..thread });
                samples.push(own);
            } else {
                samples[place].extend(own);
                threads[place].host_calls.extend(thread.host_calls);
            }
        }
        for (thread, mut samples) in threads.iter_mut().zip(samples) {
            samples.sort_by_key(|sample| sample.time_ns);
            thread.samples = samples.into_iter().collect();
            thread.host_calls.sort_by_key(|call| call.start_ns);
        }
        self.threads = threads;
        self
    }
}

/// What the stores of requests are called: by what they answered, and how.
fn name_of(store: &Store) -> String {
    let label = |wanted: &str| store.labels.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    [label(REQUEST), label(STATUS)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::{State, example};
    use super::*;

    #[test]
    fn stores_of_one_kind_are_one() {
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let store = |request: &str, status: &str| Store {
            name: "app".to_owned(),
            labels: vec![label(REQUEST, request), label(STATUS, status)],
            ..Store::default()
        };
        let sample =
            |time_ns| Sample { time_ns, period_ns: 10, cpu_delta_ns: 10, stack: 0, state: State::Guest, labels: None };
        let thread = |store, tid, times: &[u64]| Thread {
            store,
            tid,
            samples: times.iter().copied().map(sample).collect(),
            ..Thread::default()
        };
        let recording = Recording {
            threads: vec![
                thread(1, 7, &[5, 20]),
                thread(2, 7, &[6]),
                thread(3, 7, &[1, 9]),
                thread(3, 8, &[2]),
                thread(0, 7, &[3]),
            ],
            stores: vec![
                Store { name: "apart".to_owned(), ..Store::default() },
                store("GET /a", "200"),
                store("GET /a", "500"),
                store("GET /a", "200"),
            ],
            ..example()
        };
        let together = recording.with_requests_together();
        let names: Vec<&str> = together.stores.iter().map(|store| &*store.name).collect();
        assert_eq!(names, ["apart", "GET /a 200", "GET /a 500"]);
        let threads = together.threads.iter();
        let threads: Vec<(u32, u64, Vec<u64>)> = threads
            .map(|thread| (thread.store, thread.tid, thread.samples.iter().map(|sample| sample.time_ns).collect()))
            .collect();
        assert_eq!(threads, [(1, 7, vec![1, 5, 9, 20]), (2, 7, vec![6]), (1, 8, vec![2]), (0, 7, vec![3])]);
        let total = |status| RequestTotal { request: "GET /a".to_owned(), status, ..RequestTotal::default() };
        assert_eq!([200, 500, 404].map(|status| together.request_cpu_ns(&total(status))), [50, 10, 0]);
    }
}
