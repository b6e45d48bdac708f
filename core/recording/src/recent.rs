//! The last part of a recording that goes on: all of its tables, and those of its samples that somebody may still want.

use super::journal::{Block, End, Journal, append_all, block_bytes};
use super::{Clock, Heap, HostCallSpan, MemorySize, Sample, Samples, StoreId};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// A part of a recording, in nanoseconds since sampling began, and what time its samples are to stand for. Its own time begins
/// with its first moment.
#[derive(Clone, Copy, Debug)]
pub struct WindowOf {
    /// Where it begins.
    pub from_ns: u64,
    /// Where it ends.
    pub until_ns: u64,
    /// Whose time.
    pub clock: Clock,
    /// It follows a window that ended where it begins. Samples of before that were recorded after the other was made are of this one, so that of
    /// windows that follow each other each sample is in one. The number is what [`Recorder::recorded`](crate::Recorder::recorded) gave then.
    pub follows: Option<u64>,
    /// Another one follows it, which begins with the block of that number: what comes from there on is not of this one.
    pub until: Option<u64>,
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
    /// Threads and their samples, and the number of each block.
    samples: VecDeque<(u32, Samples, u64)>,
    /// Blocks of samples that have come.
    recorded: u64,
    /// Blocks from this number on are kept whenever their samples were taken: a window that is open follows another.
    late_from: Option<u64>,
    /// Threads and their host calls.
    host_calls: VecDeque<(u32, HostCallSpan)>,
    /// Sizes of the stores' memories, each with the last one before what is kept.
    memories: BTreeMap<StoreId, Vec<MemorySize>>,
    /// What the stores' guests have allocated, and when these have gone, if they have.
    heaps: BTreeMap<StoreId, (Heap, Option<u64>)>,
}

impl Recent {
    /// What has these blocks, and keeps samples from the same time on.
    ///
    /// # Errors
    /// If one is too large.
    pub(super) fn with_the_same_time(&self, blocks: impl Iterator<Item = Block>) -> io::Result<Self> {
        let mut other = Self { from_ns: self.from_ns, late_from: self.late_from, ..Self::default() };
        other.take_head(&Journal::header());
        for block in blocks {
            other.take(&block, &block_bytes(&block)?);
        }
        // None of them is late.
        other.samples.iter_mut().for_each(|(_, _, number)| *number = 0);
        other.recorded = self.recorded;
        Ok(other)
    }

    /// What ended before is not kept; `None` if no samples are.
    pub(super) fn first_ns(&self) -> Option<u64> {
        self.from_ns
    }

    /// Returns whether there are samples that an open window is to have though they were taken before it began.
    pub(super) fn has_late(&self) -> bool {
        let (Some(from_ns), Some(late_from)) = (self.from_ns, self.late_from) else { return false };
        let is_late = |samples: &Samples| samples.iter().any(|sample| sample.time_ns < from_ns);
        self.samples.iter().any(|(_, samples, number)| *number >= late_from && is_late(samples))
    }

    /// How many blocks of samples have come.
    pub(super) fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Size of the tables.
    pub(super) fn table_bytes(&self) -> usize {
        self.tables.len()
    }

    /// Takes a block, of which `bytes` is what stands in a file, or the head of that.
    pub(super) fn take(&mut self, block: &Block, bytes: &[u8]) {
        match block {
            Block::Samples(thread, packed) => {
                let mut samples = Samples::default();
                if self.from_ns.is_some() && samples.add_block(packed.clone(), |_| true) {
                    self.samples.push_back((*thread, samples, self.recorded));
                    self.recorded += 1;
                }
            }
            Block::HostCalls(thread, calls) if self.from_ns.is_some() => {
                self.host_calls.extend(calls.iter().map(|call| (*thread, *call)))
            }
            Block::Memory(store, sizes) => {
                self.memories.entry(*store).or_default().extend(sizes);
                self.keep_sizes(*store);
            }
            Block::Heap(store, heap) => _ = self.heaps.insert(*store, (heap.clone(), None)),
            Block::HostCalls(..) | Block::Progress(_) | Block::End(_) | Block::Symbols { .. } => {}
            _ => self.tables.extend_from_slice(bytes),
        }
    }

    /// Takes what a file begins with.
    pub(super) fn take_head(&mut self, bytes: &[u8]) {
        self.tables.extend_from_slice(bytes);
    }

    /// Keeps what comes after `from_ns`, and lets go of what ended before; keeps no samples without.
    /// Blocks from number `late_from` on are kept as well.
    pub(super) fn keep_from(&mut self, from_ns: Option<u64>, late_from: Option<u64>) {
        (self.from_ns, self.late_from) = (from_ns, late_from);
        let is_kept = |end_ns: u64| from_ns.is_some_and(|from_ns| end_ns >= from_ns);
        let late_from = self.late_from.filter(|_| from_ns.is_some());
        self.samples.retain(|(_, samples, number)| {
            late_from.is_some_and(|late_from| *number >= late_from)
                || samples.iter().any(|sample| is_kept(sample.time_ns))
        });
        self.host_calls.retain(|(_, call)| is_kept(call.end_ns));
        let stores: Vec<StoreId> = self.memories.keys().copied().collect();
        stores.into_iter().for_each(|store| self.keep_sizes(store));
        self.heaps.retain(|_, (_, gone_ns)| gone_ns.is_none_or(is_kept));
    }

    /// No more will come of the heaps of these stores, which have gone by then.
    pub(super) fn heaps_have_gone(&mut self, stores: &[(StoreId, u64)]) {
        for (store, time_ns) in stores {
            if self.from_ns.is_none_or(|from_ns| *time_ns < from_ns) {
                self.heaps.remove(store);
            } else if let Some((_, gone_ns)) = self.heaps.get_mut(store) {
                *gone_ns = Some(*time_ns);
            }
        }
    }

    /// The stores whose heaps will not change any more, and since when.
    pub(super) fn gone_heaps(&self) -> impl Iterator<Item = (StoreId, u64)> {
        self.heaps.iter().filter_map(|(store, (_, gone_ns))| Some((*store, (*gone_ns)?)))
    }

    /// Lets go of sizes of a store's memory that nobody wants: how large it was before that is left is what the last one says.
    fn keep_sizes(&mut self, store: StoreId) {
        let Some(sizes) = self.memories.get_mut(&store) else { return };
        let from_ns = self.from_ns.unwrap_or(u64::MAX);
        let before = sizes.partition_point(|size| size.time_ns <= from_ns);
        sizes.drain(..before.saturating_sub(1));
        // It has gone.
        if matches!(sizes[..], [MemorySize { bytes: 0, time_ns }] if time_ns <= from_ns) {
            self.memories.remove(&store);
        }
    }

    /// Sizes of memories in `window`, each with that at its beginning.
    fn memories_in(&self, window: &WindowOf) -> impl Iterator<Item = Block> {
        let WindowOf { from_ns, until_ns, .. } = *window;
        self.memories.iter().map(move |(store, sizes)| {
            let before = sizes.partition_point(|size| size.time_ns <= from_ns);
            let sizes = &sizes[before.saturating_sub(1)..];
            let sizes = sizes.iter().filter(|size| size.time_ns < until_ns);
            let sizes = sizes.map(|size| MemorySize { time_ns: size.time_ns.saturating_sub(from_ns), ..*size });
            Block::Memory(*store, sizes.collect())
        })
    }

    /// A whole recording of what was in `window`. `end` says how it ends, given the number of its samples and the time that they
    /// stand for.
    ///
    /// # Errors
    /// If it is too large.
    pub(super) fn window(&self, window: &WindowOf, end: impl FnOnce(u64, u64) -> End) -> io::Result<Vec<u8>> {
        let WindowOf { from_ns, until_ns, clock, follows, until } = *window;
        let (mut count, mut weight_ns) = (0, 0);
        let mut threads: BTreeMap<u32, (Samples, Vec<HostCallSpan>)> = BTreeMap::new();
        for (thread, samples, number) in &self.samples {
            if until.is_some_and(|recorded| *number >= recorded) {
                continue;
            }
            let (window, _) = threads.entry(*thread).or_default();
            let first_ns = if follows.is_some_and(|recorded| *number >= recorded) { 0 } else { from_ns };
            for sample in samples.iter().filter(|sample| (first_ns..until_ns).contains(&sample.time_ns)) {
                let Some(sample) = on(clock, sample) else { continue };
                count += 1;
                weight_ns += sample.period_ns;
                window.push(Sample { time_ns: sample.time_ns.saturating_sub(from_ns), ..sample });
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
        let is_of_window = |gone_ns: &Option<u64>| gone_ns.is_none_or(|gone_ns| gone_ns >= from_ns);
        let heaps = self.heaps.iter().filter(|(_, (_, gone_ns))| is_of_window(gone_ns));
        let heaps = heaps.flat_map(|(store, (heap, _))| {
            [Block::Heap(*store, heap.clone().since(from_ns)), Block::HeapNumber(*store, heap.number)]
        });
        append_all(
            self.memories_in(window).chain(heaps).chain(blocks).chain([Block::End(end(count, weight_ns))]),
            &mut bytes,
        )?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finish;
    use crate::{
        HeapSite, HeldNumbers, Meta, Module, Origin, Recorder, Recording, SiteTotals, State, TickCounts, file,
    };
    use wlprof_plugin::SourceFrame;

    /// A recorder that keeps samples from `from_ns` on, with samples at 10, 20 and 30: of 5 ns of CPU time each, the second with 3 ns
    /// of waiting more, the third of waiting alone.
    fn recorder(from_ns: Option<u64>) -> Recorder {
        let module = Module { name: "m".to_owned(), build_id: String::new() };
        let mut recorder = Recorder::new(vec![module], Meta::default(), Journal::of_windows());
        let store = recorder.store("s");
        let track = recorder.track(store, "t", 7);
        recorder.keep_from(from_ns, None);
        for (time_ns, cpu_delta_ns, period_ns, state) in
            [(10, 5, 5, State::Guest), (20, 5, 8, State::Guest), (30, 0, 9, State::Blocked)]
        {
            let frame = recorder.frame(Origin::Wasm { module: 0, function: time_ns as u32, code_offset: 0 });
            let stack = recorder.stack([frame]).unwrap();
            let sample = Sample { time_ns, cpu_delta_ns, period_ns, stack, state, labels: None };
            recorder.sample(track, 0, sample);
            recorder.flush(time_ns);
        }
        recorder
    }

    fn window(recorder: &mut Recorder, from_ns: u64, until_ns: u64, clock: Clock) -> Recording {
        let window = WindowOf { from_ns, until_ns, clock, follows: None, until: None };
        let end = |count, weight_ns| {
            let ticks = TickCounts { fired: count, sampled: count, ..TickCounts::default() };
            (Meta { unsampled_ns: weight_ns, ..Meta::default() }, ticks)
        };
        file::read(&recorder.window(&window, end, Vec::new()).unwrap()).unwrap()
    }

    /// When the samples were taken, and what they stand for.
    fn samples(recording: &Recording) -> Vec<(u64, u64)> {
        recording.samples().map(|sample| (sample.time_ns, sample.period_ns)).collect()
    }

    #[test]
    fn windows_overlap_and_each_has_its_own_time_and_clock() {
        let mut recorder = recorder(Some(0));
        let wall = window(&mut recorder, 5, 31, Clock::Wall);
        assert_eq!(samples(&wall), [(5, 5), (15, 8), (25, 9)]);
        assert_eq!((wall.ticks.sampled, wall.meta.unsampled_ns), (3, 22));
        let cpu = window(&mut recorder, 20, 31, Clock::Cpu);
        assert_eq!(samples(&cpu), [(0, 5)], "without what waited");
        assert_eq!(
            cpu.functions[cpu.frames[0].lines[0].function as usize].name, "wasm-function[10]",
            "tables are whole"
        );
        assert_eq!(samples(&window(&mut recorder, 10, 20, Clock::Wall)), [(0, 5)], "the end is not in it");
    }

    #[test]
    fn of_windows_that_follow_each_other_each_sample_is_in_one() {
        let mut recorder = recorder(Some(0));
        let follows = Some(recorder.recorded());
        recorder.keep_from(Some(0), follows);
        // It was taken in the first one, in a host call that has returned since.
        let (track, stack) = (recorder.track(0, "t", 7), 0);
        let late =
            |time_ns| Sample { time_ns, cpu_delta_ns: 1, period_ns: 1, stack, state: State::Guest, labels: None };
        recorder.sample(track, 0, late(12));
        recorder.sample(track, 0, late(40));
        let end = |sampled, _| (Meta::default(), TickCounts { fired: sampled, sampled, ..TickCounts::default() });
        let mut window = |from_ns, until_ns, follows, until| {
            let of = WindowOf { from_ns, until_ns, clock: Clock::Wall, follows, until };
            file::read(&recorder.window(&of, end, Vec::new()).unwrap()).unwrap()
        };
        // The first one is made only now.
        let first = window(0, 25, None, follows);
        let second = window(25, 50, follows, None);
        assert_eq!(samples(&first), [(10, 5), (20, 8)]);
        assert_eq!(samples(&second), [(5, 9), (0, 1), (15, 1)]);
        // Late samples stay while a window is to have them, and tables as well.
        recorder.keep_from(Some(45), follows);
        assert!(recorder.compact(HeldNumbers::default()).is_none());
        recorder.keep_from(Some(45), None);
        assert!(recorder.compact(HeldNumbers::default()).is_some());
        assert_eq!(samples(&self::window(&mut recorder, 0, 50, Clock::Wall)), []);
    }

    #[test]
    fn what_no_window_wants_is_let_go_of() {
        let mut recorder = recorder(None);
        assert!(window(&mut recorder, 0, 100, Clock::Wall).samples().next().is_none());
        let mut recorder = self::recorder(Some(0));
        recorder.keep_from(Some(20), None);
        assert_eq!(samples(&window(&mut recorder, 0, 100, Clock::Wall)), [(20, 8), (30, 9)]);
        recorder.keep_from(None, None);
        recorder.keep_from(Some(0), None);
        assert!(window(&mut recorder, 0, 100, Clock::Wall).samples().next().is_none());
    }

    #[test]
    fn a_window_says_how_large_memory_was_when_it_began() {
        let mut recorder = recorder(Some(0));
        for (time_ns, bytes) in [(8, 100), (12, 200), (22, 300)] {
            recorder.memory(0, time_ns, bytes);
            recorder.flush(time_ns);
        }
        let sizes = |recorder: &mut Recorder, from_ns, until_ns| -> Vec<(u64, u64)> {
            let recording = window(recorder, from_ns, until_ns, Clock::Wall);
            recording.stores[0].memory.iter().map(|size| (size.time_ns, size.bytes)).collect()
        };
        assert_eq!(sizes(&mut recorder, 5, 31), [(3, 100), (7, 200), (17, 300)]);
        assert_eq!(sizes(&mut recorder, 10, 20), [(0, 100), (2, 200)]);
        recorder.keep_from(Some(15), None);
        assert_eq!(sizes(&mut recorder, 15, 31), [(0, 200), (7, 300)]);
        recorder.keep_from(None, None);
        assert_eq!(sizes(&mut recorder, 40, 50), [(0, 300)], "the last size is kept while nobody looks");
        recorder.memory(0, 60, 0);
        recorder.flush(60);
        assert_eq!(sizes(&mut recorder, 70, 80), [], "it has gone");
    }

    #[test]
    fn heaps_are_kept_with_the_samples_of_their_time() {
        let mut recorder = recorder(Some(0));
        let site = HeapSite { stack: 0, totals: SiteTotals::default() };
        // Windows have the numbers, too.
        let heap = |rate| Heap { number: 10 * rate, rate, sites: vec![site], ..Heap::default() };
        let gone = recorder.store("gone");
        recorder.heap(0, heap(1));
        recorder.heap(gone, heap(2));
        recorder.heap_has_gone(gone, 25);
        recorder.flush(30);
        let rates = |recorder: &mut Recorder, from_ns| -> Vec<u64> {
            let recording = window(recorder, from_ns, 100, Clock::Wall);
            let heaps = recording.stores.iter().filter_map(|store| store.heap.as_ref());
            heaps.inspect(|heap| assert_eq!(heap.number, 10 * heap.rate)).map(|heap| heap.rate).collect()
        };
        assert_eq!(rates(&mut recorder, 0), [1, 2]);
        assert_eq!(rates(&mut recorder, 26), [1], "it had gone when the window began");
        // The numbers of stores and stacks change.
        recorder.keep_from(Some(20), None);
        assert!(recorder.compact(HeldNumbers { stores: vec![0], ..HeldNumbers::default() }).is_some());
        assert_eq!(rates(&mut recorder, 20), [1, 2]);
        recorder.keep_from(Some(26), None);
        assert_eq!(rates(&mut recorder, 26), [1]);
        assert_eq!(rates(&mut recorder, 0), [1], "it is let go of");
        // Of one that has gone before anybody wants anything nothing is kept.
        let late = recorder.store("late");
        recorder.heap(late, heap(3));
        recorder.heap_has_gone(late, 10);
        recorder.flush(40);
        assert_eq!(rates(&mut recorder, 0), [1]);
    }

    #[test]
    fn a_recording_in_a_file_keeps_windows_as_well_if_it_is_to() {
        let mut recorder = Recorder::new(Vec::new(), Meta::default(), Journal::default());
        assert!(!recorder.keeps_windows());
        let mut kept = Recorder::new(Vec::new(), Meta::default(), Journal::default().with_windows());
        assert!(kept.keeps_windows());
        let whole = finish(kept, &mut |_: &Origin, _: &mut Vec<SourceFrame>| ());
        assert_eq!(whole.samples().count(), 0);
    }
}
