//! The samples of each thread of each store on their way into the recording, in the order in which they were taken: one in a
//! host call may have to wait for its language's stack, and those behind it wait with it.

use super::super::reading::Header;
use super::super::running::StoreNumber;
use super::super::timing::MAX_PERIODS;
use std::collections::{HashMap, VecDeque};
use wlprof_recording::{
    FrameId, HeldNumbers, LabelSetId, LanguageTruncation, NewNumbers, Recorder, Sample, StackId, StoreId, TrackId,
    Truncation,
};

/// The most samples of a lane that may wait. Beyond that all of them are recorded without the language's stack.
const MAX_WAITING: usize = 1 << 18;

/// A sample's stack and labels, as interned.
#[derive(Clone, Copy)]
pub(in crate::sampler) struct SampleStack {
    pub(in crate::sampler) leaf: FrameId,
    pub(in crate::sampler) stack: StackId,
    pub(in crate::sampler) labels: Option<LabelSetId>,
    pub(in crate::sampler) truncation: Option<Truncation>,
}

/// A sample, and what is known of its stack.
struct WaitingSample {
    header: Header,
    found: SampleStack,
    /// It awaits the language's stack.
    awaits: bool,
}

/// The samples of a thread of a store.
struct Lane {
    track: TrackId,
    waiting: VecDeque<WaitingSample>,
    /// How many of them await the language's stack.
    awaiting: usize,
    /// Time of the last sample that was recorded.
    last_ns: u64,
}

/// What became of the samples.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sampler) struct LaneCounts {
    /// Samples recorded, extra ones included.
    pub(in crate::sampler) sampled: u64,
    /// Of those, the extra ones: a tick that stands for more time than one sample may becomes several.
    pub(in crate::sampler) split: u64,
    /// The time that all of them stand for.
    pub(in crate::sampler) weight_ns: u64,
}

/// The lanes, by store and the system's id of the thread.
#[derive(Default)]
pub(in crate::sampler) struct Lanes {
    lanes: HashMap<(StoreNumber, u32), Lane>,
    /// Nanoseconds of the monotonic clock when sampling began.
    started_ns: u64,
    pub(in crate::sampler) counts: LaneCounts,
}

impl Lanes {
    /// Sampling began then, on the monotonic clock.
    pub(in crate::sampler) fn started(&mut self, started_ns: u64) {
        self.started_ns = started_ns;
    }

    /// The recording's track for thread `tid` of `store`, which the recording calls `id`. Makes the lane if there is none.
    pub(in crate::sampler) fn track(
        &mut self,
        (store, id): (StoreNumber, StoreId),
        tid: u32,
        name: &str,
        recorder: &mut Recorder,
    ) -> TrackId {
        let new =
            || Lane { track: recorder.track(id, name, tid as u64), waiting: VecDeque::new(), awaiting: 0, last_ns: 0 };
        self.lanes.entry((store, tid)).or_insert_with(new).track
    }

    /// The entry of `header` is now in the host call that `header` says, or in none: its samples that await another host call's
    /// stack will not get it. Nor will those that were taken while no wasm was open get what tasks awaited: that comes before any is.
    pub(in crate::sampler) fn host_call_is(&mut self, header: &Header, recorder: &mut Recorder) {
        let is_over = |other: &Header| match other.entry == header.entry {
            true => other.host_call != header.host_call,
            false => other.entry == 0,
        };
        self.give_up_where(recorder, |store, other| store == header.store && is_over(other));
    }

    /// Takes a sample. With `awaits` it waits for its language's stack, and those behind it wait, too.
    pub(in crate::sampler) fn add(
        &mut self,
        tid: u32,
        header: Header,
        found: SampleStack,
        awaits: bool,
        recorder: &mut Recorder,
    ) {
        let Some(lane) = self.lanes.get_mut(&(header.store, tid)) else { return };
        if awaits && lane.waiting.len() >= MAX_WAITING {
            lane.give_up(|_| true);
        }
        lane.awaiting += usize::from(awaits);
        lane.waiting.push_back(WaitingSample { header, found, awaits });
        lane.record(self.started_ns, recorder, &mut self.counts);
    }

    /// Whether any sample awaits the stack that the record `language` brings.
    pub(in crate::sampler) fn awaits(&self, language: &Header) -> bool {
        self.of(language.store).any(|lane| lane.waiting.iter().any(|waiting| waiting.awaits_stack_of(language)))
    }

    /// The host call of `language` has returned: its samples get the stack `found`.
    pub(in crate::sampler) fn complete(&mut self, language: &Header, found: SampleStack, recorder: &mut Recorder) {
        for (_, lane) in
            self.lanes.iter_mut().filter(|((store, _), lane)| *store == language.store && lane.awaiting > 0)
        {
            for waiting in lane.waiting.iter_mut().filter(|waiting| waiting.awaits_stack_of(language)) {
                waiting.found = found;
                waiting.awaits = false;
                lane.awaiting -= 1;
            }
            lane.record(self.started_ns, recorder, &mut self.counts);
        }
    }

    /// The store has gone: records its waiting samples as they are, and drops its lanes.
    pub(in crate::sampler) fn store_has_gone(&mut self, store: StoreNumber, recorder: &mut Recorder) {
        self.give_up_where(recorder, |other, _| other == store);
        self.lanes.retain(|(other, _), _| *other != store);
    }

    /// The thread has ended: drops its lanes in which nothing waits.
    pub(in crate::sampler) fn thread_has_ended(&mut self, tid: u32) {
        self.lanes.retain(|(_, other), lane| *other != tid || !lane.waiting.is_empty());
    }

    /// What they hold of the recording.
    pub(in crate::sampler) fn held(&self) -> HeldNumbers {
        let found = || self.lanes.values().flat_map(|lane| lane.waiting.iter().map(|waiting| waiting.found));
        HeldNumbers {
            frames: found().map(|found| found.leaf).collect(),
            stacks: found().map(|found| found.stack).collect(),
            labels: found().filter_map(|found| found.labels).collect(),
            threads: self.lanes.values().map(|lane| lane.track.number()).collect(),
            stores: Vec::new(),
        }
    }

    /// Takes the recording's new numbers, in which all that is held is kept.
    pub(in crate::sampler) fn renumber(&mut self, numbers: &NewNumbers) {
        for lane in self.lanes.values_mut() {
            lane.track = lane.track.renumbered(&numbers.threads);
            for WaitingSample { found, .. } in &mut lane.waiting {
                found.leaf = numbers.frames.new_of(found.leaf);
                found.stack = numbers.stacks.new_of(found.stack);
                found.labels = found.labels.map(|set| numbers.labels.new_of(set));
            }
        }
    }

    /// Records the samples that were taken while no wasm was open and wait until some is, which may take long, as they are.
    pub(in crate::sampler) fn give_up_tasks(&mut self, recorder: &mut Recorder) {
        self.give_up_where(recorder, |_, header| header.entry == 0);
    }

    /// Sampling has ended: records all waiting samples as they are.
    pub(in crate::sampler) fn give_up(&mut self, recorder: &mut Recorder) {
        self.give_up_where(recorder, |_, _| true);
    }

    /// How many samples wait.
    pub(in crate::sampler) fn waiting(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    fn of(&self, store: StoreNumber) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(move |((other, _), lane)| *other == store && lane.awaiting > 0).map(|(_, lane)| lane)
    }

    fn give_up_where(&mut self, recorder: &mut Recorder, is_meant: impl Fn(StoreNumber, &Header) -> bool) {
        for ((store, _), lane) in self.lanes.iter_mut().filter(|(_, lane)| lane.awaiting > 0) {
            lane.give_up(|header| is_meant(*store, header));
            lane.record(self.started_ns, recorder, &mut self.counts);
        }
    }
}

impl WaitingSample {
    fn awaits_stack_of(&self, language: &Header) -> bool {
        self.awaits && self.header.host_call == language.host_call
    }
}

impl Lane {
    fn give_up(&mut self, is_meant: impl Fn(&Header) -> bool) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.awaits && is_meant(&waiting.header)) {
            waiting.found.truncation.get_or_insert(Truncation::Language(LanguageTruncation::InHostCode));
            waiting.awaits = false;
            self.awaiting -= 1;
        }
    }

    /// Records the samples that wait for nothing, up to the first that does.
    fn record(&mut self, started_ns: u64, recorder: &mut Recorder, counts: &mut LaneCounts) {
        while let Some(WaitingSample { header, found, .. }) = self.waiting.pop_front_if(|waiting| !waiting.awaits) {
            let time_ns = header.time_ns.saturating_sub(started_ns);
            // A long time becomes several samples, so that none weighs more than a sample may.
            let pieces = header.weight_ns.div_ceil(MAX_PERIODS * header.period_ns.max(1)).max(1);
            let (piece_ns, rest_ns) = (header.weight_ns / pieces, header.weight_ns % pieces);
            for after in (0..pieces).rev() {
                if let Some(reason) = found.truncation {
                    recorder.truncated(reason);
                }
                self.last_ns = time_ns.saturating_sub(after * piece_ns).max(self.last_ns);
                let sample = Sample {
                    time_ns: self.last_ns,
                    cpu_delta_ns: if after == pieces - 1 { header.used_ns } else { 0 },
                    period_ns: piece_ns + if after == 0 { rest_ns } else { 0 },
                    stack: found.stack,
                    state: header.state,
                    labels: found.labels,
                };
                recorder.sample(self.track, header.cpu_ns, sample);
            }
            counts.sampled += pieces;
            counts.split += pieces - 1;
            counts.weight_ns += header.weight_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::reading::Kind;
    use super::*;
    use wlprof_recording::{Journal, Meta, Origin, State};

    const STORE: StoreNumber = 7;
    const TID: u32 = 1;

    fn header(kind: Kind, time_ns: u64, entry: u64, host_call: u64) -> Header {
        Header {
            time_ns,
            cpu_ns: 0,
            weight_ns: 1,
            used_ns: 1,
            period_ns: 1,
            store: STORE,
            entry,
            host_call,
            pause_ns: 0,
            memory_bytes: 0,
            state: State::Host,
            kind,
        }
    }

    /// Lanes with one, and what a sample without frames has been found to be.
    fn one_lane() -> (Lanes, Recorder, SampleStack) {
        let mut recorder = Recorder::new(Vec::new(), Meta::default(), Journal::default());
        let store = recorder.store("guest");
        let leaf = recorder.frame(Origin::Host);
        let stack = recorder.stack(std::iter::once(leaf)).unwrap();
        let mut lanes = Lanes::default();
        lanes.track((STORE, store), TID, "guest", &mut recorder);
        (lanes, recorder, SampleStack { leaf, stack, labels: None, truncation: None })
    }

    /// As the drain does it.
    fn take(lanes: &mut Lanes, header: Header, found: SampleStack, recorder: &mut Recorder) {
        lanes.host_call_is(&header, recorder);
        lanes.add(TID, header, found, header.kind == Kind::AwaitsTasks, recorder);
    }

    #[test]
    fn what_tasks_await_is_waited_for_until_wasm_is_open() {
        let (mut lanes, mut recorder, found) = one_lane();
        take(&mut lanes, header(Kind::AwaitsTasks, 1, 0, 0), found, &mut recorder);
        take(&mut lanes, header(Kind::AwaitsTasks, 2, 0, 0), found, &mut recorder);
        assert_eq!((lanes.waiting(), lanes.counts.sampled), (2, 0));
        let told = header(Kind::Language, 3, 0, 0);
        assert!(lanes.awaits(&told));
        lanes.complete(&told, found, &mut recorder);
        assert_eq!((lanes.waiting(), lanes.counts.sampled), (0, 2));
        // What should have been told of this one was told before, or there was no room for it.
        take(&mut lanes, header(Kind::AwaitsTasks, 4, 0, 0), found, &mut recorder);
        take(&mut lanes, header(Kind::Sample, 5, 1, 0), found, &mut recorder);
        assert_eq!((lanes.waiting(), lanes.counts.sampled), (0, 4));
    }
}
