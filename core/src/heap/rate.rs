//! How far apart samples of allocations are, and what a sampled block stands for.

/// How many bytes are allocated between two samples, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(u64);

impl Rate {
    /// A sample each 512 KiB, as Go has it.
    pub const DEFAULT: Self = Self(512 << 10);
    /// Every allocation is sampled.
    pub(super) const EVERY: Self = Self(1);

    /// A sample each so many bytes; 1 and less for every allocation.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// How many that is.
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
