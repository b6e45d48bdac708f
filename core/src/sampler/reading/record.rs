//! What a record in the ring says: a header of some words, then the frames.

use wlprof_recording::State;
use wlprof_walk::{FrameWord, Frames, LanguageStack, MAX_FRAMES, MAX_LANGUAGE_WORDS, WalkTruncation};

const TIME: usize = 1;
const CPU: usize = 2;
const PERIOD: usize = 3;
const WEIGHT: usize = 4;
const HOST_CALL: usize = 5;
const PAUSE: usize = 6;
const KIND: usize = 7;
const STORE: usize = 8;
const ENTRY: usize = 9;
const USED: usize = 10;
const MEMORY: usize = 11;
const FRAMES: usize = 12;
/// Most words that a record may have.
pub(in crate::sampler) const MAX_WORDS: usize = FRAMES + MAX_FRAMES + MAX_LANGUAGE_WORDS;

/// What is known of a tick beside its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) struct Header {
    /// `CLOCK_MONOTONIC`.
    pub(in crate::sampler) time_ns: u64,
    /// The thread's CPU clock at the tick.
    pub(in crate::sampler) cpu_ns: u64,
    /// The time that the sample stands for.
    pub(in crate::sampler) weight_ns: u64,
    /// Of that, CPU time of the thread.
    pub(in crate::sampler) used_ns: u64,
    /// Time between samples then.
    pub(in crate::sampler) period_ns: u64,
    /// Number of the store.
    pub(in crate::sampler) store: u64,
    /// Number of the store's entry into wasm that ran, if one did.
    pub(in crate::sampler) entry: u64,
    /// Number of the host call of the store that was going on, if one was.
    pub(in crate::sampler) host_call: u64,
    /// CPU time spent in the handler; 0 if the thread was not stopped.
    pub(in crate::sampler) pause_ns: u64,
    /// Size of the store's memory, in bytes.
    pub(in crate::sampler) memory_bytes: u64,
    pub(in crate::sampler) state: State,
    pub(in crate::sampler) kind: Kind,
}

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Kind {
    /// A sample.
    Sample,
    /// A sample in a host call whose language stack follows when the call returns.
    AwaitsLanguage,
    /// A sample while no wasm was open; what the language's tasks awaited then follows when some is entered.
    AwaitsTasks,
    /// The language stack of the samples that await it: all of the host call that is returning, or all of before wasm is entered.
    Language,
    /// No sample, only a sighting of a host call.
    Sighting,
    /// No sample: the entry has ended, and with it the host call whose language stack samples await.
    Ended,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Sample, Self::AwaitsLanguage, Self::AwaitsTasks, Self::Language, Self::Sighting, Self::Ended];
}

/// What a record says.
pub(in crate::sampler) struct Record<'a> {
    pub(in crate::sampler) header: Header,
    /// Whether the wasm stack is whole.
    pub(in crate::sampler) walked: Result<(), WalkTruncation>,
    /// Leaf first.
    pub(in crate::sampler) frames: &'a [u64],
    pub(in crate::sampler) language: Option<LanguageStack<'a>>,
}

impl Record<'_> {
    /// The frame at `index`, counted from the leaf.
    pub(in crate::sampler) fn frame(&self, index: usize) -> Option<FrameWord> {
        self.frames.get(index).map(|&word| FrameWord(word))
    }
}

impl Header {
    /// Writes a record: `walk` fills the frames, `collect` is given them and adds the language's stack, the number of
    /// whose words it returns (0 for none), and `finish` may correct the header. Returns the record's length.
    pub(in crate::sampler) fn write(
        mut self,
        words: &mut [u64],
        walk: impl FnOnce(&mut Frames<'_>) -> Result<(), WalkTruncation>,
        collect: impl FnOnce(&[u64], &mut [u64]) -> usize,
        finish: impl FnOnce(&mut Self),
    ) -> usize {
        let (header, rest) = words.split_at_mut(FRAMES);
        let mut frames = Frames::new(rest);
        let walked = walk(&mut frames);
        let end = match walked.and(frames.finish()) {
            Ok(()) => 0,
            Err(WalkTruncation::Elided) => 1,
            Err(WalkTruncation::BrokenChain) => 2,
            Err(WalkTruncation::TooManyEntries) => 3,
        };
        let (length, leaves) = (frames.len(), frames.leaves());
        let (frames, rest) = rest.split_at_mut(length);
        let language = collect(&frames[..leaves], rest);
        finish(&mut self);
        let state = match self.state {
            // What checks tell of it is not known before their code is looked at.
            State::Guest | State::Returned | State::Entering => 0,
            State::Host => 1,
            State::Blocked => 2,
        };
        header[TIME] = self.time_ns;
        header[CPU] = self.cpu_ns;
        header[PERIOD] = self.period_ns;
        header[WEIGHT] = self.weight_ns;
        header[USED] = self.used_ns;
        header[HOST_CALL] = self.host_call;
        header[PAUSE] = self.pause_ns;
        header[STORE] = self.store;
        header[ENTRY] = self.entry;
        header[MEMORY] = self.memory_bytes;
        header[KIND] = state | end << 8 | (self.kind as u64) << 16 | (length as u64) << 32;
        FRAMES + length + language
    }

    /// When the record was begun, of its words.
    pub(in crate::sampler) fn time_ns(words: &[u64]) -> u64 {
        words[TIME]
    }

    /// Reads a record.
    pub(in crate::sampler) fn read(words: &[u64]) -> Record<'_> {
        let length = (words[KIND] >> 32) as usize;
        let (frames, language) = words[FRAMES..].split_at(length);
        let header = Self {
            time_ns: words[TIME],
            cpu_ns: words[CPU],
            weight_ns: words[WEIGHT],
            used_ns: words[USED],
            period_ns: words[PERIOD],
            store: words[STORE],
            entry: words[ENTRY],
            host_call: words[HOST_CALL],
            pause_ns: words[PAUSE],
            memory_bytes: words[MEMORY],
            state: match words[KIND] & 0xff {
                0 => State::Guest,
                1 => State::Host,
                _ => State::Blocked,
            },
            kind: Kind::ALL[(words[KIND] >> 16 & 7) as usize],
        };
        let walked = match words[KIND] >> 8 & 0xff {
            0 => Ok(()),
            1 => Err(WalkTruncation::Elided),
            2 => Err(WalkTruncation::BrokenChain),
            _ => Err(WalkTruncation::TooManyEntries),
        };
        let language = (!language.is_empty()).then(|| LanguageStack::read(language));
        Record { header, walked, frames, language }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let header = Header {
            time_ns: 1,
            cpu_ns: 2,
            weight_ns: 6,
            used_ns: 7,
            period_ns: 3,
            store: 7,
            entry: 8,
            host_call: 4,
            pause_ns: 0,
            memory_bytes: 9,
            state: State::Blocked,
            kind: Kind::AwaitsLanguage,
        };
        let mut words = [0; 32];
        let length =
            header.write(&mut words, |_| Err(WalkTruncation::BrokenChain), |_, _| 0, |header| header.pause_ns = 5);
        let read = Header::read(&words[..length]);
        assert_eq!(read.header, Header { pause_ns: 5, ..header });
        assert_eq!((read.walked, read.frames.len()), (Err(WalkTruncation::BrokenChain), 0));
        assert!(read.language.is_none());
    }
}
