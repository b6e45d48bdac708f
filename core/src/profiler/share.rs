//! Which of many stores are sampled.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A part of all stores, chosen by chance.
pub(super) struct Share {
    fraction: f64,
    stores: AtomicU64,
    /// Hashes a store's number into whether it is chosen: stores that come in turns are no pattern that it could follow.
    chance: RandomState,
}

impl Share {
    pub(super) fn of(fraction: f64) -> Self {
        Self { fraction, stores: AtomicU64::new(0), chance: RandomState::new() }
    }

    /// Whether the next store is one of them.
    pub(super) fn next(&self) -> bool {
        let hash = self.chance.hash_one(self.stores.fetch_add(1, Ordering::Relaxed));
        // Of 1 all are, the largest hash, too.
        hash as f64 / 2_f64.powi(64) < self.fraction || self.fraction >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_chosen_as_are_asked_for() {
        for fraction in [0.01, 0.25, 1.0] {
            let share = Share::of(fraction);
            let chosen = (0..100_000).filter(|_| share.next()).count() as f64;
            let (expected, deviation) = (1e5 * fraction, (1e5 * fraction * (1.0 - fraction)).sqrt());
            // Six standard deviations.
            assert!((chosen - expected).abs() <= 6.0 * deviation, "{chosen} of {expected}");
        }
    }
}
