//! What a record in the ring says: a header of some words, then the frames.

use super::walk::{FrameWord, Frames, WalkEnd};
use crate::recording::State;

const TIME: usize = 1;
const CPU: usize = 2;
const PERIOD: usize = 3;
const HOST_CALL: usize = 4;
const PAUSE: usize = 5;
const KIND: usize = 6;
const FRAMES: usize = 7;

/// What is known of a tick beside its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    /// The thread's CPU clock at the tick.
    pub(super) cpu_ns: u64,
    /// Time between ticks then.
    pub(super) period_ns: u64,
    /// Number of the host call that was going on, if one was.
    pub(super) host_call: u64,
    /// Time spent in the handler; 0 if the thread was not stopped.
    pub(super) pause_ns: u64,
    pub(super) state: State,
    /// `false`: the tick is no sample, only a sighting of a host call.
    pub(super) is_sample: bool,
}

impl Header {
    /// Writes a record: `walk` fills the frames, `finish` may correct the header. Returns the record's length.
    pub(super) fn write(
        mut self,
        words: &mut [u64],
        walk: impl FnOnce(&mut Frames<'_>) -> WalkEnd,
        finish: impl FnOnce(&mut Self),
    ) -> usize {
        let (header, rest) = words.split_at_mut(FRAMES);
        let mut frames = Frames::new(rest);
        let end = walk(&mut frames);
        finish(&mut self);
        let state = match self.state {
            State::Guest => 0,
            State::Host => 1,
            State::Blocked => 2,
        };
        header[TIME] = self.time_ns;
        header[CPU] = self.cpu_ns;
        header[PERIOD] = self.period_ns;
        header[HOST_CALL] = self.host_call;
        header[PAUSE] = self.pause_ns;
        header[KIND] = state | (end as u64) << 8 | u64::from(self.is_sample) << 16;
        FRAMES + frames.len()
    }

    /// Reads a record.
    pub(super) fn read(words: &[u64]) -> (Self, WalkEnd, impl DoubleEndedIterator<Item = FrameWord>) {
        let header = Self {
            time_ns: words[TIME],
            cpu_ns: words[CPU],
            period_ns: words[PERIOD],
            host_call: words[HOST_CALL],
            pause_ns: words[PAUSE],
            state: match words[KIND] & 0xff {
                0 => State::Guest,
                1 => State::Host,
                _ => State::Blocked,
            },
            is_sample: words[KIND] >> 16 & 1 == 1,
        };
        let end = WalkEnd::from_u8((words[KIND] >> 8) as u8);
        (header, end, words[FRAMES..].iter().map(|&word| FrameWord(word)))
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
            period_ns: 3,
            host_call: 4,
            pause_ns: 0,
            state: State::Blocked,
            is_sample: true,
        };
        let mut words = [0; 32];
        let length = header.write(&mut words, |_| WalkEnd::BrokenChain, |header| header.pause_ns = 5);
        let (read, end, frames) = Header::read(&words[..length]);
        assert_eq!(read, Header { pause_ns: 5, ..header });
        assert_eq!((end, frames.count()), (WalkEnd::BrokenChain, 0));
    }
}
