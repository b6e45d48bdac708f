//! How a record says what a language's stack is: some words, the flags of the entries, the entries, the keys of labels.

use crate::recording::{LanguageTruncation, ModuleId};
use wlprof_plugin::{FrameSink, SinkEntry};

/// Words that a language's stack may take in a record.
pub(in crate::sampler) const MAX_WORDS: usize = HEADER + FLAGS + FrameSink::CAPACITY + FrameSink::LABEL_CAPACITY;
/// Words before the flags: how the walk ended, the number of keys of labels and that of entries; and the module. The entries
/// follow the flags, and the keys the entries.
const HEADER: usize = 2;
/// A bit for each entry: whether it is the index of a native frame instead of a key.
const FLAGS: usize = FrameSink::CAPACITY / 64;
/// Stands for the index of a native frame where frames were left out.
const ELIDED: u64 = u64::MAX - 1;

/// All reasons that a record can have.
const REASONS: [LanguageTruncation; 8] = [
    LanguageTruncation::InHostCode,
    LanguageTruncation::TooDeep,
    LanguageTruncation::BadPointer,
    LanguageTruncation::Cycle,
    LanguageTruncation::Inconsistent,
    LanguageTruncation::NoStack,
    LanguageTruncation::Panicked,
    LanguageTruncation::Busy,
];

/// One entry of a language's stack in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Entry {
    /// A frame of the plugin's own.
    Key(u64),
    /// The native frame at this index of the record stands here.
    Native(usize),
    /// Frames were left out here.
    Elided,
}

/// A language's stack in a record.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct LanguageStack<'a> {
    /// The module whose language it is.
    pub(in crate::sampler) module: ModuleId,
    pub(in crate::sampler) truncation: Option<LanguageTruncation>,
    /// Keys of its labels.
    pub(in crate::sampler) labels: &'a [u64],
    flags: &'a [u64],
    words: &'a [u64],
}

/// Writes what a walk has pushed into `sink` into `words`, and gives how many those are. `natives` are the indices of the wasm frames
/// that the walker was given among the record's native frames.
pub(super) fn write(
    sink: &FrameSink,
    natives: &[u16],
    module: ModuleId,
    truncation: Option<LanguageTruncation>,
    words: &mut [u64],
) -> usize {
    let (length, labels) = (sink.len(), sink.labels());
    words[0] = truncation.map_or(0, |reason| 1 + reason as u64) | (labels.len() as u64) << 8 | (length as u64) << 32;
    words[1] = module.into();
    let (flags, rest) = words[HEADER..].split_at_mut(FLAGS);
    let (entries, rest) = rest.split_at_mut(length);
    flags.fill(0);
    for (index, entry) in sink.entries().enumerate() {
        let mut native = |word| {
            flags[index / 64] |= 1 << (index % 64);
            word
        };
        entries[index] = match entry {
            SinkEntry::Own(key) => key,
            SinkEntry::Wasm(frame) => native(natives.get(frame).map_or(u64::MAX, |&native| native.into())),
            SinkEntry::Elided => native(ELIDED),
        };
    }
    rest[..labels.len()].copy_from_slice(labels);
    HEADER + FLAGS + length + labels.len()
}

impl<'a> LanguageStack<'a> {
    /// Reads what [`write`] wrote.
    pub(in crate::sampler) fn read(words: &'a [u64]) -> Self {
        let (length, label_count) = ((words[0] >> 32) as usize, (words[0] >> 8 & 0xff) as usize);
        let (flags, rest) = words[HEADER..].split_at(FLAGS);
        let (entries, labels) = rest.split_at(length);
        let truncation = REASONS.into_iter().find(|reason| 1 + *reason as u64 == words[0] & 0xff);
        let labels = &labels[..label_count];
        Self { module: words[1] as ModuleId, truncation, labels, flags, words: entries }
    }

    /// Whether it has no frames.
    pub(in crate::sampler) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Its frames, leaf first.
    pub(in crate::sampler) fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        self.words.iter().enumerate().map(move |(index, &word)| {
            match (self.flags[index / 64] >> (index % 64) & 1, word) {
                (0, key) => Entry::Key(key),
                (_, ELIDED) => Entry::Elided,
                (_, native) => Entry::Native(native as usize),
            }
        })
    }
}
