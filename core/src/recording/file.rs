//! A recording as a whole, read from the blocks of its journal or written as such: `x.wlprof`, written by `-o x.wlprof`,
//! read by `wlprof render`.

use super::build::{FunctionTable, Names};
use super::journal::{Block, End, MAGIC, NoBlock, OLDEST_VERSION, Progress, VERSION, read_block, write_all};
use super::unused::Tables;
use super::{
    Frame, FrameId, Function, Line, Meta, Module, ModuleId, NamedFrame, Origin, Recording, Sample, Stack, Store,
    Thread, TickCounts,
};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, Read, Write};
use wlprof_plugin::SourceFrame;

/// What the name of a recording's file ends with, after a dot.
pub const EXTENSION: &str = "wlprof";

/// Frames on a stack beyond which a file is not believed: some more than any sampler gives.
const MAX_DEPTH: u32 = 1 << 14;

/// Why a file is not a recording that can be read.
#[derive(Debug)]
pub enum ReadError {
    /// It does not begin with [`MAGIC`].
    NotARecording,
    /// It was written by another version.
    Version(u32),
    /// It has no beginning, or says what cannot be.
    Corrupt(String),
    /// It cannot be read.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARecording => {
                write!(f, "not a wlprof recording (make one with `wlprof -o x.{EXTENSION} GUEST`)")
            }
            Self::Version(found) => write!(
                f,
                "recording of format version {found} (supported: {OLDEST_VERSION} to {VERSION}); render it with the wlprof that made it"
            ),
            Self::Corrupt(what) => write!(f, "corrupt recording: {what}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

/// Writes a recording.
///
/// # Errors
/// Whatever `out` fails with.
pub fn write(recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    let Recording {
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
        sources: _,
    } = recording;
    let label_keys = (0..label_sets.len() as u64).map(|key| (0, vec![key])).collect();
    let tables = [
        Block::Start(meta.clone(), modules.clone()),
        Block::Frames(frames.iter().map(|frame| frame.origin).collect()),
        Block::Stacks(stacks.clone()),
        Block::LabelKeys(label_keys),
        Block::LabelSets(label_sets.clone()),
    ];
    let stores = (0..).zip(stores).flat_map(|(id, store)| {
        let memory = (!store.memory.is_empty()).then(|| Block::Memory(id, store.memory.clone()));
        [Block::Store { name: store.name.clone() }].into_iter().chain(memory)
    });
    let threads = (0..).zip(threads).flat_map(|(number, thread)| {
        let begin = Block::Thread { name: thread.name.clone(), tid: thread.tid, store: thread.store };
        let samples = thread.samples.blocks().map(move |block| Block::Samples(number, block.into()));
        let host_calls = Block::HostCalls(number, thread.host_calls.clone());
        [begin].into_iter().chain(samples).chain([host_calls])
    });
    let end = [
        Block::End(End { meta: meta.clone(), ticks: *ticks, truncated: truncated.clone() }),
        Block::Symbols {
            functions: functions.clone(),
            lines: frames.iter().map(|frame| frame.lines.clone()).collect(),
            notes: Vec::new(),
        },
    ];
    write_all(tables.into_iter().chain(stores).chain(threads).chain(end), out)
}

/// Reads a recording and checks that all its indices hold, so that nobody downstream needs to. What has no names in it is
/// called by its number.
///
/// # Errors
/// [`ReadError`] if the bytes are not a recording of this version.
pub fn read(mut bytes: &[u8]) -> Result<Recording, ReadError> {
    Ok(RawRecording::read(&mut bytes)?.named(&mut |origin: &Origin, out: &mut Vec<SourceFrame>| {
        out.push(SourceFrame { function: unnamed(origin), ..SourceFrame::default() });
    }))
}

/// What a frame is called that nobody has named.
pub fn unnamed(origin: &Origin) -> String {
    match *origin {
        Origin::Wasm { function, .. } => format!("wasm-function[{function}]"),
        Origin::Language { key, .. } => format!("[unknown frame {key:#x}]"),
        Origin::HostCall { .. } | Origin::Host => "[host]".to_owned(),
        Origin::Truncated => "[truncated]".to_owned(),
        Origin::Elided => "[elided]".to_owned(),
    }
}

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
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
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
            Block::Store { name } => self.stores.push(Store { name, ..Store::default() }),
            Block::Thread { name, tid, store } => {
                check((store as usize) < self.stores.len(), "stores")?;
                self.threads.push(Thread { name, tid, store, ..Thread::default() });
            }
            Block::Memory(store, sizes) => {
                let store = self.stores.get_mut(store as usize).ok_or("stores")?;
                // They stand beside the samples: one that is out of order is no reason to refuse these.
                for size in sizes {
                    if store.memory.last().is_none_or(|last| last.time_ns <= size.time_ns) {
                        store.memory.push(size);
                    }
                }
            }
            Block::Frames(frames) => {
                let holds = |origin: &Origin| match *origin {
                    Origin::Wasm { module, .. } | Origin::Language { module, .. } | Origin::HostCall { module, .. } => {
                        module_holds(module)
                    }
                    Origin::Host | Origin::Truncated | Origin::Elided => true,
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
            let Self { frames, stacks, threads, language_names, .. } = &mut self;
            Tables { frames, stacks, threads, language_names }.keep_used();
        }
        self
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
    pub fn named(self, names: &mut dyn Names) -> Recording {
        let Self {
            frames,
            stacks,
            modules,
            label_sets,
            stores,
            threads,
            progress,
            language_names,
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
        let frames = frames.into_iter().zip(lines).map(|(origin, lines)| Frame { origin, lines }).collect();
        let sources = BTreeMap::new();
        Recording { meta, modules, functions, frames, stacks, label_sets, stores, threads, ticks, truncated, sources }
    }
}

fn corrupt(what: &str) -> ReadError {
    ReadError::Corrupt(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::example;

    fn bytes(recording: &Recording) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(recording, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let recording = example();
        assert_eq!(read(&bytes(&recording)).unwrap(), recording);
    }

    #[test]
    fn every_cut_is_an_error_or_is_told_and_no_panic() {
        let whole = bytes(&example());
        for end in 0..whole.len() {
            let Ok(recording) = read(&whole[..end]) else { continue };
            let told = recording.meta.notes.iter().any(|note| note.contains("not whole"));
            // Without its last block, symbols, it is still what a run leaves.
            assert!(told || recording.functions.iter().all(|function| !function.name.is_empty()), "cut at {end}");
        }
    }

    #[test]
    fn indices_that_lead_nowhere_are_refused() {
        let mut recording = example();
        recording.stacks[0].parent = Some(0);
        let error = read(&bytes(&recording)).unwrap_err().to_string();
        assert!(error.contains("stacks"), "{error}");
    }

    #[test]
    fn memory_that_goes_back_in_time_is_left_out() {
        let mut recording = example();
        recording.stores[0].memory.reverse();
        let written = recording.stores[0].memory.clone();
        assert!(written.len() > 1 && written[0].time_ns > written[1].time_ns);
        recording.stores[0].memory.truncate(1);
        let expected = recording.clone();
        recording.stores[0].memory = written;
        assert_eq!(read(&bytes(&recording)).unwrap(), expected);
    }

    #[test]
    fn a_file_of_the_version_before_is_read() {
        let mut recording = example();
        recording.stores.iter_mut().for_each(|store| store.memory.clear());
        let mut whole = bytes(&recording);
        whole[MAGIC.len()] = 4;
        assert_eq!(read(&whole).unwrap(), recording);
    }

    #[test]
    fn another_version_is_named() {
        let mut whole = bytes(&example());
        whole[MAGIC.len()] = 9;
        assert!(read(&whole).unwrap_err().to_string().contains("version 9"));
    }
}
