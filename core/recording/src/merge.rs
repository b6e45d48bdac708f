//! Several recordings as one: tables are interned anew, the threads of each are kept, and so are its stores, under the names of
//! their files.

use super::{
    Frame, FrameId, Function, FunctionId, HostCallSpan, Line, Meta, Module, Origin, PauseStats, Recording, Sample,
    Stack, StackId, Store, Thread, TickCounts, Truncation,
};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

impl Recording {
    /// Looks whether shares of these recordings, each with what it is called, can be added up and compared.
    ///
    /// # Errors
    /// If their samples stand for different times.
    pub fn check_clocks<'a>(recordings: impl IntoIterator<Item = (&'a str, &'a Self)>) -> Result<(), String> {
        let mut recordings = recordings.into_iter();
        let Some((first_name, first)) = recordings.next() else { return Ok(()) };
        let clock = first.meta.clock;
        recordings.find(|(_, other)| other.meta.clock != clock).map_or(Ok(()), |(name, other)| {
            Err(format!(
                "{first_name} has samples of {clock} and {name} of {}: their shares are not of one whole",
                other.meta.clock
            ))
        })
    }

    /// Those recordings, with what each is called, as one. Each begins at its time zero: they lie side by side.
    ///
    /// # Errors
    /// If there are none, or their samples stand for different times.
    pub fn merge(recordings: Vec<(String, Self)>) -> Result<Self, String> {
        if recordings.is_empty() {
            return Err("there is nothing to merge".to_owned());
        }
        Self::check_clocks(recordings.iter().map(|(name, recording)| (name.as_str(), recording)))?;
        let meta = merged_meta(&recordings);
        let mut merge = Merge::default();
        for (name, recording) in recordings {
            merge.add(&name, recording);
        }
        let Merge { modules, functions, frames, stacks, label_sets, stores, threads, ticks, truncated, .. } = merge;
        Ok(Self {
            meta,
            modules: modules.items,
            functions: functions.items,
            frames,
            stacks: stacks.items,
            label_sets: label_sets.items,
            stores,
            threads,
            ticks,
            truncated: truncated.into_iter().collect(),
            // Recordings have none: they are looked for where profiles are written.
            sources: BTreeMap::new(),
            part: None,
        })
    }
}

/// Numbers what is distinct.
struct Table<T> {
    items: Vec<T>,
    ids: HashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { items: Vec::new(), ids: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn id(&mut self, item: T) -> u32 {
        let next = self.items.len() as u32;
        *self.ids.entry(item).or_insert_with_key(|item| {
            self.items.push(item.clone());
            next
        })
    }
}

#[derive(Default)]
struct Merge {
    modules: Table<Module>,
    functions: Table<Function>,
    frames: Vec<Frame>,
    frame_ids: HashMap<(Origin, Vec<Line>), FrameId>,
    /// The key that stands for a language's frame from now on, of those that are taken.
    next_key: u64,
    origins: HashMap<Origin, FrameId>,
    stacks: Table<Stack>,
    label_sets: Table<Vec<(String, String)>>,
    stores: Vec<Store>,
    threads: Vec<Thread>,
    ticks: TickCounts,
    truncated: BTreeMap<Truncation, u64>,
}

impl Merge {
    fn add(&mut self, name: &str, recording: Recording) {
        let modules: Vec<u32> = recording.modules.into_iter().map(|module| self.modules.id(module)).collect();
        let module = |id: u32| modules[id as usize];
        let functions: Vec<FunctionId> = recording
            .functions
            .into_iter()
            .map(|function| self.functions.id(Function { module: function.module.map(module), ..function }))
            .collect();
        let frames: Vec<FrameId> = recording
            .frames
            .into_iter()
            .map(|frame| {
                let lines = frame.lines.into_iter();
                let lines = lines.map(|line| Line { function: functions[line.function as usize], ..line }).collect();
                self.frame(frame.origin.in_module(module), lines)
            })
            .collect();
        let mut stacks: Vec<StackId> = Vec::with_capacity(recording.stacks.len());
        for stack in recording.stacks {
            // A parent stands before its children.
            let parent = stack.parent.map(|parent| stacks[parent as usize]);
            stacks.push(self.stacks.id(Stack { parent, frame: frames[stack.frame as usize] }));
        }
        let label_sets: Vec<u32> = recording.label_sets.into_iter().map(|set| self.label_sets.id(set)).collect();
        let first_store = self.stores.len() as u32;
        let stores = recording.stores.into_iter();
        self.stores.extend(stores.map(|mut store| {
            store.restack(|stack| Some(stacks[stack as usize]));
            for note in store.heap.iter_mut().flat_map(|heap| &mut heap.notes) {
                // As among the notes of all.
                *note = format!("{name}: {note}");
            }
            Store { name: format!("{name}: {}", store.name), ..store }
        }));
        for thread in recording.threads {
            let sample = |sample: Sample| Sample {
                stack: stacks[sample.stack as usize],
                labels: sample.labels.map(|set| label_sets[set as usize]),
                ..sample
            };
            let call = |call: HostCallSpan| HostCallSpan { frame: frames[call.frame as usize], ..call };
            self.threads.push(Thread {
                store: first_store + thread.store,
                samples: thread.samples.iter().map(sample).collect(),
                host_calls: thread.host_calls.into_iter().map(call).collect(),
                ..thread
            });
        }
        self.ticks.add(&recording.ticks);
        for (reason, count) in recording.truncated {
            *self.truncated.entry(reason).or_default() += count;
        }
    }

    /// The frame with this origin and these lines. Keys of a language's frames are of one run: where another frame has the
    /// same one, this gets a new one.
    fn frame(&mut self, origin: Origin, lines: Vec<Line>) -> FrameId {
        if let Some(known) = self.frame_ids.get(&(origin, lines.clone())) {
            return *known;
        }
        let mut distinct = origin;
        while let (Origin::Language { module, .. }, true) = (distinct, self.origins.contains_key(&distinct)) {
            self.next_key += 1;
            distinct = Origin::Language { module, key: u64::MAX - self.next_key };
        }
        let id = self.frames.len() as FrameId;
        self.origins.insert(distinct, id);
        self.frame_ids.insert((origin, lines.clone()), id);
        self.frames.push(Frame { origin: distinct, lines });
        id
    }
}

/// Times are sums, pauses and rates what the most time was sampled with, notes those of each.
fn merged_meta(recordings: &[(String, Recording)]) -> Meta {
    let metas = || recordings.iter().map(|(_, recording)| &recording.meta);
    let sum = |of: fn(&Meta) -> u64| metas().map(of).fold(0, u64::saturating_add);
    let mut guests: Vec<&str> = metas().map(|meta| meta.guest.as_str()).collect();
    guests.dedup();
    let longest = metas().max_by_key(|meta| meta.cpu_ns).cloned().unwrap_or_default();
    let notes = recordings
        .iter()
        .flat_map(|(name, recording)| recording.meta.notes.iter().map(move |note| format!("{name}: {note}")));
    Meta {
        guest: guests.join(", "),
        arguments: if metas().all(|meta| meta.arguments == longest.arguments) { longest.arguments } else { Vec::new() },
        start_unix_ms: metas().map(|meta| meta.start_unix_ms).min().unwrap_or(0),
        duration_ns: sum(|meta| meta.duration_ns),
        cpu_ns: sum(|meta| meta.cpu_ns),
        sampling_ns: sum(|meta| meta.sampling_ns),
        unsampled_ns: sum(|meta| meta.unsampled_ns),
        pause: PauseStats { ..longest.pause },
        notes: notes.collect(),
        requests: metas().flat_map(|meta| meta.requests.clone()).collect(),
        ..longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{read, write};
    use crate::{Clock, HeapPart, Totals, example};

    fn named(names: [&str; 2], recordings: [Recording; 2]) -> Vec<(String, Recording)> {
        names.into_iter().map(str::to_owned).zip(recordings).collect()
    }

    #[test]
    fn two_of_one_run_are_twice_the_run() {
        let merged = Recording::merge(named(["a", "b"], [example(), example()])).unwrap();
        let (one, two) = (Totals::of(&example()), Totals::of(&merged));
        let times = |totals: &Totals, times: u64| -> Vec<(u32, u64, u64)> {
            let row = |row: &crate::FunctionTotal| (row.function, times * row.self_time.ns, times * row.total_time.ns);
            totals.functions.iter().map(row).collect()
        };
        assert_eq!(times(&one, 2), times(&two, 1));
        assert_eq!((merged.functions.len(), merged.frames.len()), (example().functions.len(), example().frames.len()));
        assert_eq!(merged.stacks, example().stacks);
        assert!(merged.ticks.balanced() && merged.ticks.sampled == 2 * example().ticks.sampled);
        let names: Vec<String> = merged.threads.iter().map(|thread| merged.thread_name(thread)).collect();
        assert!(names[0].starts_with("a: app.wasm on ") && names[2].starts_with("b: app.wasm on "), "{names:?}");
        let held = |recording: &Recording| -> f64 {
            recording.stores.iter().filter_map(|store| Some(store.heap.as_ref()?.total(HeapPart::Held).bytes)).sum()
        };
        assert_eq!(held(&merged), 2.0 * held(&example()));
        let mut bytes = Vec::new();
        write(&merged, &mut bytes).unwrap();
        assert_eq!(read(&bytes).unwrap(), merged);
    }

    #[test]
    fn keys_of_another_run_stand_for_other_frames() {
        let mut other = example();
        other.functions[2].name = "another".to_owned();
        let merged = Recording::merge(named(["a", "b"], [example(), other.clone()])).unwrap();
        assert_eq!(merged.functions.len(), example().functions.len() + 1);
        let names = |recording: &Recording| -> Vec<Vec<String>> {
            let name = |line: Line| recording.functions[line.function as usize].name.clone();
            recording.samples().map(|sample| recording.lines_of(sample.stack).map(name).collect()).collect()
        };
        assert_eq!(names(&merged), [names(&example()), names(&other)].concat());
        let mut origins: Vec<String> = merged.frames.iter().map(|frame| format!("{:?}", frame.origin)).collect();
        origins.sort();
        origins.dedup();
        assert_eq!(origins.len(), merged.frames.len(), "each origin is one frame");
    }

    #[test]
    fn different_clocks_are_not_merged() {
        let mut other = example();
        other.meta.clock = Clock::Cpu;
        let error = Recording::merge(named(["a", "b"], [example(), other])).unwrap_err();
        assert!(error.contains("a has samples of wall time and b of CPU time"), "{error}");
        assert!(Recording::merge(Vec::new()).is_err());
    }
}
