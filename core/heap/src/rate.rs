//! How far apart samples of allocations are, and what a sampled block stands for.

/// The average number of bytes allocated between two samples.
///
/// ```
/// use wlprof_heap::Rate;
///
/// assert_eq!(Rate::DEFAULT.get(), 512 << 10);
/// assert_eq!(Rate::bytes(0).get(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(u64);

impl Rate {
    /// One sample for each 512 KiB, as in Go.
    pub const DEFAULT: Self = Self(512 << 10);
    /// Every allocation is sampled.
    pub(super) const EVERY: Self = Self(1);

    /// Returns the rate of one sample per `bytes` bytes. 1 or less samples every allocation.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    pub fn get(self) -> u64 {
        self.0.max(1)
    }

    pub(super) fn is_every(self) -> bool {
        self.0 <= 1
    }

    /// How many allocations of `size` bytes one that is sampled stands for: it is sampled if one of its bytes is drawn, and each is with the
    /// same probability.
    pub(super) fn weight(self, size: u64) -> f64 {
        match self.is_every() {
            true => 1.0,
            // Of nothing nothing is drawn.
            false => 1.0 / -f64::exp_m1(-(size.max(1) as f64) / self.0 as f64),
        }
    }
}
