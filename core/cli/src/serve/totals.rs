//! How many requests there were of each kind, and how long they took.

use super::kinds::Kinds;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wlprof_recording::{OTHER_REQUESTS, RequestTotal};

/// Kinds and statuses that are told apart. Statuses are the guest's.
const MAX_TOTALS: usize = 1024;
/// What answers say of paths that there are not.
const NOT_FOUND: u16 = 404;

/// How long those took that were answered with the same status, or not at all: 0.
type ByKind = BTreeMap<(Arc<str>, u16), Histogram<u64>>;

/// Requests that were answered.
pub(super) struct Totals {
    counted: Mutex<KindTotals>,
    answered: AtomicU64,
    /// How many are wanted.
    wanted: Option<u64>,
}

#[derive(Default)]
struct KindTotals {
    kinds: Kinds,
    by_kind: ByKind,
}

impl Totals {
    pub(super) fn new(wanted: Option<u64>) -> Self {
        Self { counted: Mutex::default(), answered: AtomicU64::new(0), wanted }
    }

    /// What a request of that method and path is called.
    pub(super) fn kind(&self, method: &str, path: &str) -> Arc<str> {
        let KindTotals { kinds, by_kind } = &mut *self.counted();
        let (kind, given_up) = kinds.of(method, path);
        // Those that give way were answered in one of these ways, if at all.
        for status in [NOT_FOUND, 0] {
            if let Some(times) = given_up.clone().and_then(|given_up| by_kind.remove(&(given_up, status))) {
                let others = by_kind.entry((OTHER_REQUESTS.into(), status)).or_insert_with(histogram);
                // It grows with the values.
                let _ = others.add(times);
            }
        }
        kind
    }

    /// A request has been answered so, or not at all. Gives the kind that it counts as, and whether it was the last that is wanted.
    pub(super) fn add(&self, kind: Arc<str>, status: Option<u16>, latency: Duration) -> (Arc<str>, bool) {
        let KindTotals { kinds, by_kind } = &mut *self.counted();
        if status.is_some_and(|status| status != NOT_FOUND) {
            kinds.keep(&kind);
        }
        let status = status.unwrap_or(0);
        let kind = if kinds.tells_apart(&kind) { kind } else { OTHER_REQUESTS.into() };
        let counts_as = kind.clone();
        let is_known = by_kind.len() < MAX_TOTALS || by_kind.contains_key(&(kind.clone(), status));
        let place = if is_known { (kind, status) } else { (OTHER_REQUESTS.into(), 0) };
        // It grows with the values.
        let _ = by_kind
            .entry(place)
            .or_insert_with(histogram)
            .record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        let answered = self.answered.fetch_add(1, Ordering::Relaxed) + 1;
        (counts_as, self.wanted.is_some_and(|wanted| answered >= wanted))
    }

    /// What recordings say of them.
    pub(super) fn told(&self) -> Vec<RequestTotal> {
        let counted = self.counted();
        let told = counted.by_kind.iter().map(|((kind, status), latencies)| RequestTotal {
            request: kind.to_string(),
            status: *status,
            count: latencies.len(),
            latency_ns: [0.5, 0.9, 0.99].map(|part| latencies.value_at_quantile(part)),
            longest_ns: latencies.max(),
        });
        told.collect()
    }

    fn counted(&self) -> MutexGuard<'_, KindTotals> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two digits are enough of a time that no two requests have alike.
fn histogram() -> Histogram<u64> {
    // With so few there is one for any value.
    Histogram::new(2).expect("two digits are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_counts_and_times() {
        let totals = Totals::new(Some(101));
        let add = |status, latency| totals.add(totals.kind("GET", "/a"), Some(status), latency);
        for number in 1..=100 {
            assert_eq!(add(200, Duration::from_millis(number)), ("GET /a".into(), false));
        }
        assert!(add(500, Duration::from_secs(7200)).1);
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
            totals.add(totals.kind("GET", "/a"), Some(number), Duration::from_millis(1));
        }
        let told = totals.told();
        assert_eq!((told.len(), told.iter().map(|total| total.count).sum()), (MAX_TOTALS + 1, 3000));
    }

    #[test]
    fn paths_that_there_are_not_make_room_for_those_that_there_are() {
        let totals = Totals::new(None);
        let ask = |path: &str, status| totals.add(totals.kind("GET", path), status, Duration::from_millis(1)).0;
        ask("/real", Some(200));
        let words = |number: u32| format!("/{}", char::from_u32(0x4e00 + number).unwrap());
        // Some are broken off.
        let kinds: Vec<_> = (0..1000).map(|number| ask(&words(number), (number % 3 > 0).then_some(404))).collect();
        let told_apart = kinds.iter().filter(|kind| &***kind != OTHER_REQUESTS).count();
        assert!(told_apart < 256, "{told_apart}");
        assert_eq!(&*ask("/late", Some(200)), "GET /late");
        let told = totals.told();
        let count = |request: &str, status| {
            let is_it = |total: &&RequestTotal| total.request == request && total.status == status;
            told.iter().find(is_it).map(|total| total.count)
        };
        assert_eq!((count("GET /real", 200), count("GET /late", 200)), (Some(1), Some(1)));
        assert!(count(OTHER_REQUESTS, 404).is_some_and(|count| count > 400), "{told:?}");
        assert_eq!(told.iter().map(|total| total.count).sum::<u64>(), 1002);
    }
}
