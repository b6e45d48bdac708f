//! The thread that takes samples out of the ring and interns them.

use super::super::code_map::NativePc;
use super::super::session::Shared;
use super::record::Header;
use super::thread::GuestThread;
use super::walk::{FrameWord, WalkEnd};
use crate::recording::{FrameId, Origin, Recorder, Truncation};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long samples may wait in the ring.
const INTERVAL: Duration = Duration::from_millis(50);

/// What the drain saw.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// Samples recorded.
    pub(super) sampled: u64,
    /// Time in the handler of each sample.
    pub(super) pauses_ns: Vec<u32>,
}

/// Moves records from the ring into the recorder.
pub(super) struct Drain {
    thread: Arc<GuestThread>,
    /// Frames of each word seen, leaf first; empty for stubs.
    frames: FxHashMap<FrameWord, Vec<FrameId>>,
    root_first: Vec<FrameId>,
    drained: Drained,
}

impl Drain {
    /// Drains until `stop` is set, and then once more.
    pub(super) fn run(thread: Arc<GuestThread>, stop: &AtomicBool) -> Drained {
        let mut drain =
            Self { thread, frames: FxHashMap::default(), root_first: Vec::new(), drained: Drained::default() };
        loop {
            let last = stop.load(Ordering::Acquire);
            drain.empty_ring();
            if last {
                return drain.drained;
            }
            std::thread::park_timeout(INTERVAL);
        }
    }

    fn empty_ring(&mut self) {
        let thread = self.thread.clone();
        let shared = &thread.shared;
        let mut recorder = shared.recorder();
        // SAFETY: this is the ring's only consumer.
        while unsafe { thread.ring.pop(|words| self.record(words, shared, &mut recorder)) } {}
    }

    fn record(&mut self, words: &[u64], shared: &Shared, recorder: &mut Recorder) {
        let (header, end, leaf_first) = Header::read(words);
        let time_ns = header.time_ns.saturating_sub(self.thread.started_ns);
        let truncation = match end {
            WalkEnd::Complete => None,
            WalkEnd::TooDeep => Some(Truncation::TooDeep),
            WalkEnd::BrokenChain => Some(Truncation::BrokenChain),
        };
        self.root_first.clear();
        if truncation.is_some() {
            self.root_first.push(recorder.frame(Origin::Truncated));
        }
        for word in leaf_first.rev() {
            let frames = self.frames.entry(word).or_insert_with(|| frames_of(word, shared, recorder));
            self.root_first.extend(frames.iter().rev());
        }
        if self.root_first.is_empty() {
            self.root_first.push(recorder.frame(Origin::Host));
        }
        let leaf = self.root_first[self.root_first.len() - 1];
        if header.state != crate::recording::State::Guest {
            let blocked = header.state == crate::recording::State::Blocked;
            recorder.host_call(header.host_call, leaf, time_ns, blocked);
        }
        if !header.is_sample {
            return;
        }
        if let Some(reason) = truncation {
            recorder.truncated(reason);
        }
        let stack = recorder.stack(self.root_first.iter().copied()).expect("the stack has at least one frame");
        recorder.sample(time_ns, header.cpu_ns, header.period_ns, stack, header.state);
        self.drained.sampled += 1;
        if header.pause_ns > 0 {
            self.drained.pauses_ns.push(u32::try_from(header.pause_ns).unwrap_or(u32::MAX));
        }
    }
}

/// The frames that a word stands for, leaf first: none for a stub, two where host code runs on top of wasm.
fn frames_of(word: FrameWord, shared: &Shared, recorder: &mut Recorder) -> Vec<FrameId> {
    let pc = if word.is_exact() { NativePc::Exact(word.pc()) } else { NativePc::Return(word.pc()) };
    let Some(origin) = shared.code.origin(pc) else { return Vec::new() };
    let mut frames = Vec::new();
    if let (true, Origin::Wasm { module, function, code_offset }) = (word.is_host_call(), origin) {
        frames.push(recorder.frame(Origin::HostCall { module, function, code_offset }));
    }
    frames.push(recorder.frame(origin));
    frames
}
