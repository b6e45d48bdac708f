//! Medians, how far the values around them spread, and how well a median is known.

use std::fmt;

/// The median of some values, and the lowest and highest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median =
            if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] };
        Self { median, lowest: values[0], highest: values[values.len() - 1] }
    }
}

/// The median of some values, and between which of them the true one is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    median: f64,
    low: f64,
    high: f64,
}

/// How sure it is at least that the true median is in the interval, where there are enough values.
const CONFIDENCE: f64 = 0.95;

impl Estimate {
    /// Of at least one value. Whatever the values' distribution: of `n` of them as many are below the true median as coins show
    /// heads. Of fewer than six it is the lowest and the highest, and less sure.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        // Chance that exactly `below` coins of all show heads.
        let mut chance = 0.5_f64.powi(count as i32);
        let (mut outside, mut below) = (0.0, 0);
        while 2.0 * (outside + chance) <= 1.0 - CONFIDENCE {
            outside += chance;
            chance *= (count - below) as f64 / (below + 1) as f64;
            below += 1;
        }
        let cut = below.saturating_sub(1);
        Self { median: Spread::of(values.iter().copied()).median, low: values[cut], high: values[count - 1 - cut] }
    }
}

/// As a ratio.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({:.3}–{:.3})", self.median, self.low, self.high)
    }
}
