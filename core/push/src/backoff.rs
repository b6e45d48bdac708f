//! How long to wait between attempts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(300);

/// Waits that double with each attempt that fails, up to five minutes. Each is shortened by chance, so that clients of a server that comes back
/// do not come all at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns how long to wait after another failure: half of the time at least.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(20)).min(LONGEST);
        self.failures += 1;
        whole.mul_f64(0.5 + chance() / 2.0)
    }
}

/// Returns a number from 0 to 1, another one each time: what many programs do at intervals they should not do together.
pub fn chance() -> f64 {
    // Each of these has keys of its own.
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let mut backoff = Backoff::default();
        for doubled in 0..40 {
            let whole = FIRST.saturating_mul(1 << doubled.min(20)).min(LONGEST);
            let wait = backoff.next();
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        assert_ne!(chance(), chance());
    }
}
