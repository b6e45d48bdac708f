//! Samples of a process as they are recorded: frames and stacks interned, what is cut counted.

use crate::reading::FoundStack;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;
use wlprof_recording::{
    Clock, FrameId, LabelSetId, LanguageTruncation, Module, ModuleId, NewNumbers, Origin, Recorder, Sample, StackId,
    State, StoreId, TickCounts, TrackId, Truncation,
};
use wlprof_walk::{CodeMap, FrameWord, LanguageEntry, LanguageStack, WalkTruncation};

/// Names and values.
pub type Labels = Vec<(String, String)>;

/// Returns what the samples of a thread are to carry, by its number; `None` if that is nothing. The thread stands still, so this must not wait
/// for anything that the thread may hold.
pub type ThreadLabels = fn(i32) -> Option<Arc<Labels>>;

/// Where samples go.
pub(crate) struct Samples {
    pub(crate) recorder: Recorder,
    pub(crate) ticks: TickCounts,
    /// CPU time that samples stand for.
    pub(crate) cpu_ns: u64,
    clock: Clock,
    /// The modules that frames are of, by their ids.
    pub(crate) modules: Vec<Arc<ModuleImage>>,
    /// By the module at the root of stacks, and by their labels.
    stores: HashMap<StoreOf, StoreId>,
    tracks: HashMap<(i32, StoreId), TrackId>,
    pub(crate) labels: Option<ThreadLabels>,
}

type StoreOf = (ModuleId, Option<Arc<Labels>>);

/// A sample without the time that it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UntimedSample {
    track: TrackId,
    stack: StackId,
    labels: Option<LabelSetId>,
    state: State,
    time_ns: u64,
    /// CPU time of its thread at the sample, and since the look before it.
    cpu_ns: u64,
    cpu_delta_ns: u64,
}

/// When a stack was found, and what its thread did.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    pub(crate) tid: i32,
    /// What its samples carry.
    pub(crate) labels: Option<Arc<Labels>>,
    pub(crate) is_blocked: bool,
    /// Since sampling began.
    pub(crate) time_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) cpu_delta_ns: u64,
}

/// A wasm frame, interned.
#[derive(Clone, Copy, Default)]
struct Native {
    frame: Option<FrameId>,
    host_call: Option<FrameId>,
    module: Option<ModuleId>,
}

impl Samples {
    pub(crate) fn new(recorder: Recorder, clock: Clock) -> Self {
        Self {
            recorder,
            ticks: TickCounts::default(),
            cpu_ns: 0,
            clock,
            modules: Vec::new(),
            stores: HashMap::new(),
            tracks: HashMap::new(),
            labels: None,
        }
    }

    /// Adds a module. Frames are of it by the id that it gets.
    pub(crate) fn module(&mut self, module: &Arc<ModuleImage>) -> ModuleId {
        let id = self.recorder.module(Module { name: module.name().to_owned(), build_id: module.build_id() });
        match self.modules.get_mut(id as usize) {
            Some(forgotten) => *forgotten = module.clone(),
            None => self.modules.push(module.clone()),
        }
        id
    }

    /// Only what has a new number has been kept.
    pub(crate) fn renumber(&mut self, numbers: &NewNumbers) {
        let stores = std::mem::take(&mut self.stores).into_iter();
        self.stores = stores.filter_map(|(of, store)| Some((of, numbers.stores.of(store)?))).collect();
        let tracks = std::mem::take(&mut self.tracks).into_iter();
        let renumbered = |((tid, store), track): ((i32, StoreId), TrackId)| {
            numbers.threads.of(track.number())?;
            Some(((tid, numbers.stores.of(store)?), track.renumbered(&numbers.threads)))
        };
        self.tracks = tracks.filter_map(renumbered).collect();
    }

    /// Others will have the ids of these modules.
    pub(crate) fn forget_modules(&mut self, modules: &BTreeSet<ModuleId>) {
        self.stores.retain(|(module, _), _| !modules.contains(module));
    }

    /// Appends a sample that stands for so much time.
    pub(crate) fn add(&mut self, (sample, period_ns): (UntimedSample, u64)) {
        let UntimedSample { track, stack, labels, state, time_ns, cpu_ns, cpu_delta_ns } = sample;
        let cpu_delta_ns = if self.clock == Clock::Cpu { period_ns } else { cpu_delta_ns };
        let sample = Sample { time_ns, period_ns, cpu_delta_ns, stack, state, labels };
        self.cpu_ns += cpu_delta_ns;
        self.recorder.sample(track, cpu_ns, sample);
    }

    /// Interns what was found on a stack; `None` if that is nothing.
    pub(crate) fn intern(&mut self, code: &CodeMap, found: &FoundStack, seen: Sighting) -> Option<UntimedSample> {
        let mut frames: Vec<FrameId> = Vec::with_capacity(found.words.len() + 1);
        let natives: Vec<Native> = found.words.iter().map(|word| self.native(code, FrameWord(*word))).collect();
        let root = natives.iter().rev().find_map(|native| native.module);
        // From the leaf on.
        extend_with(&mut frames, &mut self.recorder, found.host.called_by(0));
        frames.extend(natives.first().and_then(|leaf| leaf.host_call));
        let own = self.own_stack(found);
        let labels = own.as_ref().filter(|own| !own.labels.is_empty());
        let labels = labels.map(|own| self.recorder.labels(own.module, own.labels));
        match own.filter(|own| !own.is_empty()) {
            Some(own) => {
                for entry in own.entries() {
                    match entry {
                        LanguageEntry::Key(key) => {
                            frames.push(self.recorder.frame(Origin::Language { module: own.module, key }));
                        }
                        LanguageEntry::Elided => frames.push(self.recorder.frame(Origin::Elided)),
                        LanguageEntry::Native(index) => self.push_native(&natives, found, index, &mut frames),
                    }
                }
            }
            None => (0..natives.len()).for_each(|index| self.push_native(&natives, found, index, &mut frames)),
        }
        extend_with(&mut frames, &mut self.recorder, found.host.root());
        if let Err(truncated) = found.walked.end {
            let reason = match truncated {
                WalkTruncation::Elided | WalkTruncation::TooManyEntries => Truncation::TooDeep,
                WalkTruncation::BrokenChain => Truncation::BrokenChain,
            };
            self.recorder.truncated(reason);
            frames.extend((truncated != WalkTruncation::Elided).then(|| self.recorder.frame(Origin::Truncated)));
        }
        let stack = self.recorder.stack(frames.into_iter().rev())?;
        let Sighting { tid, labels: of_thread, is_blocked, time_ns, cpu_ns, cpu_delta_ns } = seen;
        let state = match (is_blocked, found.walked.is_in_wasm) {
            (true, _) => State::Blocked,
            (false, true) => State::Guest,
            (false, false) => State::Host,
        };
        let track = self.track((root.unwrap_or(0), of_thread), tid);
        Some(UntimedSample { track, stack, labels, state, time_ns, cpu_ns, cpu_delta_ns })
    }

    /// The language's own stack, if it could be read. What it lacks is counted.
    fn own_stack<'f>(&mut self, found: &'f FoundStack) -> Option<LanguageStack<'f>> {
        let Some(words) = found.language.as_ref()? else {
            let reason =
                if found.walked.is_in_wasm { LanguageTruncation::Inconsistent } else { LanguageTruncation::InHostCode };
            self.recorder.truncated(Truncation::Language(reason));
            return None;
        };
        let own = LanguageStack::read(words);
        own.truncation.into_iter().for_each(|reason| self.recorder.truncated(Truncation::Language(reason)));
        Some(own)
    }

    fn native(&mut self, code: &CodeMap, word: FrameWord) -> Native {
        if word == FrameWord::ELIDED {
            return Native { frame: Some(self.recorder.frame(Origin::Elided)), ..Native::default() };
        }
        let Some(origin) = code.origin(word.native_pc()) else { return Native::default() };
        let host_call = match origin {
            Origin::Wasm { module, function, code_offset } if word.is_host_call() => {
                Some(self.recorder.frame(Origin::HostCall { module, function, code_offset }))
            }
            _ => None,
        };
        Native { frame: Some(self.recorder.frame(origin)), host_call, module: origin.module() }
    }

    /// Adds a wasm frame, leaf first, with the host code that it calls. The leaf's stands there already.
    fn push_native(&mut self, natives: &[Native], found: &FoundStack, index: usize, frames: &mut Vec<FrameId>) {
        if let Some(native) = natives.get(index) {
            if index > 0 {
                extend_with(frames, &mut self.recorder, found.host.called_by(index));
                frames.extend(native.host_call);
            }
            frames.extend(native.frame);
        }
    }

    /// The track of samples of a thread: there is a store for each module at the root and each set of labels.
    fn track(&mut self, of: StoreOf, tid: i32) -> TrackId {
        let Self { recorder, modules, stores, tracks, .. } = self;
        let store = *stores.entry(of).or_insert_with_key(|(module, labels)| {
            let store = recorder.store(modules.get(*module as usize).map_or("", |module| module.name()));
            labels.iter().for_each(|labels| recorder.label_store(store, labels));
            store
        });
        *tracks.entry((tid, store)).or_insert_with(|| recorder.track(store, "", tid as u64))
    }
}

fn extend_with(frames: &mut Vec<FrameId>, recorder: &mut Recorder, host: &[Origin]) {
    frames.extend(host.iter().map(|origin| recorder.frame(*origin)));
}
