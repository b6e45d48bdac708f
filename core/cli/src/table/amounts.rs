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

    /// The truth is as near as that in 95 of 100 recordings. What no sample has hit counts, too.
    pub(super) fn bound(self, amount: Amount) -> f64 {
        if self.is_exact() { 0.0 } else { amount.bound().max(Self::UNSEEN * self.rate as f64) }
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

    /// The rate to advise to those who want to know more.
    pub(super) fn finer_rate(self) -> u64 {
        (self.rate / 16).max(1)
    }
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
        assert_eq!(at(512 << 10, 0.5 * mebibyte, mebibyte * mebibyte), "< 2.5 MiB");
        let blocks = |blocks| count(Amount { blocks, ..Amount::default() });
        assert_eq!([blocks(0.2), blocks(999.0), blocks(1000.4), blocks(1234567.0)], ["0", "999", "1,000", "1,234,567"]);
    }
}
