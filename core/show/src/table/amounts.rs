//! Bytes and blocks in the tables of memory.

use wlprof_recording::{Amount, HeapPart, Recording, bytes, scaled};

/// Amounts as they are shown, each with its bound.
#[derive(Clone, Copy)]
pub(super) struct Amounts {
    /// Bytes between two samples where they are furthest apart; 1 where every allocation was sampled.
    pub(super) rate: u64,
}

impl Amounts {
    /// Bytes that no sample has hit are fewer than this times the rate in 95 of 100 recordings: it is -ln 0.05.
    const UNSEEN: f64 = 3.0;

    /// Of so few bytes every allocation is sampled in well under a second.
    const FEW_BYTES: f64 = (4 << 20) as f64;

    /// The amounts of recordings.
    pub(super) fn of<'r>(recordings: impl IntoIterator<Item = &'r Recording>) -> Self {
        let heaps =
            recordings.into_iter().flat_map(|recording| &recording.stores).filter_map(|store| store.heap.as_ref());
        let rates = heaps.map(|heap| heap.rate);
        Self { rate: rates.max().unwrap_or(1) }
    }

    /// The amounts of a part. How linear memory grows is seen each time.
    pub(super) fn of_part(self, part: HeapPart) -> Self {
        if part == HeapPart::Grown { Self { rate: 1 } } else { self }
    }

    /// Whether every allocation was sampled.
    pub(super) fn is_exact(self) -> bool {
        self.rate <= 1
    }

    /// The truth is as near as that in 95 of 100 recordings.
    ///
    /// # Accuracy
    /// Few samples have a variance that is too small by chance, and none have none. What no sample has hit is an error of its own: with it the
    /// bound holds for any number of samples.
    pub(super) fn bound(self, amount: Amount) -> f64 {
        if self.is_exact() { 0.0 } else { amount.bound().hypot(Self::UNSEEN * self.rate as f64) }
    }

    /// An amount with its bound, both in one unit, as in `25.4 ±0.9 MiB`; without one where it is exact. Where the bound is larger than the
    /// amount, the most that it can be, as in `< 1.5 MiB`.
    pub(super) fn shown(self, amount: Amount) -> String {
        let bound = self.bound(amount);
        // What is smaller is an error of adding up.
        if bound < 0.5 {
            return bytes(amount.bytes);
        }
        // With one decimal, and never less than it is.
        let rounded_up = |value: f64| (value * 10.0 - 1e-6).ceil() / 10.0;
        if amount.bytes < bound {
            let (most, unit) = scaled(amount.bytes + bound);
            return format!("< {:.1} {unit}", rounded_up(most));
        }
        let (value, unit) = scaled(amount.bytes);
        format!("{value:.1} ±{:.1} {unit}", rounded_up(bound * value / amount.bytes))
    }

    /// Whether little is known of an amount.
    pub(super) fn is_vague(self, amount: Amount) -> bool {
        amount.bytes < 2.0 * self.bound(amount)
    }

    /// Advises a rate that says more, where `allocated` is all that was allocated: as a clause that begins with the option.
    pub(super) fn advice(self, allocated: Amount) -> String {
        if allocated.bytes + self.bound(allocated) < Self::FEW_BYTES {
            return "--memory-rate=1 samples every allocation".to_owned();
        }
        // Bounds go with the root of the rate.
        format!("--memory-rate={} makes bounds a quarter as wide", (self.rate / 16).max(1))
    }
}

/// How many blocks there are, as in `1 block` and `2,000 blocks`.
pub(super) fn blocks(amount: Amount) -> String {
    let count = count(amount);
    let noun = if count == "1" { "block" } else { "blocks" };
    format!("{count} {noun}")
}

/// A number of blocks, with its thousands apart.
pub(super) fn count(amount: Amount) -> String {
    let digits = format!("{:.0}", amount.blocks);
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_one_unit_and_bounds_that_are_never_too_small() {
        let at = |rate, bytes, variance| Amounts { rate }.shown(Amount { blocks: 1.0, bytes, variance });
        let shown = |bytes, variance| at(2, bytes, variance);
        let mebibyte = 1_048_576.0;
        let deviation = 0.51 * mebibyte / 1.959_964;
        assert_eq!(shown(3.0 * mebibyte, deviation * deviation), "3.0 ±0.6 MiB");
        assert_eq!(at(1, 3.0 * mebibyte, 1e-9), "3.0 MiB");
        assert_eq!(at(1, 0.0, 0.0), "0 B");
        // What no sample has hit may be there.
        assert_eq!(at(512 << 10, 0.0, 0.0), "< 1.5 MiB");
        assert_eq!(at(512 << 10, 100.0, 0.0), "< 1.6 MiB");
        assert_eq!(at(512 << 10, 100.0 * mebibyte, 0.0), "100.0 ±1.5 MiB");
        // 0.5 and √(1.96² + 1.5²).
        assert_eq!(at(512 << 10, 0.5 * mebibyte, mebibyte * mebibyte), "< 3.0 MiB");
    }

    #[test]
    fn bounds_hold_for_any_number_of_samples() {
        // Of blocks that are much smaller than the rate, the number of samples is Poisson's: here the sum of its terms that are in the bound.
        let covered = |mean: f64| {
            let amounts = Amounts { rate: 1000 };
            let term = |samples: u32| {
                let logarithm = (1..=samples).map(|factor| f64::from(factor).ln()).sum::<f64>();
                (f64::from(samples) * mean.ln() - mean - logarithm).exp()
            };
            let is_covered = |samples: &u32| {
                let bytes = f64::from(*samples) * 1000.0;
                let bound = amounts.bound(Amount { blocks: 1.0, bytes, variance: bytes * 1000.0 });
                (bytes - mean * 1000.0).abs() <= bound
            };
            (0..300).filter(is_covered).map(term).sum::<f64>()
        };
        for mean in [0.1, 1.0, 2.9, 3.1, 5.0, 8.0, 10.0, 15.0, 30.0, 100.0] {
            let covered = covered(mean);
            assert!((0.945..=1.0 + 1e-9).contains(&covered), "{mean}: {covered}");
        }
    }

    #[test]
    fn a_finer_rate_is_advised_and_of_little_memory_every_allocation() {
        let of = |rate, bytes| Amounts { rate }.advice(Amount { blocks: 1.0, bytes, variance: 0.0 });
        assert_eq!(of(512 << 10, 0.0), "--memory-rate=1 samples every allocation");
        assert_eq!(of(512 << 10, 1e9), "--memory-rate=32768 makes bounds a quarter as wide");
        assert_eq!(of(64 << 20, 0.0), "--memory-rate=4194304 makes bounds a quarter as wide");
        assert_eq!(of(2, 1e9), "--memory-rate=1 makes bounds a quarter as wide");
    }

    #[test]
    fn blocks_have_their_thousands_apart() {
        let blocks = |blocks| count(Amount { blocks, ..Amount::default() });
        assert_eq!([blocks(0.2), blocks(999.0), blocks(1000.4), blocks(1234567.0)], ["0", "999", "1,000", "1,234,567"]);
    }
}
