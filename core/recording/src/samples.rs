//! A thread's samples, packed: some 13 bytes each instead of 40, so that a long run's fit into memory and on the disk.

use super::{LabelSetId, Sample, StackId, State};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes from which on a block of samples is closed. A reader has one of them unpacked at a time.
const BLOCK: usize = 1 << 16;

/// The samples of a thread, in the order in which they were taken.
#[derive(Clone, Default)]
pub struct Samples {
    /// Each begins anew: what its first sample says is not relative to the block before.
    blocks: Vec<Box<[u8]>>,
    open: Vec<u8>,
    last_ns: u64,
    count: u64,
}

/// A sample as it is packed, in postcard's varints.
#[derive(Serialize, Deserialize)]
struct PackedSample {
    /// Since the sample before in the same block, or since sampling began.
    after_ns: i64,
    cpu_delta_ns: u64,
    period_ns: u64,
    stack: StackId,
    state: State,
    labels: Option<LabelSetId>,
}

impl Samples {
    /// Appends a sample.
    pub fn push(&mut self, sample: Sample) {
        if self.open.len() >= BLOCK {
            let block = self.close_block();
            self.blocks.push(block);
        }
        let Sample { time_ns, cpu_delta_ns, period_ns, stack, state, labels } = sample;
        let after_ns = time_ns.wrapping_sub(self.last_ns) as i64;
        let packed = PackedSample { after_ns, cpu_delta_ns, period_ns, stack, state, labels };
        let open = std::mem::take(&mut self.open);
        self.open = postcard::to_extend(&packed, open).expect("a sample has no length that could be unknown");
        self.last_ns = time_ns;
        self.count += 1;
    }

    /// All samples.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + Clone {
        self.blocks().flat_map(unpack)
    }

    /// The blocks that they are packed in.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let open = Some(self.open.as_slice()).filter(|open| !open.is_empty());
        self.blocks.iter().map(|block| &**block).chain(open)
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes all samples out as one packed block, which a reader gives to [`Samples::add_block`].
    pub(super) fn take_block(&mut self) -> Box<[u8]> {
        debug_assert!(self.blocks.is_empty(), "what is written as it comes is taken before a block is full");
        self.count = 0;
        self.close_block()
    }

    /// Appends a packed block, if it is one all of whose samples `holds`.
    pub(super) fn add_block(&mut self, block: Box<[u8]>, holds: impl Fn(&Sample) -> bool) -> bool {
        let mut samples = unpack(&block);
        let mut count = 0;
        let all_hold = samples.by_ref().inspect(|_| count += 1).all(|sample| holds(&sample));
        if !all_hold || !samples.rest.is_empty() {
            return false;
        }
        if !self.open.is_empty() {
            let open = self.close_block();
            self.blocks.push(open);
        }
        self.count += count;
        self.blocks.push(block);
        true
    }

    /// Size of the samples that [`Samples::take_block`] would give, in bytes.
    pub(super) fn open_bytes(&self) -> usize {
        self.open.len()
    }

    fn close_block(&mut self) -> Box<[u8]> {
        self.last_ns = 0;
        std::mem::take(&mut self.open).into_boxed_slice()
    }
}

impl PartialEq for Samples {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl FromIterator<Sample> for Samples {
    fn from_iter<I: IntoIterator<Item = Sample>>(samples: I) -> Self {
        let mut all = Self::default();
        samples.into_iter().for_each(|sample| all.push(sample));
        all
    }
}

/// Samples of a block. Ends early, with a rest, where the bytes are none.
#[derive(Clone)]
struct Unpack<'a> {
    rest: &'a [u8],
    last_ns: u64,
}

fn unpack(block: &[u8]) -> Unpack<'_> {
    Unpack { rest: block, last_ns: 0 }
}

impl Iterator for Unpack<'_> {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        let (packed, rest) = postcard::take_from_bytes::<PackedSample>(self.rest).ok()?;
        let PackedSample { after_ns, cpu_delta_ns, period_ns, stack, state, labels } = packed;
        self.rest = rest;
        self.last_ns = self.last_ns.wrapping_add(after_ns as u64);
        Some(Sample { time_ns: self.last_ns, cpu_delta_ns, period_ns, stack, state, labels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64) -> Sample {
        Sample {
            time_ns: number * 1_000_003,
            cpu_delta_ns: number % 7,
            period_ns: 1_000_000,
            stack: (number % 1000) as StackId,
            state: State::Guest,
            labels: number.is_multiple_of(3).then_some(number as LabelSetId),
        }
    }

    #[test]
    fn what_is_packed_is_unpacked_across_blocks() {
        let all: Vec<Sample> = (0..20_000).map(sample).collect();
        let packed: Samples = all.iter().copied().collect();
        assert!(packed.blocks.len() > 1);
        assert_eq!(packed.len(), 20_000);
        assert!(packed.iter().eq(all));
    }

    #[test]
    fn taken_blocks_are_put_together_again() {
        let mut written = Samples::default();
        let mut read = Samples::default();
        for number in 0..100 {
            written.push(sample(number));
            if number % 30 == 29 {
                assert!(read.add_block(written.take_block(), |_| true));
            }
        }
        assert!(read.add_block(written.take_block(), |sample| sample.time_ns > 0));
        assert!(written.is_empty());
        assert_eq!(read, (0..100).map(sample).collect());
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let mut written = Samples::default();
        (0..10).for_each(|number| written.push(sample(number)));
        let block = written.take_block();
        let mut read = Samples::default();
        assert!(!read.add_block(block.clone(), |sample| sample.stack < 9), "a sample does not hold");
        for end in 1..block.len() {
            let cut = block[..end].into();
            let before = read.len();
            let taken = read.add_block(cut, |_| true);
            assert!(taken == (read.len() > before), "cut at {end}");
        }
    }
}
