//! The thread that takes samples out of the ring and interns them, and looks where the guest waits.

use super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::pauses::Pauses;
use super::super::session::Shared;
use super::language::Entry;
use super::pace::MAX_PERIODS;
use super::record::{Header, Kind, Record};
use super::ring::Ring;
use super::slot::ThreadSlot;
use super::store_state::StoreState;
use super::waits::{WaitCounts, Waits};
use super::walk::{FrameWord, WalkEnd};
use crate::recording::{FrameId, LabelSetId, LanguageTruncation, Origin, Recorder, Sample, StackId, State, Truncation};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long samples may wait in the ring.
const MAX_INTERVAL: Duration = Duration::from_millis(50);
/// How often the ring is emptied at most.
const MIN_INTERVAL: Duration = Duration::from_micros(250);
/// The first interval: what comes at first, and how fast, is not known.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// Samples of one host call that wait for it to return. Those of a longer one do without the language's stack.
const MAX_AWAITING: usize = 1 << 18;

/// What the drain saw.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// Samples recorded.
    pub(super) sampled: u64,
    /// Samples that were taken out of the ring after this had failed.
    pub(super) unrecorded: u64,
    /// Time in the handler of each sample.
    pub(super) pauses: Pauses,
    /// Samples beyond one a signal or a look: of those that stand for more time than one sample may.
    pub(super) split: u64,
    /// The time that samples stand for.
    pub(super) weight_ns: u64,
    /// Looks from outside.
    pub(super) waits: WaitCounts,
    /// Why not all samples were recorded.
    pub(super) failure: Option<&'static str>,
}

/// Moves records from the ring into the recorder.
pub(super) struct Drain {
    thread: Arc<ThreadSlot>,
    store: Arc<StoreState>,
    /// Frames of each word seen, leaf first; empty for stubs.
    frames: HashMap<FrameWord, Vec<FrameId>>,
    /// Words seen under a language's stack, which may show none of them.
    under_language: HashSet<FrameWord>,
    awaiting: Vec<Awaiting>,
    leaf_first: Vec<FrameId>,
    waits: Waits,
    /// When the sample before was taken.
    last_ns: u64,
    /// Words taken out of the ring since the interval began.
    read_words: usize,
    drained: Drained,
}

impl Drain {
    /// Drains until `stop` is set, and then once more. Should this panic, sampling ends, and not the guest.
    pub(super) fn run(thread: Arc<ThreadSlot>, store: Arc<StoreState>, waits: Waits, stop: &AtomicBool) -> Drained {
        let mut drain = Self {
            thread,
            store,
            frames: HashMap::default(),
            under_language: HashSet::default(),
            awaiting: Vec::new(),
            leaf_first: Vec::new(),
            waits,
            last_ns: 0,
            read_words: 0,
            drained: Drained::default(),
        };
        if catch_unwind(AssertUnwindSafe(|| drain.drain_until(stop))).is_err() {
            drain.thread.stop();
            drain.drained.failure = Some("the thread that records samples failed");
            drain.drop_until(stop);
        }
        drain.drained.waits = drain.waits.counts;
        drain.drained
    }

    fn drain_until(&mut self, stop: &AtomicBool) {
        let thread = self.thread.clone();
        let mut interval = FIRST_INTERVAL;
        loop {
            let last = stop.load(Ordering::Acquire);
            let is_over = last || thread.is_over();
            let seen = if is_over { None } else { self.waits.look(&thread, &self.store) };
            let seen = seen.map(|(mark, words)| (mark, Box::from(words)));
            // Looks are not counted: they come as they do whatever the rate.
            let began_ns = own_cpu_ns();
            self.empty_ring(seen);
            thread.drain_ns.fetch_add(own_cpu_ns() - began_ns, Ordering::Relaxed);
            if last {
                return self.finish();
            }
            interval = (Ring::until_full(self.read_words, interval) / 4).clamp(MIN_INTERVAL, MAX_INTERVAL);
            self.read_words = 0;
            std::thread::park_timeout(if is_over { MAX_INTERVAL } else { interval.min(self.waits.until_due()) });
        }
    }

    /// Counts what is still in the ring, and what comes before the handler has stopped.
    fn drop_until(&mut self, stop: &AtomicBool) {
        self.drained.unrecorded += std::mem::take(&mut self.awaiting).len() as u64;
        loop {
            let last = stop.load(Ordering::Acquire);
            let mut count = |words: &[u64]| {
                let is_sample = matches!(Header::read(words).header.kind, Kind::Sample | Kind::AwaitsLanguage);
                self.drained.unrecorded += u64::from(is_sample);
            };
            // SAFETY: this is the ring's only consumer.
            while unsafe { self.thread.ring.pop(&mut count) } {}
            if last {
                return;
            }
            std::thread::park_timeout(MAX_INTERVAL);
        }
    }

    fn finish(&mut self) {
        let store = self.store.clone();
        self.give_up_awaiting(&mut store.shared.recorder());
    }

    /// Records what is in the ring, and after what was there at a mark another record.
    fn empty_ring(&mut self, seen: Option<(usize, Box<[u64]>)>) {
        let (thread, store) = (self.thread.clone(), self.store.clone());
        let shared = &store.shared;
        let mut recorder = shared.recorder();
        if let Some((mark, words)) = seen {
            // SAFETY: this is the ring's only consumer.
            while unsafe { thread.ring.pop_before(mark, |words| self.record(words, shared, &mut recorder)) } {}
            self.record(&words, shared, &mut recorder);
        }
        // SAFETY: this is the ring's only consumer.
        while unsafe { thread.ring.pop(|words| self.record(words, shared, &mut recorder)) } {}
        store.naming.exchange(&mut recorder);
        recorder.write_if_due(monotonic_ns().saturating_sub(thread.started_ns.load(Ordering::Relaxed)));
    }

    fn record(&mut self, words: &[u64], shared: &Shared, recorder: &mut Recorder) {
        self.read_words += words.len();
        let record = Header::read(words);
        let header = record.header;
        if header.kind == Kind::Language {
            self.complete(&record, shared, recorder);
            return;
        }
        if self.awaiting.first().is_some_and(|first| first.header.host_call != header.host_call) {
            self.give_up_awaiting(recorder);
        }
        let found = self.stack(&record, shared, recorder);
        if header.state == State::Guest || header.host_call == 0 {
            recorder.no_host_call();
        } else {
            let time_ns = header.time_ns.saturating_sub(self.thread.started_ns.load(Ordering::Relaxed));
            recorder.host_call(header.host_call, found.leaf, time_ns, header.state == State::Blocked);
        }
        match header.kind {
            Kind::Sample => self.sample(header, found, recorder),
            Kind::AwaitsLanguage => {
                if self.awaiting.len() >= MAX_AWAITING {
                    self.give_up_awaiting(recorder);
                }
                self.awaiting.push(Awaiting { header, found });
            }
            Kind::Sighting | Kind::Language => {}
        }
    }

    /// Gives the samples that await it the language's stack of the host call that has returned.
    fn complete(&mut self, record: &Record<'_>, shared: &Shared, recorder: &mut Recorder) {
        if self.awaiting.first().is_some_and(|first| first.header.host_call == record.header.host_call) {
            let found = self.stack(record, shared, recorder);
            for awaiting in std::mem::take(&mut self.awaiting) {
                self.sample(awaiting.header, found, recorder);
            }
        }
    }

    /// Records the samples that await a language's stack which is not to come.
    fn give_up_awaiting(&mut self, recorder: &mut Recorder) {
        for Awaiting { header, mut found } in std::mem::take(&mut self.awaiting) {
            found.truncation.get_or_insert(Truncation::Language(LanguageTruncation::InHostCode));
            self.sample(header, found, recorder);
        }
    }

    /// Interns the stack of a record: the language's where it has one, with the wasm frames that it refers to.
    fn stack(&mut self, record: &Record<'_>, shared: &Shared, recorder: &mut Recorder) -> Found {
        let mut truncation = match record.end {
            WalkEnd::Complete => None,
            WalkEnd::TooDeep => Some(Truncation::TooDeep),
            WalkEnd::BrokenChain => Some(Truncation::BrokenChain),
        };
        let mut leaf_first = std::mem::take(&mut self.leaf_first);
        leaf_first.clear();
        let mut labels = None;
        match &record.language {
            Some(language) if !language.entries.is_empty() => {
                if shared.options.keep_functions {
                    self.note_functions(record, shared, recorder);
                }
                let module = shared.language_module();
                truncation = language.truncation.map(Truncation::Language);
                labels = (!language.labels.is_empty()).then(|| recorder.labels(module, &language.labels));
                let host_call = record.frame(0).filter(|leaf| leaf.is_host_call());
                if let Some(leaf) = host_call {
                    // None if the call was the entry frame's own: of an import that the outermost function ended with.
                    leaf_first.extend(self.frames_of(leaf, shared, recorder).first());
                }
                for entry in &language.entries {
                    match *entry {
                        Entry::Key(key) => leaf_first.push(recorder.frame(Origin::Language { module, key })),
                        Entry::Elided => leaf_first.push(recorder.frame(Origin::Elided)),
                        Entry::Native(index) => {
                            let Some(word) = record.frame(index) else {
                                // The plugin said that a frame stands here that there is not.
                                truncation = Some(Truncation::Language(LanguageTruncation::Inconsistent));
                                continue;
                            };
                            // Of a frame that calls the host only the frame itself: the call has its place already.
                            let frames = self.frames_of(word, shared, recorder);
                            let skipped = usize::from(word.is_host_call() && index == 0);
                            leaf_first.extend(frames.iter().skip(skipped));
                        }
                    }
                }
            }
            language => {
                for index in 0..record.frames.len() {
                    let word = record.frame(index).expect("the index is within the frames");
                    leaf_first.extend(self.frames_of(word, shared, recorder));
                }
                let reason = language.as_ref().and_then(|language| language.truncation);
                truncation = truncation.or(reason.map(Truncation::Language));
            }
        }
        if truncation.is_some_and(loses_root) {
            leaf_first.push(recorder.frame(Origin::Truncated));
        }
        if leaf_first.is_empty() {
            leaf_first.push(recorder.frame(Origin::Host));
        }
        let stack = recorder.stack(leaf_first.iter().rev().copied()).expect("the stack has at least one frame");
        let leaf = leaf_first[0];
        self.leaf_first = leaf_first;
        Found { leaf, stack, labels, truncation }
    }

    /// Keeps in mind which functions ran, whatever the language shows of them.
    fn note_functions(&mut self, record: &Record<'_>, shared: &Shared, recorder: &mut Recorder) {
        for word in record.frames.iter().map(|&word| FrameWord(word)) {
            if self.under_language.insert(word)
                && let Some(Origin::Wasm { module, function, .. }) = shared.code.origin(word.native_pc())
            {
                recorder.saw_function(module, function);
            }
        }
    }

    fn sample(&mut self, header: Header, found: Found, recorder: &mut Recorder) {
        let time_ns = header.time_ns.saturating_sub(self.thread.started_ns.load(Ordering::Relaxed));
        // What stands for a long time is several samples, so that none weighs more than others may.
        let pieces = header.weight_ns.div_ceil(MAX_PERIODS * header.period_ns.max(1)).max(1);
        let piece_ns = header.weight_ns / pieces;
        for after in (0..pieces).rev() {
            if let Some(reason) = found.truncation {
                recorder.truncated(reason);
            }
            self.last_ns = time_ns.saturating_sub(after * piece_ns).max(self.last_ns);
            let sample = Sample {
                time_ns: self.last_ns,
                cpu_delta_ns: 0,
                period_ns: piece_ns,
                stack: found.stack,
                state: header.state,
                labels: found.labels,
            };
            recorder.sample(header.cpu_ns, sample);
        }
        self.drained.sampled += pieces;
        self.drained.split += pieces - 1;
        self.drained.weight_ns += header.weight_ns;
        if header.pause_ns > 0 {
            self.drained.pauses.add(header.pause_ns);
        }
    }

    fn frames_of(&mut self, word: FrameWord, shared: &Shared, recorder: &mut Recorder) -> &[FrameId] {
        self.frames.entry(word).or_insert_with(|| frames_of(word, shared, recorder))
    }
}

/// A stack in the recorder.
#[derive(Clone, Copy)]
struct Found {
    leaf: FrameId,
    stack: StackId,
    labels: Option<LabelSetId>,
    truncation: Option<Truncation>,
}

/// A sample taken in a host call, whose language stack follows when that returns.
struct Awaiting {
    header: Header,
    /// What it is without.
    found: Found,
}

/// Whether the missing frames are at the root end.
fn loses_root(truncation: Truncation) -> bool {
    match truncation {
        Truncation::TooDeep | Truncation::BrokenChain | Truncation::TooMany => true,
        // Without any frame of the language the wasm stack stands in, and that is whole.
        Truncation::Language(reason) => !matches!(
            reason,
            LanguageTruncation::NoStack
                | LanguageTruncation::InHostCode
                | LanguageTruncation::Panicked
                | LanguageTruncation::Busy
        ),
    }
}

/// The frames that a word stands for, leaf first: none for a stub, two where host code runs on top of wasm.
fn frames_of(word: FrameWord, shared: &Shared, recorder: &mut Recorder) -> Vec<FrameId> {
    let Some(origin) = shared.code.origin(word.native_pc()) else { return Vec::new() };
    let mut frames = Vec::new();
    if let (true, Origin::Wasm { module, function, code_offset }) = (word.is_host_call(), origin) {
        frames.push(recorder.frame(Origin::HostCall { module, function, code_offset }));
    }
    frames.push(recorder.frame(origin));
    frames
}
