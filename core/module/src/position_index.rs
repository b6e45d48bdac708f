//! Finds rows of a large table that is sorted by position. A binary search looks at some twenty places of one, none of which
//! the processor has at hand when a signal handler asks; this looks at two or three.

/// Positions that share an entry.
const BUCKET: usize = 256;

/// For each bucket of positions, how many rows come before it; last, how many there are.
#[derive(Debug)]
pub struct PositionIndex(Vec<u32>);

impl PositionIndex {
    /// Of a table with rows at these positions, in order.
    pub fn new(positions: impl Iterator<Item = usize>) -> Self {
        let mut before = Vec::new();
        let mut count = 0;
        for position in positions {
            let buckets = position / BUCKET + 1;
            if before.len() < buckets {
                before.resize(buckets, count);
            }
            count += 1;
        }
        before.push(count);
        Self(before)
    }

    /// The last row whose position is not beyond `at`. `position` tells that of a row.
    pub fn last_up_to(&self, at: usize, position: impl Fn(usize) -> usize) -> Option<usize> {
        let bucket = at / BUCKET;
        let count = self.0[self.0.len() - 1];
        let [mut low, mut high] = [bucket, bucket + 1].map(|bucket| *self.0.get(bucket).unwrap_or(&count) as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            if position(middle) <= at {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_leads_to_the_row_before_it() {
        for positions in [&[][..], &[0], &[5, 5, 6], &[0, 255, 256, 257, 511, 2000, 2001], &[700, 100_000]] {
            let index = PositionIndex::new(positions.iter().copied());
            for at in (0..3000).chain([99_999, 100_000, 100_001, 1 << 40]) {
                let expected = positions.partition_point(|position| *position <= at).checked_sub(1);
                assert_eq!(index.last_up_to(at, |row| positions[row]), expected, "{at} in {positions:?}");
            }
        }
    }
}
