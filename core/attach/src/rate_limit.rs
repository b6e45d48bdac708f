//! A limit of the rate at which several processes are sampled, which may change while they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most that sessions are to sample, for all that share it. Clones are the same limit.
///
/// ```
/// let limit = wlprof_attach::RateLimit::new(100.0);
/// limit.set(19.0);
/// assert_eq!(limit.rate_hz(), 19.0);
/// ```
#[derive(Clone, Debug)]
pub struct RateLimit(Arc<AtomicU64>);

impl RateLimit {
    /// A limit of so many samples a second.
    pub fn new(rate_hz: f64) -> Self {
        Self(Arc::new(AtomicU64::new(rate_hz.to_bits())))
    }

    /// Changes it, for instants from the next one on.
    pub fn set(&self, rate_hz: f64) {
        self.0.store(rate_hz.to_bits(), Ordering::Relaxed);
    }

    /// Returns how many samples a second it allows.
    pub fn rate_hz(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// The least time between instants.
    pub(crate) fn period(&self) -> Duration {
        // A rate that is none is as low as one can be.
        Duration::try_from_secs_f64(1.0 / self.rate_hz().max(0.01)).unwrap_or(Duration::from_secs(100))
    }
}

impl PartialEq for RateLimit {
    /// Whether they are the same.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
