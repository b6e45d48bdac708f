//! Requests that guests have answered: how many of each kind, how long they took, and the stores of each kind as one.

use super::{MemorySize, Recording, Sample, Store, StoreId, Thread};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The label of a store that says which requests it answers.
pub const REQUEST: &str = "request";
/// The label of a store that says how they were answered: a status of HTTP.
pub const STATUS: &str = "status";

/// What a label says of a store whose requests had several values of it.
pub const SEVERAL: &str = "several";
/// The kind of requests that are not told apart.
pub const OTHER_REQUESTS: &str = "other requests";

/// How a status is written; without an answer there is none.
pub fn status_text(status: Option<u16>) -> String {
    status.map_or_else(|| "none".to_owned(), |status| status.to_string())
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTotal {
    /// Method and path, whose parts that differ are left out.
    pub request: String,
    /// The status of the answer; 0 if there was none, or of requests that are not told apart.
    pub status: u16,
    /// How many there were.
    pub count: u64,
    /// How long they took, from their head to the end of the answer, in nanoseconds: the median, and what 90 and 99 of 100 took at most.
    pub latency_ns: [u64; 3],
    /// The longest.
    pub longest_ns: u64,
}

impl RequestTotal {
    /// What there was for an answer; `None` if several are not told apart.
    pub fn answer(&self) -> Option<String> {
        let is_told = self.status != 0 || self.request != OTHER_REQUESTS;
        is_told.then(|| status_text(Some(self.status).filter(|status| *status != 0)))
    }
}

impl Store {
    /// What it is called where requests are told apart: by what it answered, and how.
    pub(super) fn shown_name(&self) -> String {
        let answers = self.label(REQUEST).is_some() && self.label(STATUS).is_some();
        if answers { name_of(self) } else { self.name.clone() }
    }

    fn label(&self, wanted: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }
}

impl Recording {
    /// CPU time of such requests, each, in nanoseconds, as far as samples tell; `None` if they shared stores with others, are not told apart
    /// from others, or have no samples.
    pub fn request_cpu_ns(&self, total: &RequestTotal) -> Option<u64> {
        let answer = total.answer().filter(|_| total.request != OTHER_REQUESTS)?;
        let is_shared = |store: &Store| match store.label(REQUEST) {
            Some(SEVERAL) => true,
            Some(request) => request == total.request && store.label(STATUS) == Some(SEVERAL),
            None => false,
        };
        if self.stores.iter().any(is_shared) {
            return None;
        }
        let is_its = |store: &Store| {
            store.label(REQUEST) == Some(&total.request) && store.label(STATUS) == Some(answer.as_str())
        };
        // Of several recordings that are one now, each has its own total.
        let is_alike = |other: &&RequestTotal| other.request == total.request && other.status == total.status;
        let count: u64 = self.meta.requests.iter().filter(is_alike).map(|total| total.count).sum();
        Some(self.cpu_ns_of(is_its) / count.max(1)).filter(|ns| *ns > 0)
    }

    /// CPU time of all requests, each, in nanoseconds, as far as samples tell.
    pub fn all_requests_cpu_ns(&self) -> u64 {
        let count: u64 = self.meta.requests.iter().map(|total| total.count).sum();
        self.cpu_ns_of(|store| store.label(REQUEST).is_some()) / count.max(1)
    }

    fn cpu_ns_of(&self, is_meant: impl Fn(&Store) -> bool) -> u64 {
        let stores: Vec<bool> = self.stores.iter().map(is_meant).collect();
        let threads = self.threads.iter().filter(|thread| stores[thread.store as usize]);
        let samples = threads.flat_map(|thread| thread.samples.iter());
        samples.map(|sample| sample.cpu_delta_ns).fold(0, u64::saturating_add)
    }

    /// Stores that answered requests of one kind, in the same way, as one store: each request has one of its own, and there are thousands. Those
    /// whose heaps are known stay apart.
    pub(super) fn with_requests_together(mut self) -> Self {
        let mut firsts: HashMap<(String, Vec<(String, String)>), StoreId> = HashMap::new();
        let mut stores = Vec::new();
        let mut numbers = Vec::new();
        for store in self.stores {
            let answers = store.heap.is_none() && store.label(REQUEST).is_some() && store.label(STATUS).is_some();
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

/// What the stores of requests are called: by what they answered, and how, and by what they were called before where that says which run's
/// they are.
fn name_of(store: &Store) -> String {
    let name = [REQUEST, STATUS].into_iter().filter_map(|label| store.label(label)).collect::<Vec<_>>().join(" ");
    if store.name.ends_with(&name) { store.name.clone() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{State, example};

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
        let total = |status| RequestTotal { request: "GET /a".to_owned(), status, count: 1, ..RequestTotal::default() };
        assert_eq!([200, 500, 404].map(|status| together.request_cpu_ns(&total(status))), [Some(50), Some(10), None]);
        // As one that is merged of two is read.
        let mut merged = together;
        merged.stores.iter_mut().for_each(|store| store.name.insert_str(0, "first: "));
        merged.meta.requests = vec![total(200), total(200)];
        let merged = merged.with_requests_together();
        assert_eq!(merged.stores[1].name, "first: GET /a 200");
        assert_eq!((merged.request_cpu_ns(&total(200)), merged.all_requests_cpu_ns()), (Some(25), 30));
        // One that answered others as well.
        let mut shared = merged;
        shared.stores[2].labels[0].1 = SEVERAL.to_owned();
        assert_eq!((shared.request_cpu_ns(&total(200)), shared.all_requests_cpu_ns()), (None, 30));
    }
}
