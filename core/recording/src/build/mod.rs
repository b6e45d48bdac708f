//! Builds a recording while the guest runs: interns frames and stacks, and writes all that is new into the journal.

mod compact;
mod table;

use super::journal::{Block, End, Journal, Progress};
use super::memory::MemorySizes;
use super::own_names::{LanguageNames, NameSource, OwnNames};
use super::recent::WindowOf;
use super::track::{Track, TrackId};
use super::{
    Category, FrameId, Function, FunctionId, Heap, LabelSetId, Line, Meta, Module, ModuleId, Origin, Sample, Stack,
    StackId, StoreId, TickCounts, Truncation,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use table::{LabelKeys, Table};
use wlprof_plugin::{Label, SourceFrame};

/// Distinct frames that are kept; what comes later is shown as [`Origin::Truncated`]. A guest may make code without end.
const MAX_FRAMES: usize = 1 << 20;
/// Distinct stacks that are kept. A guest that is never twice as deep in the same recursion makes thousands a sample.
const MAX_STACKS: usize = if cfg!(test) { SMALL.stacks } else { 1 << 21 };
/// Distinct sets of labels that are kept; samples have none of those that come later. Go's are as many as goroutines.
const MAX_LABEL_SETS: usize = 1 << 20;
/// Bytes of samples from which on they are written.
const MANY_BYTES: usize = 1 << 15;
/// Nanoseconds after which all that is new is written: what is lost if the process is killed.
const WRITE_AFTER_NS: u64 = 500_000_000;

/// How much the tables hold.
#[derive(Debug)]
struct Limits {
    /// Distinct stacks.
    stacks: usize,
    /// Bytes from which on tables are compacted.
    compacted_bytes: usize,
}

/// Limits that tests reach.
const SMALL: Limits = Limits { stacks: 1 << 16, compacted_bytes: 1 << 13 };

impl Default for Limits {
    fn default() -> Self {
        Self { stacks: MAX_STACKS, compacted_bytes: compact::MIN_BYTES }
    }
}

/// A recording in the making: frames are origins still, without symbols.
#[derive(Debug, Default)]
pub struct Recorder {
    journal: Journal,
    frames: Table<Origin>,
    stacks: Table<Stack>,
    labels: Table<LabelKeys>,
    module_count: u32,
    /// Ids of modules that were forgotten.
    vacant_modules: Vec<ModuleId>,
    store_count: u32,
    tracks: Vec<Track>,
    /// Of the stores that have memory.
    memories: BTreeMap<StoreId, MemorySizes>,
    /// What stores' guests have allocated, where that is not written.
    heaps: BTreeMap<StoreId, Heap>,
    /// Stores of which no more heap will come, and since when.
    heaps_gone: Vec<(StoreId, u64)>,
    /// CPU clock of each operating system's thread at its first and its last sample.
    cpu_ns: HashMap<u64, (u64, u64)>,
    last_time_ns: u64,
    written_ns: u64,
    truncated: BTreeMap<Truncation, u64>,
    seen: BTreeSet<(ModuleId, u32)>,
    own_names: OwnNames,
    count: u64,
    sampled_ns: u64,
    unrecorded: u64,
    /// Size of the tables when they were last compacted, in bytes.
    compacted_bytes: usize,
    /// When that was.
    compacted_at_ns: u64,
    limits: Limits,
}

impl Recorder {
    /// Lowers the limits of the tables to some that tests reach.
    pub fn set_small_limits(&mut self) {
        self.limits = SMALL;
    }

    /// A recorder for frames of `modules`, which writes into `journal`. `meta` is what is known before the guest begins.
    pub fn new(modules: Vec<Module>, meta: Meta, mut journal: Journal) -> Self {
        let module_count = modules.len() as u32;
        let architecture = meta.architecture.clone();
        journal.write_basis(&Block::Start(meta, modules));
        journal.write_basis(&Block::Architecture(architecture));
        Self { journal, module_count, ..Self::default() }
    }

    /// Adds a module that was loaded later, for the frames that come from here on. It may have the id of one that was
    /// forgotten.
    pub fn module(&mut self, module: Module) -> ModuleId {
        if let Some(id) = self.vacant_modules.pop() {
            self.journal.write_basis(&Block::ModuleInPlaceOf(id, module));
            return id;
        }
        self.journal.write_basis(&Block::Module(module));
        self.module_count += 1;
        self.module_count - 1
    }

    /// Forgets those of these modules of which no frame and no label is left, and takes them out of `modules`. Nothing more is to come of
    /// them.
    pub fn forget_modules(&mut self, modules: &mut BTreeSet<ModuleId>) -> BTreeSet<ModuleId> {
        let of_frames = self.frames.items().filter_map(|origin| origin.module());
        let needed: HashSet<ModuleId> = of_frames.chain(self.labels.items().map(|labels| labels.as_set().0)).collect();
        let (still_needed, forgotten) = std::mem::take(modules).into_iter().partition(|module| needed.contains(module));
        *modules = still_needed;
        self.seen.retain(|(module, _)| !forgotten.contains(module));
        self.own_names.forget_modules(&forgotten);
        self.vacant_modules.extend(&forgotten);
        forgotten
    }

    /// Adds a store.
    pub fn store(&mut self, name: &str) -> StoreId {
        self.journal.write_basis(&Block::Store { name: name.to_owned() });
        self.store_count += 1;
        self.store_count - 1
    }

    /// Says what the embedder says of a store: names and values.
    pub fn label_store(&mut self, store: StoreId, labels: &[(String, String)]) {
        if !labels.is_empty() {
            self.journal.write_basis(&Block::StoreLabels(store, labels.to_vec()));
        }
    }

    /// Adds a thread that runs the guest of a store: samples are of one. `tid` is the operating system's id of it.
    pub fn track(&mut self, store: StoreId, name: &str, tid: u64) -> TrackId {
        self.journal.write_basis(&Block::Thread { name: name.to_owned(), tid, store });
        self.tracks.push(Track::new(tid));
        TrackId(self.tracks.len() as u32 - 1)
    }

    /// The id of a frame.
    pub fn frame(&mut self, origin: Origin) -> FrameId {
        let is_known = self.frames.len() < MAX_FRAMES || self.frames.holds(&origin);
        let before = self.frames.len();
        let id = self.frames.id(if is_known { origin } else { Origin::Truncated });
        if let Origin::Language { module, key } = origin
            && is_known
            && self.frames.len() > before
        {
            self.own_names.met(NameSource::Frame(module, key));
        }
        id
    }

    /// Notes that a wasm function was on a stack, for those that are in no frame.
    pub fn saw_function(&mut self, module: ModuleId, function: u32) {
        self.seen.insert((module, function));
    }

    /// The wasm functions that were on a stack, by module and index.
    pub fn functions_seen(&self) -> BTreeSet<(ModuleId, u32)> {
        let framed = self.frames.items().filter_map(|origin| match *origin {
            Origin::Wasm { module, function, .. } => Some((module, function)),
            _ => None,
        });
        framed.chain(self.seen.iter().copied()).collect()
    }

    /// The id of the stack with these frames, root first. `None` without frames.
    pub fn stack(&mut self, root_first: impl IntoIterator<Item = FrameId>) -> Option<StackId> {
        let mut parent = None;
        let mut frames = root_first.into_iter();
        while let Some(frame) = frames.next() {
            let Some(stack) = self.stack_on(parent, frame) else {
                let leaf = frames.last().unwrap_or(frame);
                return Some(self.leaf_alone(leaf));
            };
            parent = Some(stack);
        }
        parent
    }

    /// The id of the stack in which `parent` has called `frame`. `None` if there is no room for more:
    /// [`Recorder::leaf_alone`].
    pub fn stack_on(&mut self, parent: Option<StackId>, frame: FrameId) -> Option<StackId> {
        let stack = Stack { parent, frame };
        let is_known = self.stacks.len() < self.limits.stacks || self.stacks.holds(&stack);
        is_known.then(|| self.stacks.id(stack))
    }

    /// The stack of a frame whose callers there is no room for.
    pub fn leaf_alone(&mut self, leaf: FrameId) -> StackId {
        self.truncated(Truncation::TooMany);
        let root = self.frames.id(Origin::Truncated);
        let parent = self.stacks.id(Stack { parent: None, frame: root });
        self.stacks.id(Stack { parent: Some(parent), frame: leaf })
    }

    /// The id of the labels that the plugin of `module` calls by `keys`, all together. There are no more than a stack has.
    pub fn labels(&mut self, module: ModuleId, keys: &[u64]) -> LabelSetId {
        let set = LabelKeys::new(module, keys);
        let before = self.labels.len();
        let is_known = before < MAX_LABEL_SETS || self.labels.holds(&set);
        if !is_known {
            return self.labels.id(LabelKeys::new(module, &[]));
        }
        let id = self.labels.id(set);
        if self.labels.len() > before {
            keys.iter().for_each(|&key| self.own_names.met(NameSource::Labels(module, key)));
        }
        id
    }

    /// What has been met since this was last asked that only a language can name. Whoever can ask it gives the answers to
    /// [`Self::name_frame`] and [`Self::name_labels`]; what is not answered is asked when the recording is closed.
    pub fn take_unnamed(&mut self) -> Vec<NameSource> {
        self.own_names.take_unnamed()
    }

    /// Takes the source frames of what the plugin of `module` calls by `key`, innermost inlined first.
    pub fn name_frame(&mut self, module: ModuleId, key: u64, source: Vec<SourceFrame>) {
        // By now it may have been let go of.
        if let Some(frame) = self.frames.known(&Origin::Language { module, key }) {
            self.own_names.name_frame(frame, source);
        }
    }

    /// What native code has no name yet: the file and the address.
    pub fn unnamed_native(&self) -> Vec<(u32, u64)> {
        self.own_names.native_without_name(&self.frames.in_order())
    }

    /// Takes the source frames of native code, innermost inlined first.
    pub fn name_native(&mut self, object: u32, address: u64, source: Vec<SourceFrame>) {
        if let Some(frame) = self.frames.known(&Origin::Native { object, address }) {
            self.own_names.name_frame(frame, source);
        }
    }

    /// Takes the names and values of the labels that the plugin of `module` calls by `key`.
    pub fn name_labels(&mut self, module: ModuleId, key: u64, labels: Vec<Label>) {
        self.own_names.name_labels(module, key, labels);
    }

    /// Appends a sample. `cpu_ns` is the thread's CPU clock at the sample, from any fixed start.
    pub fn sample(&mut self, track: TrackId, cpu_ns: u64, sample: Sample) {
        let track = &mut self.tracks[track.index()];
        self.cpu_ns.entry(track.tid).or_insert((cpu_ns, cpu_ns)).1 = cpu_ns;
        self.last_time_ns = self.last_time_ns.max(sample.time_ns);
        self.count += 1;
        self.sampled_ns += sample.period_ns;
        track.samples.push(sample);
        if track.samples.open_bytes() >= MANY_BYTES {
            self.write();
        }
        self.write_if_due(sample.time_ns);
    }

    /// Notes that host call number `call` was going on at `time_ns`.
    pub fn host_call(&mut self, track: TrackId, call: u64, frame: FrameId, time_ns: u64, blocked: bool) {
        self.tracks[track.index()].host_call(call, frame, time_ns, blocked);
    }

    /// Notes that no host call was going on.
    pub fn no_host_call(&mut self, track: TrackId) {
        self.tracks[track.index()].no_host_call();
    }

    /// Notes how large the linear memory of a store was at `time_ns`, in bytes: 0 when the store has gone.
    pub fn memory(&mut self, store: StoreId, time_ns: u64, bytes: u64) {
        self.memories.entry(store).or_default().see(time_ns, bytes);
    }

    /// What the guest of a store has allocated so far: in place of what was said before, once it is written.
    pub fn heap(&mut self, store: StoreId, heap: Heap) {
        self.heaps.insert(store, heap);
    }

    /// The guest of a store that has a heap has gone at `time_ns`: it is kept for windows as long as samples of then are.
    pub fn heap_has_gone(&mut self, store: StoreId, time_ns: u64) {
        self.heaps_gone.push((store, time_ns));
    }

    /// Counts an incomplete stack.
    pub fn truncated(&mut self, reason: Truncation) {
        *self.truncated.entry(reason).or_default() += 1;
    }

    /// Incomplete stacks so far, by reason.
    pub fn truncated_counts(&self) -> BTreeMap<Truncation, u64> {
        self.truncated.clone()
    }

    /// Keeps samples from `from_ns` on for windows, or none. Those that come late for windows that follow others are kept from block `late_from`
    /// on, a number of [`Recorder::recorded`].
    pub fn keep_from(&mut self, from_ns: Option<u64>, late_from: Option<u64>) {
        self.journal.recent().into_iter().for_each(|recent| recent.keep_from(from_ns, late_from));
    }

    /// What is of before is let go of, and is in no table any more once they are compacted; `None` if all of the run is kept.
    pub fn forgets_before_ns(&mut self) -> Option<u64> {
        Some(self.journal.only_recent()?.first_ns().unwrap_or(u64::MAX))
    }

    /// Whether samples are kept for windows, and sampling is not over.
    pub fn keeps_windows(&mut self) -> bool {
        self.journal.recent().is_some()
    }

    /// What has no name yet of what only languages can name.
    pub fn unnamed(&self) -> Vec<NameSource> {
        let labels = self.labels.in_order();
        self.own_names.without_name(&self.frames.in_order(), &labels.iter().map(LabelKeys::as_set).collect::<Vec<_>>())
    }

    /// A whole recording, without the symbols of wasm frames, of what was in `window`. `end` says how it came out, given the
    /// number of its samples and the time that they stand for.
    ///
    /// # Errors
    /// If no samples are kept, or sampling is over.
    pub fn window(
        &mut self,
        window: &WindowOf,
        end: impl FnOnce(u64, u64) -> (Meta, TickCounts),
        truncated: Vec<(Truncation, u64)>,
    ) -> io::Result<Vec<u8>> {
        self.write();
        let over = || io::Error::other("sampling is over");
        self.journal.recent().ok_or_else(over)?.window(window, |count, weight_ns| {
            let (meta, ticks) = end(count, weight_ns);
            End { meta, ticks, truncated }
        })
    }

    /// Returns how many blocks of samples are kept or were: what a window that follows one made now has as [`WindowOf::follows`].
    pub fn recorded(&mut self) -> u64 {
        self.write();
        self.journal.recent().map_or(0, |recent| recent.recorded())
    }

    /// Distinct stacks so far.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Samples in that state that have not been written yet.
    pub fn count_of(&self, state: super::State) -> usize {
        self.tracks.iter().flat_map(|track| track.samples.iter()).filter(|sample| sample.state == state).count()
    }

    /// Number of samples so far, and the time that they stand for.
    pub fn sampled(&self) -> (u64, u64) {
        (self.count, self.sampled_ns)
    }

    /// Writes what is new into the journal if some time has passed since that was last done. `now_ns` is counted as the
    /// samples' times are.
    pub fn write_if_due(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.written_ns) > WRITE_AFTER_NS {
            self.last_time_ns = self.last_time_ns.max(now_ns);
            self.write();
        }
    }

    /// Writes what is new into the journal, up to `now_ns`.
    pub fn flush(&mut self, now_ns: u64) {
        self.last_time_ns = self.last_time_ns.max(now_ns);
        self.write();
    }

    /// Writes what is new into the journal. Samples that cannot be written are gone, and counted: a full disk must not
    /// fill the memory as well. `false` if the tables are not whole, so that nothing may refer to them.
    fn write(&mut self) -> bool {
        self.written_ns = self.last_time_ns;
        let journal = &mut self.journal;
        let tables = self.frames.write(journal, Block::Frames)
            && self.stacks.write(journal, Block::Stacks)
            && self.labels.write(journal, |new| Block::LabelKeys(new.iter().map(LabelKeys::in_block).collect()));
        for (number, track) in (0..).zip(&mut self.tracks) {
            self.unrecorded += track.write(number, tables, journal);
        }
        self.memories.iter_mut().for_each(|(store, sizes)| sizes.write(*store, journal));
        self.memories.retain(|_, sizes| !sizes.is_over());
        if tables {
            self.heaps.retain(|store, heap| !journal.write(&Block::Heap(*store, heap.clone())));
            let gone = std::mem::take(&mut self.heaps_gone);
            journal.recent().into_iter().for_each(|recent| recent.heaps_have_gone(&gone));
            self.own_names.write_frames(journal);
            if self.own_names.may_spell(self.labels.len()) {
                let labels = self.labels.in_order();
                self.own_names.write_labels(&labels.iter().map(LabelKeys::as_set).collect::<Vec<_>>(), journal);
            }
        }
        let progress = Progress {
            duration_ns: self.last_time_ns,
            cpu_ns: self.cpu_ns.values().map(|(first, last)| last.saturating_sub(*first)).sum(),
            truncated: self.truncated.iter().map(|(reason, count)| (*reason, *count)).collect(),
        };
        journal.write(&Block::Progress(progress));
        tables
    }

    /// Writes what is new into the journal, with the names that only `names` knows.
    fn write_all(&mut self, names: &mut dyn LanguageNames) {
        if self.write() {
            let labels = self.labels.in_order();
            let labels: Vec<_> = labels.iter().map(LabelKeys::as_set).collect();
            self.own_names.complete(&self.frames.in_order(), &labels, names, &mut self.journal);
        }
    }

    /// Writes all that is left, with the names that only the languages know: the journal is a whole
    /// recording then, without the symbols of wasm frames.
    pub fn close(mut self, mut meta: Meta, mut ticks: TickCounts, names: &mut dyn LanguageNames) -> Journal {
        self.tracks.iter_mut().for_each(Track::no_host_call);
        self.write_all(names);
        meta.notes.extend(names.notes());
        if self.unrecorded > 0 {
            ticks.sampled -= self.unrecorded.min(ticks.sampled);
            ticks.unrecorded += self.unrecorded;
            let reason = self.journal.failure().map(ToString::to_string).unwrap_or_default();
            let lost = crate::count_of(self.unrecorded, "sample");
            meta.notes.push(format!("{lost} could not be written to the disk: {reason}"));
        }
        let truncated = self.truncated.into_iter().collect();
        if !meta.requests.is_empty() {
            self.journal.write(&Block::Requests(meta.requests.clone()));
        }
        self.journal.write(&Block::End(End { meta, ticks, truncated }));
        self.journal
    }
}

/// Who knows what frames are called.
pub trait Names {
    /// Appends the source frames of `origin`, innermost inlined first; at least one.
    fn frames(&mut self, origin: &Origin, out: &mut Vec<SourceFrame>);

    /// What the instance of a component is called that the module's code runs in; `None` if there is but one, or it cannot be told.
    fn instance(&self, _module: ModuleId) -> Option<&str> {
        None
    }

    /// Whether the module's code but stands between that of others, and runs for whoever calls it.
    fn is_glue(&self, _module: ModuleId) -> bool {
        false
    }
}

impl<F: FnMut(&Origin, &mut Vec<SourceFrame>)> Names for F {
    fn frames(&mut self, origin: &Origin, out: &mut Vec<SourceFrame>) {
        self(origin, out);
    }
}

/// Interns functions by all that distinguishes them, so that two statics of one name stay two.
#[derive(Default)]
pub(super) struct FunctionTable {
    pub(super) functions: Vec<Function>,
    ids: HashMap<Function, FunctionId>,
}

impl FunctionTable {
    /// The line that a source frame of `origin` is.
    pub(super) fn line(&mut self, origin: &Origin, source: SourceFrame) -> Line {
        let (module, category) = match *origin {
            Origin::Wasm { module, .. } | Origin::Language { module, .. } => (Some(module), source.category.into()),
            Origin::HostCall { .. } | Origin::Native { .. } | Origin::Host => (None, Category::Host),
            Origin::Truncated | Origin::Elided | Origin::Adapter => (None, Category::Runtime),
        };
        let function = Function {
            name: source.function,
            linkage_name: source.linkage_name,
            file: source.file,
            line: source.function_line,
            category,
            module,
        };
        Line { function: self.function(function), line: source.line, column: source.column }
    }

    /// The id of this function.
    pub(super) fn function(&mut self, function: Function) -> FunctionId {
        *self.ids.entry(function).or_insert_with_key(|function| {
            self.functions.push(function.clone());
            (self.functions.len() - 1) as FunctionId
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TRACK, finish, with_modules};

    fn wasm(code_offset: u32) -> Origin {
        Origin::Wasm { module: 0, function: 1, code_offset }
    }

    #[test]
    fn equal_stacks_are_one_and_share_their_roots() {
        let mut recorder = with_modules(1);
        let (a, b, c) = (recorder.frame(wasm(1)), recorder.frame(wasm(2)), recorder.frame(wasm(3)));
        let first = recorder.stack([a, b]).unwrap();
        let again = recorder.stack([a, b]).unwrap();
        let other = recorder.stack([a, c]).unwrap();
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_eq!(recorder.stacks.len(), 3, "the root [a] is shared");
    }

    #[test]
    fn functions_of_one_name_in_two_files_stay_apart() {
        let mut recorder = with_modules(1);
        let (a, b) = (recorder.frame(wasm(1)), recorder.frame(wasm(2)));
        recorder.stack([a, b]).unwrap();
        let recording = finish(recorder, &mut |origin: &Origin, out: &mut Vec<SourceFrame>| {
            let file = if *origin == wasm(1) { "a.c" } else { "b.c" };
            out.push(SourceFrame { function: "init".into(), file: Some(file.into()), ..SourceFrame::default() });
        });
        assert_eq!(recording.functions.len(), 2);
    }

    #[test]
    fn labels_of_several_keys_are_one_set() {
        let mut recorder = with_modules(1);
        let sets = [recorder.labels(0, &[1, 2]), recorder.labels(0, &[2]), recorder.labels(0, &[1, 2])];
        assert_eq!(sets, [0, 1, 0]);
        let recording = crate::testing::finish(recorder, &mut |_: &Origin, _: &mut Vec<SourceFrame>| {});
        let label = |key: &str| ("key".to_owned(), key.to_owned());
        assert_eq!(recording.label_sets, [vec![label("1"), label("2")], vec![label("2")]]);
    }

    #[test]
    fn endless_stacks_end_at_the_leaf() {
        let mut recorder = with_modules(1);
        let mut deepest = Vec::new();
        for code_offset in 0.. {
            // Never twice the same: each makes as many new stacks as it is deep.
            let root = recorder.frame(wasm(code_offset));
            deepest = std::iter::once(root).chain((0..4000).map(|depth| (root + depth) % (root + 1))).collect();
            recorder.stack(deepest.iter().copied()).unwrap();
            if recorder.truncated.contains_key(&Truncation::TooMany) {
                break;
            }
        }
        let bounded = recorder.stacks.len();
        assert!(bounded <= MAX_STACKS + recorder.frames.len() + 1, "{bounded}");
        let leaf = *deepest.last().unwrap();
        let shortened = recorder.stack(deepest).unwrap();
        let truncated = recorder.frame(Origin::Truncated);
        let root = recorder.stacks.id(Stack { parent: None, frame: truncated });
        assert_eq!(recorder.stacks.id(Stack { parent: Some(root), frame: leaf }), shortened);
    }

    #[test]
    fn samples_that_a_full_disk_cannot_take_are_counted() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut recorder = Recorder::new(Vec::new(), Meta::default(), Journal::in_file(full, None));
        let store = recorder.store("guest");
        recorder.track(store, "guest", 1);
        let frame = recorder.frame(Origin::Host);
        let stack = recorder.stack([frame]).unwrap();
        for number in 0..100_000 {
            let state = crate::State::Host;
            recorder.sample(
                TRACK,
                0,
                Sample { time_ns: number, cpu_delta_ns: 0, period_ns: 1, stack, state, labels: None },
            );
        }
        assert!(recorder.unrecorded > 90_000);
        assert!(recorder.tracks[0].samples.open_bytes() < 2 * MANY_BYTES, "they are not kept in memory either");
    }
}
