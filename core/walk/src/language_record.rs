//! How a record says what a language's stack is: some words, the flags of the entries, the entries, the keys of labels.

use wlprof_plugin::{FrameSink, SinkEntry};
use wlprof_recording::{LanguageTruncation, ModuleId};

/// Words that a language's stack may take in a record: see [`LanguageStacks::collect`](crate::LanguageStacks::collect).
pub const MAX_LANGUAGE_WORDS: usize = HEADER + FLAGS + FrameSink::CAPACITY + FrameSink::LABEL_CAPACITY;
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
///
/// ```
/// use wlprof_walk::LanguageEntry;
///
/// // The frame with the plugin's key 7 stands where the plugin left the interpreter's own out.
/// assert_ne!(LanguageEntry::Key(7), LanguageEntry::Native(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanguageEntry {
    /// A frame of the plugin's own.
    Key(u64),
    /// The native frame at this index of the record stands here.
    Native(usize),
    /// Frames were left out here.
    Elided,
}

/// A language's stack in a record, as [`LanguageStacks::collect`](crate::LanguageStacks::collect) has written it.
#[derive(Clone, Copy, Debug)]
pub struct LanguageStack<'a> {
    /// The module whose language it is.
    pub module: ModuleId,
    /// The reason why it is not whole, if it is not.
    pub truncation: Option<LanguageTruncation>,
    /// Keys of its labels.
    pub labels: &'a [u64],
    flags: &'a [u64],
    words: &'a [u64],
}

/// Which of a record's native frames a walker was given, and which it was not though they are on the stack as well: those of code that
/// works on other memories. By their indices, in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Natives<'a> {
    pub(super) given: &'a [u16],
    pub(super) others: &'a [u16],
}

/// Writes what a walk has pushed into `sink` into `words`, and gives how many those are. Frames that the walker was not given come before
/// the next one that it has passed on, those before all that it was given first, and those behind them last.
pub(super) fn write(
    sink: &FrameSink,
    natives: Natives<'_>,
    module: ModuleId,
    truncation: Option<LanguageTruncation>,
    words: &mut [u64],
) -> usize {
    let (head, rest) = words.split_at_mut(HEADER);
    let (flags, rest) = rest.split_at_mut(FLAGS);
    flags.fill(0);
    let mut entries = Entries { words: rest, flags, length: 0, others: natives.others };
    if !sink.is_empty() {
        entries.push_others_before(natives.given.first().copied().unwrap_or(u16::MAX));
        for entry in sink.entries() {
            match entry {
                SinkEntry::Own(key) => entries.push(key, false),
                SinkEntry::Elided => entries.push(ELIDED, true),
                SinkEntry::Wasm(frame) => {
                    let native = natives.given.get(frame).copied();
                    native.into_iter().for_each(|native| entries.push_others_before(native));
                    entries.push(native.map_or(u64::MAX, u64::from), true);
                }
            }
        }
        entries.push_others_before(u16::MAX);
    }
    let (length, labels) = (entries.length, sink.labels());
    // Frames at the root may have had no room.
    let truncation = truncation.or((length > FrameSink::CAPACITY).then_some(LanguageTruncation::TooDeep));
    let length = length.min(FrameSink::CAPACITY);
    rest[length..][..labels.len()].copy_from_slice(labels);
    head[0] = truncation.map_or(0, |reason| 1 + reason as u64) | (labels.len() as u64) << 8 | (length as u64) << 32;
    head[1] = module.into();
    HEADER + FLAGS + length + labels.len()
}

/// The entries of a record that is being written.
struct Entries<'a> {
    words: &'a mut [u64],
    flags: &'a mut [u64],
    /// With those that had no room.
    length: usize,
    /// What has yet to be put among them.
    others: &'a [u16],
}

impl Entries<'_> {
    fn push(&mut self, word: u64, is_native: bool) {
        if self.length < FrameSink::CAPACITY {
            self.words[self.length] = word;
            self.flags[self.length / 64] |= u64::from(is_native) << (self.length % 64);
        }
        self.length += 1;
    }

    fn push_others_before(&mut self, native: u16) {
        while let [first, rest @ ..] = self.others
            && *first < native
        {
            self.others = rest;
            self.push((*first).into(), true);
        }
    }
}

impl<'a> LanguageStack<'a> {
    /// Reads the words of a record.
    pub fn read(words: &'a [u64]) -> Self {
        let (length, label_count) = ((words[0] >> 32) as usize, (words[0] >> 8 & 0xff) as usize);
        let (flags, rest) = words[HEADER..].split_at(FLAGS);
        let (entries, labels) = rest.split_at(length);
        let truncation = REASONS.into_iter().find(|reason| 1 + *reason as u64 == words[0] & 0xff);
        let labels = &labels[..label_count];
        Self { module: words[1] as ModuleId, truncation, labels, flags, words: entries }
    }

    /// Returns whether it has no frames.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns its frames, leaf first.
    pub fn entries(self) -> impl Iterator<Item = LanguageEntry> + 'a {
        self.words.iter().enumerate().map(move |(index, &word)| {
            match (self.flags[index / 64] >> (index % 64) & 1, word) {
                (0, key) => LanguageEntry::Key(key),
                (_, ELIDED) => LanguageEntry::Elided,
                (_, native) => LanguageEntry::Native(native as usize),
            }
        })
    }
}
