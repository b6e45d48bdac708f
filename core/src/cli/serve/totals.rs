//! How many requests there were of each kind, and how long they took.

use super::kinds::{Kinds, OTHERS};
use crate::recording::RequestTotal;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Kinds and statuses that are told apart. Statuses are the guest's.
const MAX_TOTALS: usize = 1024;

/// How long those took that were answered with the same status.
type ByKind = BTreeMap<(Arc<str>, u16), Histogram<u64>>;

/// Requests that were answered.
pub(super) struct Totals {
    pub(super) kinds: Kinds,
    by_kind: Mutex<ByKind>,
    answered: AtomicU64,
    /// How many are wanted.
    wanted: Option<u64>,
}

impl Totals {
    pub(super) fn new(wanted: Option<u64>) -> Self {
        Self { kinds: Kinds::default(), by_kind: Mutex::default(), answered: AtomicU64::new(0), wanted }
    }

    /// A request has been answered. Whether it was the last that is wanted.
    pub(super) fn add(&self, kind: Arc<str>, status: u16, latency: Duration) -> bool {
        let mut by_kind = self.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = by_kind.len() < MAX_TOTALS || by_kind.contains_key(&(kind.clone(), status));
        let (kind, status) = if is_known { (kind, status) } else { (OTHERS.into(), 0) };
        // Two digits are enough of a time that no two requests have alike; with so few there is one for any value.
        let histogram = || Histogram::new(2).expect("two digits are allowed");
        let histogram = by_kind.entry((kind, status)).or_insert_with(histogram);
        // It grows with the values.
        let _ = histogram.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        drop(by_kind);
        let answered = self.answered.fetch_add(1, Ordering::Relaxed) + 1;
        self.wanted.is_some_and(|wanted| answered >= wanted)
    }

    /// What recordings say of them.
    pub(super) fn told(&self) -> Vec<RequestTotal> {
        let by_kind = self.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
        let told = by_kind.iter().map(|((kind, status), latencies)| RequestTotal {
            request: kind.to_string(),
            status: *status,
            count: latencies.len(),
            latency_ns: [0.5, 0.9, 0.99].map(|part| latencies.value_at_quantile(part)),
            longest_ns: latencies.max(),
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_counts_and_times() {
        let totals = Totals::new(Some(101));
        for number in 1..=100 {
            assert!(!totals.add("GET /a".into(), 200, Duration::from_millis(number)));
        }
        assert!(totals.add("GET /a".into(), 500, Duration::from_secs(7200)));
        let [answered, failed] = &totals.told()[..] else { panic!() };
        assert_eq!((&*answered.request, answered.status, answered.count), ("GET /a", 200, 100));
        for (ns, ms) in answered.latency_ns.into_iter().chain([answered.longest_ns]).zip([50, 90, 99, 100]) {
            assert!((0.98..1.02).contains(&(ns as f64 / 1e6 / ms as f64)), "{ns} and {ms}");
        }
        assert_eq!((failed.status, failed.count), (500, 1));
    }

    #[test]
    fn statuses_are_bounded() {
        let totals = Totals::new(None);
        for number in 0..3000 {
            totals.add("GET /a".into(), number, Duration::from_millis(1));
        }
        let told = totals.told();
        assert_eq!((told.len(), told.iter().map(|total| total.count).sum()), (MAX_TOTALS + 1, 3000));
    }
}
