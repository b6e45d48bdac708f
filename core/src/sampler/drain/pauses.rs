//! How long samples stopped the guest: counts by length, so that a run of days takes no more room than one of seconds.

/// Buckets of each power of two: a percentile is right within a sixteenth.
const BUCKETS: u64 = 16;

/// Lengths of pauses.
#[derive(Clone, Debug, Default)]
pub(in crate::sampler) struct Pauses {
    counts: Vec<u64>,
    total: u64,
}

impl Pauses {
    /// Adds one, in nanoseconds.
    pub(in crate::sampler) fn add(&mut self, ns: u64) {
        let bucket = bucket_of(ns);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
    }

    /// The length that `percent` of them do not exceed, in nanoseconds, within a sixteenth; 0 without any.
    pub(in crate::sampler) fn percentile(&self, percent: u64) -> u64 {
        let rank = self.total * percent / 100;
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below > rank
        });
        bucket.map_or(0, |bucket| first_of(bucket as u64))
    }
}

fn bucket_of(ns: u64) -> usize {
    let power = ns.max(1).ilog2().saturating_sub(BUCKETS.ilog2());
    (u64::from(power) * BUCKETS + (ns >> power)) as usize
}

/// The shortest length that is in a bucket.
fn first_of(bucket: u64) -> u64 {
    let power = (bucket / BUCKETS).saturating_sub(1);
    (bucket - power * BUCKETS) << power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_in_its_bucket() {
        for ns in (0..5000).chain((0..63).map(|bit| 1 << bit)).chain([u64::MAX]) {
            let bucket = bucket_of(ns) as u64;
            assert!(first_of(bucket) <= ns, "{ns}");
            assert!(ns - first_of(bucket) <= ns / BUCKETS, "{ns}");
            assert!(bucket + 1 > 0 && (ns == u64::MAX || bucket_of(ns + 1) as u64 - bucket <= 1), "{ns}");
        }
    }

    #[test]
    fn percentiles_are_right_within_a_sixteenth() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.percentile(50), 0);
        (1..=1000).for_each(|ns| pauses.add(ns * 10));
        for percent in [1, 50, 99] {
            let (found, right) = (pauses.percentile(percent), percent * 100);
            assert!(found <= right + 10 && found >= right - right / BUCKETS - 10, "{percent}: {found}");
        }
    }
}
