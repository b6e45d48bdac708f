//! The last part of a recording that goes on: all of its tables, and those of its samples that somebody may still want.

use super::journal::{Block, End, append_all};
use super::{Clock, HostCallSpan, Sample, Samples};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// A part of a recording, in nanoseconds since sampling began, and what time its samples are to stand for. Its own time begins
/// with its first moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowOf {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) clock: Clock,
}

/// What `sample` is if samples stand for time of `clock`; it may have been taken for one who wants waits, too.
fn on(clock: Clock, sample: Sample) -> Option<Sample> {
    match clock {
        Clock::Wall => Some(sample),
        Clock::Cpu => (sample.cpu_delta_ns > 0).then_some(Sample { period_ns: sample.cpu_delta_ns, ..sample }),
    }
}

/// What a journal has kept in memory.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Whole blocks, one after the other.
    tables: Vec<u8>,
    /// What ended before is not kept; `None` if no samples are.
    from_ns: Option<u64>,
    /// Threads and their samples.
    samples: VecDeque<(u32, Samples)>,
    /// Threads and their host calls.
    host_calls: VecDeque<(u32, HostCallSpan)>,
}

impl Recent {
    /// Takes a block, of which `bytes` is what stands in a file, or the head of that.
    pub(super) fn take(&mut self, block: &Block, bytes: &[u8]) {
        match block {
            Block::Samples(thread, packed) => {
                let mut samples = Samples::default();
                if self.from_ns.is_some() && samples.add_block(packed.clone(), |_| true) {
                    self.samples.push_back((*thread, samples));
                }
            }
            Block::HostCalls(thread, calls) if self.from_ns.is_some() => {
                self.host_calls.extend(calls.iter().map(|call| (*thread, *call)))
            }
            Block::HostCalls(..) | Block::Progress(_) | Block::End(_) | Block::Symbols { .. } => {}
            _ => self.tables.extend_from_slice(bytes),
        }
    }

    /// Takes what a file begins with.
    pub(super) fn take_head(&mut self, bytes: &[u8]) {
        self.tables.extend_from_slice(bytes);
    }

    /// Keeps what comes after `from_ns`, and lets go of what ended before; keeps no samples without.
    pub(super) fn keep_from(&mut self, from_ns: Option<u64>) {
        self.from_ns = from_ns;
        let is_kept = |end_ns: u64| from_ns.is_some_and(|from_ns| end_ns >= from_ns);
        self.samples.retain(|(_, samples)| samples.iter().any(|sample| is_kept(sample.time_ns)));
        self.host_calls.retain(|(_, call)| is_kept(call.end_ns));
    }

    /// A whole recording of what was in `window`. `end` says how it ends, given the number of its samples and the time that they
    /// stand for.
    ///
    /// # Errors
    /// If it is too large.
    pub(super) fn window(&self, window: &WindowOf, end: impl FnOnce(u64, u64) -> End) -> io::Result<Vec<u8>> {
        let WindowOf { from_ns, until_ns, clock } = *window;
        let (mut count, mut weight_ns) = (0, 0);
        let mut threads: BTreeMap<u32, (Samples, Vec<HostCallSpan>)> = BTreeMap::new();
        for (thread, samples) in &self.samples {
            let (window, _) = threads.entry(*thread).or_default();
            for sample in samples.iter().filter(|sample| (from_ns..until_ns).contains(&sample.time_ns)) {
                let Some(sample) = on(clock, sample) else { continue };
                count += 1;
                weight_ns += sample.period_ns;
                window.push(Sample { time_ns: sample.time_ns - from_ns, ..sample });
            }
        }
        for (thread, call) in &self.host_calls {
            let (start_ns, end_ns) = (call.start_ns.max(from_ns), call.end_ns.min(until_ns));
            if start_ns < end_ns {
                let call = HostCallSpan { start_ns: start_ns - from_ns, end_ns: end_ns - from_ns, ..*call };
                threads.entry(*thread).or_default().1.push(call);
            }
        }
        let blocks = threads.into_iter().flat_map(|(thread, (samples, calls))| {
            let packed: Vec<Block> = samples.blocks().map(|block| Block::Samples(thread, block.into())).collect();
            packed.into_iter().chain([Block::HostCalls(thread, calls)])
        });
        let mut bytes = self.tables.clone();
        append_all(blocks.chain([Block::End(end(count, weight_ns))]), &mut bytes)?;
        Ok(bytes)
    }
}
