//! What one thread does for one store, as it is recorded: its samples and its host calls.

use super::journal::{Block, Journal};
use super::markers::HostCallTracker;
use super::numbers::Numbers;
use super::samples::Samples;
use super::{FrameId, HostCallSpan};

/// Which thread of which store a sample is of: its number among the threads of a [`Recording`](super::Recording).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrackId(pub(super) u32);

impl TrackId {
    /// That number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The same thread, of those that are kept.
    pub fn renumbered(self, threads: &Numbers) -> Self {
        Self(threads.new_of(self.0))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A thread of a store, with what is not in the journal yet.
#[derive(Debug)]
pub(super) struct Track {
    /// The operating system's id of the thread.
    pub(super) tid: u64,
    pub(super) samples: Samples,
    host_calls: Vec<HostCallSpan>,
    host_call: HostCallTracker,
}

impl Track {
    pub(super) fn new(tid: u64) -> Self {
        Self { tid, samples: Samples::default(), host_calls: Vec::new(), host_call: HostCallTracker::default() }
    }

    /// Notes that host call number `call` was going on at `time_ns`.
    pub(super) fn host_call(&mut self, call: u64, frame: FrameId, time_ns: u64, blocked: bool) {
        let ended = self.host_call.see(call, frame, time_ns, blocked);
        self.host_calls.extend(ended);
    }

    /// Notes that no host call was going on.
    pub(super) fn no_host_call(&mut self) {
        let ended = self.host_call.finish();
        self.host_calls.extend(ended);
    }

    /// The frame of the host call that is going on.
    pub(super) fn current_call(&self) -> Option<FrameId> {
        self.host_call.frame()
    }

    /// Gives frames their new numbers. All that was new has been written.
    pub(super) fn renumber(&mut self, frames: &Numbers) {
        self.host_call.renumber(frames);
    }

    /// Writes what is new, as thread `number`, if the tables that it refers to are written, and gives how many samples were
    /// lost.
    pub(super) fn write(&mut self, number: u32, tables_are_written: bool, journal: &mut Journal) -> u64 {
        let samples = self.samples.len();
        let block = self.samples.take_block();
        let host_calls = std::mem::take(&mut self.host_calls);
        let written = samples == 0 || (tables_are_written && journal.write(&Block::Samples(number, block)));
        if tables_are_written && !host_calls.is_empty() {
            journal.write(&Block::HostCalls(number, host_calls));
        }
        if written { 0 } else { samples }
    }
}
