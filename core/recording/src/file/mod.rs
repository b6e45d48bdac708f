//! A recording as a whole, read from the blocks of its journal or written as such: `x.wlprof`, written by `-o x.wlprof`,
//! read by `wlprof render`.

mod raw;

pub use raw::RawRecording;

use super::journal::{Block, End, VERSION, write_all};
use super::{ADAPTER, Meta, Module, ModuleId, Origin, Recording, Stack, Store, Thread};
use std::fmt;
use std::io::{self, Write};
use wlprof_plugin::SourceFrame;

/// What the name of a recording's file ends with, after a dot.
pub const EXTENSION: &str = "wlprof";

/// Why a file is not a recording that can be read.
#[derive(Debug)]
pub enum ReadError {
    /// It does not begin with [`MAGIC`](super::MAGIC).
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
                "recording of format version {found} (supported: {VERSION}); render it with the wlprof that made it"
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
        part: _,
    } = recording;
    let contents = Contents {
        meta,
        modules,
        frames: frames.iter().map(|frame| frame.origin).collect(),
        stacks,
        label_keys: (0..label_sets.len() as u64).map(|key| (0, vec![key])).collect(),
        label_sets,
        stores,
        threads,
    };
    let end = [
        Block::End(End { meta: meta.clone(), ticks: *ticks, truncated: truncated.clone() }),
        Block::Symbols {
            functions: functions.clone(),
            lines: frames.iter().map(|frame| frame.lines.clone()).collect(),
            notes: Vec::new(),
        },
    ];
    write_all(contents.blocks().chain(end), out)
}

/// What a recording has but for its end and its names.
struct Contents<'a> {
    meta: &'a Meta,
    modules: &'a [Module],
    frames: Vec<Origin>,
    stacks: &'a [Stack],
    label_keys: Vec<(ModuleId, Vec<u64>)>,
    /// Of the first sets.
    label_sets: &'a [Vec<(String, String)>],
    stores: &'a [Store],
    threads: &'a [Thread],
}

impl<'a> Contents<'a> {
    fn blocks(self) -> impl Iterator<Item = Block> + use<'a> {
        let tables = [
            Block::Start(self.meta.clone(), self.modules.to_vec()),
            Block::Architecture(self.meta.architecture.clone()),
            Block::Frames(self.frames),
            Block::Stacks(self.stacks.to_vec()),
            Block::LabelKeys(self.label_keys),
            Block::LabelSets(self.label_sets.to_vec()),
        ];
        let stores = (0..).zip(self.stores).flat_map(|(id, store)| {
            let memory = (!store.memory.is_empty()).then(|| Block::Memory(id, store.memory.clone()));
            let labels = (!store.labels.is_empty()).then(|| Block::StoreLabels(id, store.labels.clone()));
            let heap = store.heap.clone().map(|heap| Block::Heap(id, heap));
            [Block::Store { name: store.name.clone() }].into_iter().chain(memory).chain(labels).chain(heap)
        });
        let threads = (0..).zip(self.threads).flat_map(|(number, thread)| {
            let begin = Block::Thread { name: thread.name.clone(), tid: thread.tid, store: thread.store };
            let samples = thread.samples.blocks().map(move |block| Block::Samples(number, block.into()));
            let host_calls = Block::HostCalls(number, thread.host_calls.clone());
            [begin].into_iter().chain(samples).chain([host_calls])
        });
        let requests = &self.meta.requests;
        let requests = (!requests.is_empty()).then(|| Block::Requests(requests.clone()));
        tables.into_iter().chain(stores).chain(threads).chain(requests)
    }
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
        Origin::HostCall { .. } | Origin::Native { .. } | Origin::Host => "[host]".to_owned(),
        Origin::Truncated => "[truncated]".to_owned(),
        Origin::Elided => "[elided]".to_owned(),
        Origin::Adapter => ADAPTER.to_owned(),
    }
}

fn corrupt(what: &str) -> ReadError {
    ReadError::Corrupt(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TRACK, with_modules};
    use crate::{INSTANCE, LanguageNames, MAGIC, Names, Sample, State, TickCounts, example};
    use wlprof_plugin::Label;

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
    fn samples_are_labelled_with_the_instance_that_they_are_in() {
        struct Instances;
        impl Names for Instances {
            fn frames(&mut self, origin: &Origin, out: &mut Vec<SourceFrame>) {
                out.push(SourceFrame { function: unnamed(origin), ..SourceFrame::default() });
            }
            fn instance(&self, module: ModuleId) -> Option<&str> {
                [Some("app"), None, Some("glue"), Some("lib")][module as usize]
            }
            fn is_glue(&self, module: ModuleId) -> bool {
                module == 2
            }
        }
        let mut recorder = with_modules(4);
        let wasm = |module| Origin::Wasm { module, function: 0, code_offset: 0 };
        let own = recorder.labels(0, &[7]);
        // Root first.
        let cases = [
            (vec![wasm(0)], Some("app")),
            (vec![wasm(0), Origin::Adapter, wasm(3)], Some("lib")),
            (vec![wasm(0), wasm(3), Origin::Adapter], Some("lib")),
            (vec![wasm(0), wasm(3), wasm(2), Origin::Host], Some("lib")),
            (vec![wasm(0), wasm(1)], None),
            (vec![Origin::Host], None),
        ];
        for (stack, _) in &cases {
            let frames: Vec<_> = stack.iter().map(|origin| recorder.frame(*origin)).collect();
            let stack = recorder.stack(frames).unwrap();
            let state = State::Guest;
            let sample = Sample { time_ns: 0, cpu_delta_ns: 0, period_ns: 1, stack, state, labels: Some(own) };
            recorder.sample(TRACK, 0, sample);
        }
        struct Labels;
        impl LanguageNames for Labels {
            fn own_frame(&mut self, _: ModuleId, _: u64, _: &mut Vec<SourceFrame>) {}
            fn labels(&mut self, _: ModuleId, _: u64) -> Vec<Label> {
                vec![Label { name: INSTANCE.to_owned(), value: "the guest's".to_owned() }]
            }
            fn notes(&mut self) -> Vec<String> {
                Vec::new()
            }
        }
        let journal = recorder.close(Meta::default(), TickCounts::default(), &mut Labels);
        let raw = RawRecording::read(&mut *journal.into_reader().unwrap()).unwrap();
        let recording = raw.named(&mut Instances);
        let guests = ("guest.instance".to_owned(), "the guest's".to_owned());
        for (sample, (stack, instance)) in recording.samples().zip(&cases) {
            let labels = &recording.label_sets[sample.labels.unwrap() as usize];
            let expected = match instance {
                Some(instance) => vec![(INSTANCE.to_owned(), (*instance).to_owned()), guests.clone()],
                None => vec![(INSTANCE.to_owned(), guests.1.clone())],
            };
            assert_eq!(labels, &expected, "{stack:?}");
        }
        assert_eq!(read(&bytes(&recording)).unwrap(), recording, "they are not given again");
    }

    #[test]
    fn samples_have_the_labels_of_their_stores_once() {
        let mut recording = example();
        let tenant = ("tenant".to_owned(), "ada".to_owned());
        let store = recording.threads[0].store;
        recording.stores[store as usize].labels.push(tenant.clone());
        let first = recording.threads[0].samples.iter().find_map(|sample| sample.labels).unwrap();
        recording.label_sets[first as usize].push(("tenant".to_owned(), "bob".to_owned()));
        let labelled = read(&bytes(&recording)).unwrap();
        assert_eq!(labelled.stores, recording.stores);
        let sets = |thread: usize| labelled.threads[thread].samples.iter().map(|sample| sample.labels);
        let set = |id: Option<u32>| id.map_or(&[][..], |id| &labelled.label_sets[id as usize]);
        for (now, before) in sets(0).zip(recording.threads[0].samples.iter()) {
            let own = before.labels.map_or(&[][..], |id| &recording.label_sets[id as usize]);
            // The first says of itself that it is another's.
            let own = own.iter().map(|(name, value)| match &**name {
                "tenant" => ("guest.tenant".to_owned(), value.clone()),
                _ => (name.clone(), value.clone()),
            });
            assert_eq!(set(now), std::iter::once(tenant.clone()).chain(own).collect::<Vec<_>>());
        }
        for (number, thread) in labelled.threads.iter().enumerate().filter(|(_, thread)| thread.store != store) {
            assert!(
                sets(number).eq(recording.threads[number].samples.iter().map(|sample| sample.labels)),
                "{thread:?}"
            );
        }
        assert_eq!(read(&bytes(&labelled)).unwrap(), labelled, "they are not given again");
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
    fn another_version_is_named() {
        let mut whole = bytes(&example());
        whole[MAGIC.len()] = VERSION as u8 + 1;
        let named = format!("version {}", VERSION + 1);
        assert!(read(&whole).unwrap_err().to_string().contains(&named));
    }
}
