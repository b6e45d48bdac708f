//! Builds a recording while the guest runs: interns frames and stacks, appends samples.

use super::markers::HostCallTracker;
use super::{
    Category, Frame, FrameId, Function, FunctionId, LabelSetId, Line, Meta, Module, ModuleId, Origin, Recording,
    Sample, Stack, StackId, Thread, TickCounts, Truncation,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use wlprof_plugin::SourceFrame;

/// A recording in the making: frames are origins still, without symbols.
#[derive(Debug, Default)]
pub struct Recorder {
    modules: Vec<Module>,
    frames: Vec<Origin>,
    frame_ids: FxHashMap<Origin, FrameId>,
    stacks: Vec<Stack>,
    stack_ids: FxHashMap<Stack, StackId>,
    thread: Thread,
    last_cpu_ns: Option<u64>,
    host_calls: HostCallTracker,
    label_keys: Vec<(ModuleId, u64)>,
    label_ids: FxHashMap<(ModuleId, u64), LabelSetId>,
    truncated: BTreeMap<Truncation, u64>,
    seen: BTreeSet<(ModuleId, u32)>,
}

impl Recorder {
    /// A recorder for frames of `modules`.
    pub fn new(modules: Vec<Module>) -> Self {
        Self { modules, ..Self::default() }
    }

    /// Names the thread that the samples come from.
    pub fn set_thread(&mut self, name: &str, tid: u64) {
        self.thread.name = name.to_owned();
        self.thread.tid = tid;
    }

    /// The id of a frame.
    pub fn frame(&mut self, origin: Origin) -> FrameId {
        *self.frame_ids.entry(origin).or_insert_with(|| {
            self.frames.push(origin);
            (self.frames.len() - 1) as FrameId
        })
    }

    /// Notes that a wasm function was on a stack, for those that are in no frame.
    pub fn saw_function(&mut self, module: ModuleId, function: u32) {
        self.seen.insert((module, function));
    }

    /// The wasm functions that were on a stack, by module and index.
    pub fn functions_seen(&self) -> BTreeSet<(ModuleId, u32)> {
        let framed = self.frames.iter().filter_map(|origin| match *origin {
            Origin::Wasm { module, function, .. } => Some((module, function)),
            _ => None,
        });
        framed.chain(self.seen.iter().copied()).collect()
    }

    /// The id of the stack with these frames, root first. `None` without frames.
    pub fn stack(&mut self, root_first: impl IntoIterator<Item = FrameId>) -> Option<StackId> {
        let mut parent = None;
        for frame in root_first {
            let stack = Stack { parent, frame };
            parent = Some(*self.stack_ids.entry(stack).or_insert_with(|| {
                self.stacks.push(stack);
                (self.stacks.len() - 1) as StackId
            }));
        }
        parent
    }

    /// The id of the labels that the plugin of `module` calls by `key`.
    pub fn labels(&mut self, module: ModuleId, key: u64) -> LabelSetId {
        *self.label_ids.entry((module, key)).or_insert_with(|| {
            self.label_keys.push((module, key));
            (self.label_keys.len() - 1) as LabelSetId
        })
    }

    /// Appends a sample. `cpu_ns` is the thread's CPU clock at the sample, from any fixed start; the sample's own
    /// `cpu_delta_ns` follows from it.
    pub fn sample(&mut self, cpu_ns: u64, sample: Sample) {
        let cpu_delta_ns = cpu_ns.saturating_sub(self.last_cpu_ns.unwrap_or(cpu_ns));
        self.last_cpu_ns = Some(cpu_ns);
        self.thread.samples.push(Sample { cpu_delta_ns, ..sample });
    }

    /// Notes that host call number `call` was going on at `time_ns`.
    pub fn host_call(&mut self, call: u64, frame: FrameId, time_ns: u64, blocked: bool) {
        let ended = self.host_calls.see(call, frame, time_ns, blocked);
        self.thread.host_calls.extend(ended);
    }

    /// Notes that no host call was going on.
    pub fn no_host_call(&mut self) {
        let ended = self.host_calls.finish();
        self.thread.host_calls.extend(ended);
    }

    /// Counts an incomplete stack.
    pub fn truncated(&mut self, reason: Truncation) {
        *self.truncated.entry(reason).or_default() += 1;
    }

    /// Number of samples so far.
    pub fn sample_count(&self) -> u64 {
        self.thread.samples.len() as u64
    }

    /// Number of distinct frames so far: what [`Recorder::finish`] has to symbolize.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Names every distinct frame and set of labels once and closes the recording.
    pub fn finish(mut self, meta: Meta, ticks: TickCounts, names: &mut dyn Names) -> Recording {
        self.thread.host_calls.extend(self.host_calls.finish());
        let mut functions = FunctionTable::default();
        let mut source = Vec::new();
        let frames = self
            .frames
            .iter()
            .map(|&origin| {
                source.clear();
                names.frames(&origin, &mut source);
                debug_assert!(!source.is_empty(), "no name for {origin:?}");
                Frame { origin, lines: source.drain(..).map(|frame| functions.line(&origin, frame)).collect() }
            })
            .collect();
        Recording {
            meta,
            modules: self.modules,
            functions: functions.functions,
            frames,
            stacks: self.stacks,
            label_sets: self.label_keys.iter().map(|&(module, key)| names.labels(module, key)).collect(),
            threads: vec![self.thread],
            ticks,
            truncated: self.truncated.into_iter().collect(),
        }
    }
}

/// Who knows what frames and labels are called.
pub trait Names {
    /// Appends the source frames of `origin`, innermost inlined first; at least one.
    fn frames(&mut self, origin: &Origin, out: &mut Vec<SourceFrame>);

    /// The names and values of the labels that the plugin of `module` calls by `key`.
    fn labels(&mut self, module: ModuleId, key: u64) -> Vec<(String, String)>;
}

/// Names for tests, from a function.
#[cfg(test)]
impl<F: FnMut(&Origin, &mut Vec<SourceFrame>)> Names for F {
    fn frames(&mut self, origin: &Origin, out: &mut Vec<SourceFrame>) {
        self(origin, out);
    }

    fn labels(&mut self, _module: ModuleId, key: u64) -> Vec<(String, String)> {
        vec![("key".into(), key.to_string())]
    }
}

/// Interns functions by all that distinguishes them, so that two statics of one name stay two.
#[derive(Default)]
struct FunctionTable {
    functions: Vec<Function>,
    ids: FxHashMap<Function, FunctionId>,
}

impl FunctionTable {
    fn line(&mut self, origin: &Origin, source: SourceFrame) -> Line {
        let (module, category) = match *origin {
            Origin::Wasm { module, .. } | Origin::Language { module, .. } => (Some(module), source.category.into()),
            Origin::HostCall { .. } | Origin::Host => (None, Category::Host),
            Origin::Truncated => (None, Category::Runtime),
        };
        let function = Function {
            name: source.function,
            linkage_name: source.linkage_name,
            file: source.file,
            line: source.function_line,
            category,
            module,
        };
        let id = *self.ids.entry(function).or_insert_with_key(|function| {
            self.functions.push(function.clone());
            (self.functions.len() - 1) as FunctionId
        });
        Line { function: id, line: source.line, column: source.column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wasm(code_offset: u32) -> Origin {
        Origin::Wasm { module: 0, function: 1, code_offset }
    }

    #[test]
    fn equal_stacks_are_one_and_share_their_roots() {
        let mut recorder = Recorder::default();
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
        let mut recorder = Recorder::default();
        let (a, b) = (recorder.frame(wasm(1)), recorder.frame(wasm(2)));
        recorder.stack([a, b]).unwrap();
        let recording = recorder.finish(
            Meta::default(),
            TickCounts::default(),
            &mut |origin: &Origin, out: &mut Vec<SourceFrame>| {
                let file = if *origin == wasm(1) { "a.c" } else { "b.c" };
                out.push(SourceFrame { function: "init".into(), file: Some(file.into()), ..SourceFrame::default() });
            },
        );
        assert_eq!(recording.functions.len(), 2);
    }
}
