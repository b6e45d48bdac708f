//! Lets go of what nobody can see any more: a program that is profiled for weeks makes stacks, labels and stores without end, and
//! its samples are kept for minutes.

use super::table::{LabelKeys, Table};
use super::{MAX_FRAMES, MAX_LABEL_SETS, Recorder, SMALL, Track};
use crate::file::RawRecording;
use crate::journal::End;
use crate::unused::{HeldNumbers, NewNumbers};
use crate::{Clock, WindowOf};
use std::collections::HashSet;

/// Size of tables in bytes up to which nothing is let go of. Beyond it they are compacted whenever they have doubled.
pub(super) const MIN_BYTES: usize = if cfg!(test) { SMALL.compacted_bytes } else { 1 << 20 };

/// Nanoseconds after which full tables are compacted again.
const FULL_FOR_NS: u64 = 60_000_000_000;

impl Recorder {
    /// Whether [`Recorder::compact`] is worth its time: it reads and writes all that is kept.
    pub fn is_overgrown(&mut self) -> bool {
        let is_full = self.stacks.len() >= self.limits.stacks
            || self.frames.len() >= MAX_FRAMES
            || self.labels.len() >= MAX_LABEL_SETS;
        // Full tables grow no more. What was in use then may have become old.
        let is_old = self.last_time_ns.saturating_sub(self.compacted_at_ns) > FULL_FOR_NS;
        let most = if is_full && is_old { 0 } else { (2 * self.compacted_bytes).max(self.limits.compacted_bytes) };
        self.journal.only_recent().is_some_and(|recent| recent.table_bytes() > most)
    }

    /// When tables were last compacted, in nanoseconds since sampling began.
    pub fn compacted_at_ns(&self) -> u64 {
        self.compacted_at_ns
    }

    /// Lets go of frames, stacks, labels, threads and stores that are in no sample which is kept, and are not `held`. Gives the new
    /// numbers of the others; `None`, and nothing has changed, if all of the run is kept, or what is new cannot be written.
    pub fn compact(&mut self, mut held: HeldNumbers) -> Option<NewNumbers> {
        self.journal.only_recent()?;
        let going_on: HashSet<u32> = held.threads.iter().copied().collect();
        let ended = (0..).zip(&mut self.tracks).filter(|(number, _)| !going_on.contains(number));
        ended.for_each(|(_, track)| track.no_host_call());
        if !self.write() {
            return None;
        }
        let recent = self.journal.only_recent()?;
        // Their blocks would be put together with others.
        if recent.has_late() {
            return None;
        }
        let everything = WindowOf { from_ns: 0, until_ns: u64::MAX, clock: Clock::Wall, follows: None, until: None };
        let bytes = recent.window(&everything, |_, _| End::default()).ok()?;
        let mut raw = RawRecording::read(&mut &bytes[..]).ok()?;
        // Blocks have gone that are old as a whole; what is written now is put together in larger ones.
        raw.drop_before(recent.first_ns().unwrap_or(u64::MAX));
        held.frames.extend(self.tracks.iter().filter_map(Track::current_call));
        let numbers = raw.keep_used(&held);
        let mut labels = self.labels.in_order();
        numbers.labels.retain(&mut labels);
        let spelled = numbers.labels.kept_of_first(self.own_names.spelled());
        let kept = labels.iter().map(LabelKeys::in_block).collect();
        let mut compacted = recent.with_the_same_time(raw.blocks(kept, spelled)).ok()?;
        let gone: Vec<_> =
            recent.gone_heaps().filter_map(|(store, ns)| Some((numbers.stores.of(store)?, ns))).collect();
        compacted.heaps_have_gone(&gone);
        (self.compacted_bytes, self.compacted_at_ns) = (compacted.table_bytes(), self.last_time_ns);
        *recent = compacted;

        let sets: Vec<_> = labels.iter().map(LabelKeys::as_set).collect();
        self.own_names.renumber(&numbers.frames, spelled, &sets);
        self.store_count = raw.stores().len() as u32;
        let (frames, stacks) = raw.into_frames_and_stacks();
        (self.frames, self.stacks, self.labels) = (Table::of(frames), Table::of(stacks), Table::of(labels));
        numbers.threads.retain(&mut self.tracks);
        self.tracks.iter_mut().for_each(|track| track.renumber(&numbers.frames));
        let tids: HashSet<u64> = self.tracks.iter().map(|track| track.tid).collect();
        self.cpu_ns.retain(|tid, _| tids.contains(tid));
        let memories = std::mem::take(&mut self.memories).into_iter();
        self.memories = memories.filter_map(|(store, sizes)| Some((numbers.stores.of(store)?, sizes))).collect();
        // Where they could be written they are in no need of new numbers.
        self.heaps.clear();
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_STACKS;
    use super::*;
    use crate::{Journal, Meta, Origin, Sample, TickCounts};
    use crate::{Module, Recording, State, TrackId, file};
    use wlprof_plugin::{Label, SourceFrame};

    fn recorder() -> Recorder {
        let modules = vec![Module { name: "m".to_owned(), build_id: String::new() }];
        Recorder::new(modules, Meta::default(), Journal::of_windows())
    }

    /// A sample at `time_ns` of a stack of two frames, one of wasm and one of a language, which has a name.
    fn add(recorder: &mut Recorder, track: TrackId, time_ns: u64) {
        let key = time_ns / 10;
        let root = recorder.frame(Origin::Wasm { module: 0, function: key as u32, code_offset: 0 });
        let leaf = recorder.frame(Origin::Language { module: 0, key });
        let named = SourceFrame { function: format!("f{key}"), ..SourceFrame::default() };
        recorder.name_frame(0, key, vec![named]);
        let labels = recorder.labels(0, &[key]);
        recorder.name_labels(0, key, vec![Label { name: "key".to_owned(), value: key.to_string() }]);
        let stack = recorder.stack([root, leaf]).unwrap();
        let (state, period_ns) = (State::Guest, 7);
        let sample = Sample { time_ns, cpu_delta_ns: 7, period_ns, stack, state, labels: Some(labels) };
        recorder.sample(track, time_ns, sample);
        recorder.host_call(track, key, leaf, time_ns, false);
        recorder.flush(time_ns);
    }

    fn window(recorder: &mut Recorder, from_ns: u64) -> Recording {
        let window = WindowOf { from_ns, until_ns: u64::MAX, clock: Clock::Wall, follows: None, until: None };
        let end = |_, _| (Meta::default(), TickCounts::default());
        file::read(&recorder.window(&window, end, Vec::new()).unwrap()).unwrap()
    }

    /// All that is said of the samples, host calls and memories of those stores that have samples.
    fn told(recording: &Recording) -> Vec<String> {
        let name = |frame: u32| &recording.functions[recording.frames[frame as usize].lines[0].function as usize].name;
        let mut told = Vec::new();
        for thread in recording.threads.iter().filter(|thread| !thread.samples.is_empty()) {
            let store = &recording.stores[thread.store as usize];
            told.push(format!("{} {} {:?}", store.name, thread.name, store.memory));
            for sample in thread.samples.iter() {
                let frames: Vec<_> = recording.frame_ids(sample.stack).map(name).collect();
                let labels = sample.labels.map(|set| &recording.label_sets[set as usize]);
                told.push(format!("{} {} {frames:?} {labels:?}", sample.time_ns, sample.period_ns));
            }
            let calls = thread.host_calls.iter();
            told.extend(calls.map(|call| format!("{} {} {}", name(call.frame), call.start_ns, call.end_ns)));
        }
        told
    }

    #[test]
    fn what_is_kept_is_told_as_before() {
        let mut recorder = recorder();
        recorder.keep_from(Some(0), None);
        let mut last = None;
        for number in 0..100_u64 {
            let store = recorder.store(&format!("store {number}"));
            let track = recorder.track(store, "thread", number);
            recorder.memory(store, number * 100, (number + 1) << 16);
            // Of most steps the host call goes on.
            (0..20).for_each(|step| add(&mut recorder, track, number * 100 + 5 * step));
            if number < 99 {
                recorder.no_host_call(track);
                recorder.memory(store, number * 100 + 99, 0);
            }
            last = Some((store, track));
        }
        let (store, track) = last.unwrap();
        recorder.keep_from(Some(9_000), None);
        let before = window(&mut recorder, 9_000);
        let bytes = recorder.journal.only_recent().unwrap().table_bytes();
        let held = HeldNumbers { stores: vec![store], threads: vec![track.number()], ..HeldNumbers::default() };
        let numbers = recorder.compact(held).unwrap();
        let after = window(&mut recorder, 9_000);
        let differs = told(&before).into_iter().zip(told(&after)).find(|(before, after)| before != after);
        assert!(differs.is_none() && told(&before).len() == told(&after).len(), "{differs:?}");
        assert!((before.stores.len(), before.threads.len()) == (100, 100) && after.threads.len() == 10);
        assert!(after.stores.len() <= 11 && after.stacks.len() < before.stacks.len() / 9, "{:?}", after.stores);
        assert!(recorder.compacted_bytes < bytes / 5, "{} of {bytes}", recorder.compacted_bytes);

        // It goes on, with what is known already and with what is new.
        let (store, track) = (numbers.stores.of(store).unwrap(), track.renumbered(&numbers.threads));
        recorder.memory(store, 10_000, 7 << 16);
        (0..4).for_each(|step| add(&mut recorder, track, 9_990 + 5 * step));
        let going_on = window(&mut recorder, 9_000);
        let thread = &going_on.threads[track.number() as usize];
        assert_eq!((thread.samples.len(), thread.tid), (24, 99));
        let leaf_of_last = thread.samples.iter().last().map(|sample| going_on.frame_ids(sample.stack).next().unwrap());
        let line = going_on.frames[leaf_of_last.unwrap() as usize].lines[0];
        assert_eq!(going_on.functions[line.function as usize].name, "f1000");
        assert_eq!(going_on.stores[store as usize].memory.last().unwrap().bytes, 7 << 16);
        let labels = thread.samples.iter().last().unwrap().labels.unwrap();
        assert_eq!(going_on.label_sets[labels as usize], [("key".to_owned(), "1000".to_owned())]);
    }

    #[test]
    fn tables_do_not_grow_with_what_has_gone() {
        let mut recorder = recorder();
        let mut largest = 0;
        for number in 0..40_000_u64 {
            recorder.keep_from(Some((number * 100).saturating_sub(2_000)), None);
            let store = recorder.store("store");
            let track = recorder.track(store, "thread", number);
            add(&mut recorder, track, number * 100);
            largest = largest.max(recorder.journal.only_recent().unwrap().table_bytes());
            if recorder.is_overgrown() {
                recorder.compact(HeldNumbers::default()).unwrap();
                assert!(recorder.compacted_bytes < MIN_BYTES / 4, "{}", recorder.compacted_bytes);
            }
        }
        assert!(largest > MIN_BYTES && largest < MIN_BYTES + MIN_BYTES / 10, "{largest}");
        assert!(recorder.own_names.spelled() < 40_000 && recorder.cpu_ns.len() < 40_000, "{recorder:?}");
    }

    #[test]
    fn there_is_room_again_when_what_filled_it_has_become_old() {
        let mut recorder = recorder();
        recorder.keep_from(Some(0), None);
        let store = recorder.store("store");
        let track = recorder.track(store, "thread", 1);
        let mut frame = |key| recorder.frame(Origin::Language { module: 0, key });
        let frames: Vec<_> = (0..=MAX_STACKS as u64).map(&mut frame).collect();
        let kept = frames.into_iter().take_while(|frame| recorder.stack_on(None, *frame).is_some()).count();
        assert_eq!(kept, MAX_STACKS);
        recorder.flush(FULL_FOR_NS);
        recorder.compacted_bytes = recorder.journal.only_recent().unwrap().table_bytes();
        assert!(!recorder.is_overgrown(), "it was looked at just now");
        recorder.flush(FULL_FOR_NS + 1);
        assert!(recorder.is_overgrown());
        let numbers =
            recorder.compact(HeldNumbers { threads: vec![track.number()], ..HeldNumbers::default() }).unwrap();
        assert!(!recorder.is_overgrown() && recorder.stacks.len() == 0);
        add(&mut recorder, track.renumbered(&numbers.threads), FULL_FOR_NS + 2);
        assert!(recorder.truncated.is_empty());
    }

    #[test]
    fn a_recording_of_the_whole_run_is_left_alone() {
        let mut recorder = Recorder::new(Vec::new(), Meta::default(), Journal::default().with_windows());
        recorder.compacted_bytes = 0;
        assert!(!recorder.is_overgrown() && recorder.compact(HeldNumbers::default()).is_none());
    }
}
