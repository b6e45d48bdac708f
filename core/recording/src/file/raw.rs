//! A recording block by block, as its file has it, before its frames have names.

use super::{Contents, ReadError, corrupt};
use crate::build::{FunctionTable, Names};
use crate::journal::{Block, End, MAGIC, NoBlock, Progress, VERSION, read_block};
use crate::unused::{HeldNumbers, NewNumbers, Tables};
use crate::{
    Frame, FrameId, Function, Heap, INSTANCE, LabelSetId, Line, Meta, Module, ModuleId, NamedFrame, Origin, Recording,
    RequestTotal, Sample, Stack, Store, Thread, TickCounts,
};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use wlprof_plugin::SourceFrame;

/// Frames on a stack beyond which a file is not believed: some more than any sampler gives.
const MAX_DEPTH: u32 = 1 << 14;

/// A recording as its file has it: perhaps without the names of wasm frames, perhaps without its end.
#[derive(Debug, Default)]
pub struct RawRecording {
    meta: Meta,
    modules: Vec<Module>,
    frames: Vec<Origin>,
    stacks: Vec<Stack>,
    /// Frames on each stack.
    depths: Vec<u32>,
    label_count: usize,
    label_sets: Vec<Vec<(String, String)>>,
    stores: Vec<Store>,
    threads: Vec<Thread>,
    progress: Progress,
    language_names: HashMap<FrameId, Vec<NamedFrame>>,
    requests: Vec<RequestTotal>,
    architecture: Option<String>,
    end: Option<End>,
    symbols: Option<Symbols>,
}

#[derive(Debug)]
struct Symbols {
    functions: Vec<Function>,
    lines: Vec<Vec<Line>>,
    notes: Vec<String>,
}

impl RawRecording {
    /// Reads a recording as far as it is whole.
    ///
    /// # Errors
    /// [`ReadError`] if the bytes are not a recording of this version, or say what cannot be.
    pub fn read(input: &mut dyn Read) -> Result<Self, ReadError> {
        let mut header = Vec::new();
        input.take((MAGIC.len() + 4) as u64).read_to_end(&mut header).map_err(ReadError::Io)?;
        let version = header.strip_prefix(&MAGIC).ok_or(ReadError::NotARecording)?;
        let version = version.try_into().map(u32::from_le_bytes).map_err(|_| corrupt("it ends within its header"))?;
        if version != VERSION {
            return Err(ReadError::Version(version));
        }
        let mut recording = match read_block(input) {
            Ok(Block::Start(meta, modules)) => Self { meta, modules, ..Self::default() },
            Err(NoBlock::Read(error)) => return Err(ReadError::Io(error)),
            _ => return Err(corrupt("it has no beginning")),
        };
        let ended = loop {
            match read_block(input) {
                Ok(block) => recording.take(block).map_err(|what| corrupt(&format!("its {what} cannot be")))?,
                Err(NoBlock::Read(error)) => return Err(ReadError::Io(error)),
                Err(ended) => break ended,
            }
        };
        recording.finish(&ended);
        Ok(recording)
    }

    /// Takes one more block, or says which table of it leads nowhere.
    fn take(&mut self, block: Block) -> Result<(), &'static str> {
        let check = |holds: bool, table| if holds { Ok(()) } else { Err(table) };
        let module_holds = |module: ModuleId| (module as usize) < self.modules.len();
        match block {
            Block::Start(..) => return Err("second beginning"),
            Block::Module(module) => self.modules.push(module),
            Block::ModuleInPlaceOf(old, module) => *self.modules.get_mut(old as usize).ok_or("modules")? = module,
            Block::Store { name } => self.stores.push(Store { name, ..Store::default() }),
            Block::Thread { name, tid, store } => {
                check((store as usize) < self.stores.len(), "stores")?;
                self.threads.push(Thread { name, tid, store, ..Thread::default() });
            }
            Block::Heap(store, heap) => {
                let store = self.stores.get_mut(store as usize).ok_or("stores")?;
                // It stands beside the samples: one that cannot be is no reason to refuse these.
                if heap.is_sane(self.stacks.len()) {
                    store.heap = Some(heap);
                } else {
                    let note = "what a guest has allocated is left out: the recording says what cannot be".to_owned();
                    store.heap = Some(Heap { rate: 1, notes: vec![note], ..Heap::default() });
                }
            }
            Block::HeapNumber(store, number) => {
                let store = self.stores.get_mut(store as usize).ok_or("stores")?;
                store.heap.iter_mut().for_each(|heap| heap.number = number);
            }
            Block::Requests(requests) => self.requests = requests,
            Block::Architecture(architecture) => self.architecture = Some(architecture),
            Block::Memory(store, sizes) => {
                let store = self.stores.get_mut(store as usize).ok_or("stores")?;
                // They stand beside the samples: one that is out of order is no reason to refuse these.
                for size in sizes {
                    if store.memory.last().is_none_or(|last| last.time_ns <= size.time_ns) {
                        store.memory.push(size);
                    }
                }
            }
            Block::StoreLabels(store, labels) => {
                self.stores.get_mut(store as usize).ok_or("stores")?.labels = labels;
            }
            Block::Frames(frames) => {
                let holds = |origin: &Origin| match *origin {
                    Origin::Wasm { module, .. } | Origin::Language { module, .. } | Origin::HostCall { module, .. } => {
                        module_holds(module)
                    }
                    Origin::Native { .. } | Origin::Host | Origin::Truncated | Origin::Elided | Origin::Adapter => true,
                };
                check(frames.iter().all(holds), "frames")?;
                self.frames.extend(frames);
            }
            Block::Stacks(stacks) => stacks.into_iter().try_for_each(|stack| self.add_stack(stack)).ok_or("stacks")?,
            Block::LabelKeys(keys) => self.label_count += keys.len(),
            Block::Samples(thread, samples) => {
                let (stacks, labels) = (self.stacks.len(), self.label_count);
                let holds = |sample: &Sample| {
                    (sample.stack as usize) < stacks && sample.labels.is_none_or(|id| (id as usize) < labels)
                };
                let thread = self.threads.get_mut(thread as usize).ok_or("threads")?;
                check(thread.samples.add_block(samples, holds), "samples")?;
            }
            Block::HostCalls(thread, calls) => {
                check(calls.iter().all(|call| (call.frame as usize) < self.frames.len()), "host calls")?;
                self.threads.get_mut(thread as usize).ok_or("threads")?.host_calls.extend(calls);
            }
            Block::Progress(progress) => self.progress = progress,
            Block::LanguageNames(names) => {
                check(names.iter().all(|(frame, _)| (*frame as usize) < self.frames.len()), "names")?;
                self.language_names.extend(names);
            }
            Block::LabelSets(sets) => {
                check(sets.len() <= self.label_count - self.label_sets.len(), "labels")?;
                self.label_sets.extend(sets);
            }
            Block::End(end) => self.end = Some(end),
            Block::Symbols { functions, lines, notes } => {
                check(functions.iter().all(|function| function.module.is_none_or(module_holds)), "functions")?;
                let line_holds = |line: &Line| (line.function as usize) < functions.len();
                let hold = |lines: &Vec<Line>| !lines.is_empty() && lines.iter().all(line_holds);
                check(lines.len() == self.frames.len() && lines.iter().all(hold), "lines")?;
                self.symbols = Some(Symbols { functions, lines, notes });
            }
        }
        Ok(())
    }

    fn add_stack(&mut self, stack: Stack) -> Option<()> {
        let callers = match stack.parent {
            Some(parent) => *self.depths.get(parent as usize)?,
            None => 0,
        };
        if stack.frame as usize >= self.frames.len() || callers >= MAX_DEPTH {
            return None;
        }
        self.depths.push(callers + 1);
        self.stacks.push(stack);
        Some(())
    }

    /// Makes up for what a recording that was cut short has not.
    fn finish(&mut self, ended: &NoBlock) {
        self.label_sets.resize_with(self.label_count, Vec::new);
        if self.end.is_some() && matches!(ended, NoBlock::End) {
            return;
        }
        let why = match ended {
            NoBlock::Damaged => "what follows is damaged",
            _ => "wlprof was ended before it could finish it",
        };
        let what = if self.end.is_some() { "its symbols are missing" } else { "later samples are missing" };
        self.meta.notes.push(format!("the recording is not whole: {why}; {what}"));
        if let Some(End { meta, .. }) = &mut self.end {
            meta.notes.append(&mut self.meta.notes);
        }
    }

    /// Leaves out stacks and frames that are in no sample and no host call, if none has a name yet: a part of a run has those of the
    /// whole run.
    #[must_use]
    pub fn with_used_frames(mut self) -> Self {
        if self.symbols.is_none() {
            let all = |count: usize| (0..count as u32).collect();
            let (labels, stores, threads) = (self.label_sets.len(), self.stores.len(), self.threads.len());
            let held = HeldNumbers {
                labels: all(labels),
                stores: all(stores),
                threads: all(threads),
                ..HeldNumbers::default()
            };
            self.keep_used(&held);
        }
        self
    }

    /// Leaves out what is in no sample and no host call, and not `held`. It has no names of wasm's frames.
    pub(crate) fn keep_used(&mut self, held: &HeldNumbers) -> NewNumbers {
        debug_assert!(self.symbols.is_none(), "their lines would be in other places");
        let Self { frames, stacks, label_sets, stores, threads, language_names, .. } = self;
        let numbers = Tables { frames, stacks, label_sets, stores, threads, language_names }.keep_used(held);
        self.label_count = self.label_sets.len();
        numbers
    }

    /// The blocks of a recording that says the same, but for its end, and can be added to. Its sets of labels have these keys, and the
    /// first `spelled` of them names.
    pub(crate) fn blocks(
        &self,
        label_keys: Vec<(ModuleId, Vec<u64>)>,
        spelled: usize,
    ) -> impl Iterator<Item = Block> + use<'_> {
        let Self { meta, modules, frames, stacks, label_sets, stores, threads, language_names, .. } = self;
        let (frames, label_sets) = (frames.clone(), &label_sets[..spelled]);
        let names = language_names.iter().map(|(frame, names)| (*frame, names.clone())).collect();
        Contents { meta, modules, frames, stacks, label_keys, label_sets, stores, threads }
            .blocks()
            .chain([Block::LanguageNames(names)])
    }

    /// The stores whose threads its samples are of.
    pub(crate) fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Its frames and stacks alone.
    pub(crate) fn into_frames_and_stacks(self) -> (Vec<Origin>, Vec<Stack>) {
        (self.frames, self.stacks)
    }

    /// Gives the samples of stores that have labels these labels, before their own, if they have not got them already. What the guest
    /// calls by the same name is called `guest.NAME`: whose a sample is, is not the guest's to say.
    fn label_samples_of_stores(&mut self) {
        let Self { label_sets, stores, threads, .. } = self;
        for thread in threads {
            let labels = &stores[thread.store as usize].labels;
            if labels.is_empty() {
                continue;
            }
            let mut with_labels: HashMap<Option<LabelSetId>, LabelSetId> = HashMap::new();
            let labelled = thread.samples.iter().map(|sample| {
                let labels = *with_labels.entry(sample.labels).or_insert_with(|| {
                    let own = sample.labels.map_or(&[][..], |set| &label_sets[set as usize]);
                    if let (Some(set), true) = (sample.labels, own.starts_with(labels)) {
                        return set;
                    }
                    let is_taken = |name: &str| labels.iter().any(|(taken, _)| taken == name);
                    let own = own.iter().map(|(name, value)| match is_taken(name) {
                        true => (format!("guest.{name}"), value.clone()),
                        false => (name.clone(), value.clone()),
                    });
                    let all = labels.iter().cloned().chain(own).collect();
                    label_sets.push(all);
                    (label_sets.len() - 1) as LabelSetId
                });
                Sample { labels: Some(labels), ..sample }
            });
            thread.samples = labelled.collect();
        }
    }

    /// Gives samples the instance of their component as a label that their innermost frame is in which is in any: what adapters, glue and the
    /// host do is done for whoever called them. What the guest calls by the same name is called `guest.NAME`.
    fn label_samples_of_instances(&mut self, names: &dyn Names) {
        let instances: Vec<Option<&str>> = (0..self.modules.len()).map(|id| names.instance(id as ModuleId)).collect();
        if instances.iter().all(Option::is_none) {
            return;
        }
        let module = |frame: FrameId| self.frames[frame as usize].module().filter(|module| !names.is_glue(*module));
        // Callers come before what they call.
        let mut of_stacks: Vec<Option<ModuleId>> = Vec::with_capacity(self.stacks.len());
        for stack in &self.stacks {
            of_stacks.push(module(stack.frame).or_else(|| of_stacks[stack.parent? as usize]));
        }
        let Self { label_sets, stores, threads, .. } = self;
        let mut with_instance: HashMap<(usize, Option<LabelSetId>, &str), LabelSetId> = HashMap::new();
        for thread in threads {
            let of_store = &stores[thread.store as usize].labels;
            // Whose a sample is, the embedder says.
            if of_store.iter().any(|(name, _)| name == INSTANCE) {
                continue;
            }
            let of_store = of_store.len();
            let labelled = thread.samples.iter().map(|sample| {
                let module = of_stacks[sample.stack as usize];
                let Some(instance) = module.and_then(|module| instances[module as usize]) else { return sample };
                let labels = *with_instance.entry((of_store, sample.labels, instance)).or_insert_with(|| {
                    let labels = sample.labels.map_or(&[][..], |set| &label_sets[set as usize]);
                    // Those of the store stay the first.
                    let (of_store, own) = labels.split_at(of_store.min(labels.len()));
                    let own = own.iter().map(|(name, value)| match name == INSTANCE {
                        true => (format!("guest.{name}"), value.clone()),
                        false => (name.clone(), value.clone()),
                    });
                    let instance = (INSTANCE.to_owned(), instance.to_owned());
                    let all = of_store.iter().cloned().chain([instance]).chain(own).collect();
                    label_sets.push(all);
                    (label_sets.len() - 1) as LabelSetId
                });
                Sample { labels: Some(labels), ..sample }
            });
            thread.samples = labelled.collect();
        }
    }

    /// Leaves out what was over before `from_ns`.
    pub(crate) fn drop_before(&mut self, from_ns: u64) {
        for thread in &mut self.threads {
            thread.samples = thread.samples.iter().filter(|sample| sample.time_ns >= from_ns).collect();
            thread.host_calls.retain(|call| call.end_ns >= from_ns);
        }
    }

    /// Whether it says what its frames are called.
    pub fn is_named(&self) -> bool {
        self.symbols.is_some()
    }

    /// The modules that its frames are of.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// How it came about, as far as that is known.
    pub fn meta(&self) -> &Meta {
        self.end.as_ref().map_or(&self.meta, |end| &end.meta)
    }

    /// Number of distinct frames: what there is to name.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// The recording with the names that it has, or, if it has none, with those that `names` gives.
    pub fn named(mut self, names: &mut dyn Names) -> Recording {
        self.label_samples_of_stores();
        if self.symbols.is_none() {
            self.label_samples_of_instances(names);
        }
        let Self {
            frames,
            stacks,
            modules,
            label_sets,
            stores,
            threads,
            progress,
            language_names,
            requests,
            architecture,
            end,
            symbols,
            meta,
            ..
        } = self;
        let Symbols { functions, lines, notes } = symbols.unwrap_or_else(|| {
            let mut functions = FunctionTable::default();
            let mut source = Vec::new();
            let lines = (0..).zip(&frames).map(|(id, origin)| {
                source.clear();
                let known = language_names.get(&id).into_iter().flatten();
                source.extend(known.cloned().map(SourceFrame::from));
                if source.is_empty() {
                    names.frames(origin, &mut source);
                }
                debug_assert!(!source.is_empty(), "no name for {origin:?}");
                source.drain(..).map(|frame| functions.line(origin, frame)).collect()
            });
            let lines = lines.collect();
            Symbols { functions: functions.functions, lines, notes: Vec::new() }
        });
        let sampled = threads.iter().map(|thread| thread.samples.len()).sum();
        let End { mut meta, ticks, truncated } = end.unwrap_or_else(|| End {
            meta: Meta { duration_ns: progress.duration_ns, cpu_ns: progress.cpu_ns, ..meta },
            ticks: TickCounts { fired: sampled, sampled, ..TickCounts::default() },
            truncated: progress.truncated,
        });
        meta.notes.extend(notes);
        meta.requests = requests;
        meta.architecture = architecture.unwrap_or_else(|| "x86_64".to_owned());
        for note in stores.iter().filter_map(|store| store.heap.as_ref()).flat_map(|heap| &heap.notes) {
            if !meta.notes.contains(note) {
                meta.notes.push(note.clone());
            }
        }
        let frames = frames.into_iter().zip(lines).map(|(origin, lines)| Frame { origin, lines }).collect();
        let recording = Recording {
            meta,
            modules,
            functions,
            frames,
            stacks,
            label_sets,
            stores,
            threads,
            ticks,
            truncated,
            sources: BTreeMap::new(),
            part: None,
        };
        recording.with_requests_together()
    }
}
