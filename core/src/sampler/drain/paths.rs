//! From what records say of stacks to interned ones. Stacks that follow each other on a thread mostly have their root ends in
//! common, so that only what is new of one is looked up.

use super::super::reading::Record;
use super::super::shared::Shared;
use std::collections::HashMap;
use wlprof_module::ModuleImage;
use wlprof_recording::{FrameId, Keyed, ModuleId, Origin, Recorder, StackId, keyed};
use wlprof_walk::{FrameWord, LanguageEntry};

/// What a record says of one place of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A wasm frame, and the host code that it calls, if it does.
    Native(FrameWord),
    /// Of a frame that calls the host, only itself.
    Caller(FrameWord),
    /// Of a frame that calls the host, only the call.
    HostCall(FrameWord),
    /// A frame of a language's own.
    Language(ModuleId, u64),
    /// Frames that a walker left out, or of a stack that is too deep.
    Elided,
    /// Frames that are missing at the root.
    Truncated,
    /// Host code outside wasm.
    Host,
}

/// The frames that a native frame stands for, leaf first: none for a stub, two where host code runs on top of wasm.
type NativeFrames = [Option<FrameId>; 2];

/// The frames of all native frames seen.
pub(super) struct FrameTable {
    native: HashMap<FrameWord, NativeFrames, Keyed>,
    /// A module that was not loaded was seen on the stack, which it may be by the next.
    has_missed: bool,
}

impl FrameTable {
    pub(super) fn new() -> Self {
        Self { native: HashMap::with_hasher(keyed()), has_missed: false }
    }

    fn native(&mut self, word: FrameWord, shared: &Shared, recorder: &mut Recorder) -> NativeFrames {
        if let Some(frames) = self.native.get(&word) {
            return *frames;
        }
        let code = shared.code.read();
        let frames = match code.origin(word.native_pc()) {
            Some(origin) => {
                let host_call = match origin {
                    Origin::Wasm { module, function, code_offset } if word.is_host_call() => {
                        Some(recorder.frame(Origin::HostCall { module, function, code_offset }))
                    }
                    // Of what its adapters call it for, a component does not say.
                    Origin::Adapter if word.is_host_call() => Some(recorder.frame(Origin::Host)),
                    _ => None,
                };
                [host_call, Some(recorder.frame(origin))]
            }
            // A stub.
            None if code.knows(word.native_pc()) => [None; 2],
            None => {
                self.has_missed = true;
                return [None; 2];
            }
        };
        self.native.insert(word, frames);
        frames
    }

    /// The frames of a step, leaf first.
    fn frames(&mut self, step: Step, shared: &Shared, recorder: &mut Recorder) -> NativeFrames {
        match step {
            Step::Native(word) => self.native(word, shared, recorder),
            Step::Caller(word) => [None, self.native(word, shared, recorder)[1]],
            // None if the call was the entry frame's own: of an import that the outermost function ended with.
            Step::HostCall(word) => {
                let [call, caller] = self.native(word, shared, recorder);
                [call.or(caller), None]
            }
            Step::Language(module, key) => [Some(recorder.frame(Origin::Language { module, key })), None],
            Step::Elided => [Some(recorder.frame(Origin::Elided)), None],
            Step::Truncated => [Some(recorder.frame(Origin::Truncated)), None],
            Step::Host => [Some(recorder.frame(Origin::Host)), None],
        }
    }
}

/// The frame whose instruction says what the host was called for, if it was: the leaf, or its caller where the leaf but stands in for the host.
fn host_call(record: &Record<'_>, shared: &Shared) -> Option<FrameWord> {
    let leaf = record.frame(0).filter(|leaf| leaf.is_host_call())?;
    let stands_in = shared.code.read().image(leaf.native_pc()).is_some_and(ModuleImage::stands_in);
    let caller = record.frame(1).filter(|_| stands_in).map(|caller| FrameWord::calls_host(caller.pc()));
    Some(caller.unwrap_or(leaf))
}

/// An interned stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InternedStack {
    pub(super) leaf: FrameId,
    pub(super) stack: StackId,
}

/// The last stack of a thread.
#[derive(Default)]
pub(super) struct Path {
    /// Root first, with the stack up to each; none if that has no frame yet.
    steps: Vec<(Step, Option<InternedStack>)>,
    /// The next stack, leaf first.
    next: Vec<Step>,
}

impl Path {
    /// Begins the next stack.
    pub(super) fn begin(&mut self) {
        self.next.clear();
    }

    /// Adds what comes next, from the leaf to the root.
    pub(super) fn push(&mut self, step: Step) {
        self.next.push(step);
    }

    /// Adds a wasm stack.
    pub(super) fn push_native(&mut self, record: &Record<'_>, shared: &Shared) {
        let words = || record.frames.iter().map(|&word| FrameWord(word));
        let step = |word: FrameWord| if word == FrameWord::ELIDED { Step::Elided } else { Step::Native(word) };
        match (words().next(), host_call(record, shared)) {
            (Some(leaf), Some(call)) if call != leaf => {
                self.next.extend([Step::HostCall(call), Step::Caller(leaf)]);
                self.next.extend(words().skip(1).map(step));
            }
            _ => self.next.extend(words().map(step)),
        }
    }

    /// Adds a language's stack, and gives whether it is what a walker may say.
    pub(super) fn push_language(
        &mut self,
        record: &Record<'_>,
        module: ModuleId,
        entries: impl Iterator<Item = LanguageEntry>,
        shared: &Shared,
    ) -> bool {
        self.next.extend(host_call(record, shared).map(Step::HostCall));
        let mut is_consistent = true;
        for entry in entries {
            match entry {
                LanguageEntry::Key(key) => self.push(Step::Language(module, key)),
                LanguageEntry::Elided => self.push(Step::Elided),
                LanguageEntry::Native(index) => match record.frame(index) {
                    // The call has its place already.
                    Some(word) if word.is_host_call() && index == 0 => self.push(Step::Caller(word)),
                    Some(word) => self.push(Step::Native(word)),
                    // The plugin said that a frame stands here that there is not.
                    None => is_consistent = false,
                },
            }
        }
        is_consistent
    }

    /// Leaves out the wasm frames at the leaf end that `is_left_out` says so of, with host code that they call.
    pub(super) fn leave_out_leaves(&mut self, is_left_out: impl Fn(FrameWord) -> bool) {
        let is_left_out = |step: &Step| match step {
            Step::Native(word) | Step::Caller(word) | Step::HostCall(word) => is_left_out(*word),
            Step::Language(..) | Step::Elided | Step::Truncated | Step::Host => false,
        };
        let kept = self.next.iter().position(|step| !is_left_out(step)).unwrap_or(self.next.len());
        self.next.drain(..kept);
    }

    /// Interns the stack that has been added; of host code alone, if it has no frame.
    pub(super) fn intern(
        &mut self,
        frames: &mut FrameTable,
        shared: &Shared,
        recorder: &mut Recorder,
    ) -> InternedStack {
        let known = self.steps.iter().zip(self.next.iter().rev()).take_while(|((before, _), now)| before == *now);
        let known = known.count();
        self.steps.truncate(known);
        let new = self.next.len() - known;
        for index in (0..new).rev() {
            let step = self.next[index];
            let mut interned = self.steps.last().and_then(|(_, interned)| *interned);
            for leaf in frames.frames(step, shared, recorder).into_iter().rev().flatten() {
                match recorder.stack_on(interned.map(|interned| interned.stack), leaf) {
                    Some(stack) => interned = Some(InternedStack { leaf, stack }),
                    None => return self.without_room(index, frames, shared, recorder),
                }
            }
            self.steps.push((step, interned));
        }
        let interned = self.steps.last().and_then(|(_, interned)| *interned);
        if std::mem::take(&mut frames.has_missed) {
            self.steps.clear();
        }
        match interned {
            Some(interned) => interned,
            None => {
                self.steps.clear();
                self.next.clear();
                self.push(Step::Host);
                self.intern(frames, shared, recorder)
            }
        }
    }

    /// The stack of its leaf alone: there is no room for the frames of the step at `index`.
    #[cold]
    fn without_room(
        &mut self,
        index: usize,
        frames: &mut FrameTable,
        shared: &Shared,
        recorder: &mut Recorder,
    ) -> InternedStack {
        let steps = self.next[..=index].iter();
        let mut leaf_first = steps.flat_map(|step| frames.frames(*step, shared, recorder)).flatten();
        let leaf = leaf_first.next().expect("the step has a frame");
        InternedStack { leaf, stack: recorder.leaf_alone(leaf) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::options::SamplerOptions;

    #[test]
    fn stacks_are_those_of_their_frames_whatever_was_before() {
        let shared = Shared::new(SamplerOptions::default(), Recorder::default());
        let (mut path, mut frames, mut recorder) = (Path::default(), FrameTable::new(), Recorder::default());
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |end: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % end
        };
        recorder.set_small_limits();
        let [call, caller] = [1, 2].map(|key| recorder.frame(Origin::Language { module: 1, key }));
        let (stub, calling) = (FrameWord(1), FrameWord(2));
        frames.native.extend([(stub, [None; 2]), (calling, [Some(call), Some(caller)])]);
        let mut truncated = 0;
        while truncated < 100 {
            // Of few frames, so that root ends recur, and then of more and more, until there is no room.
            let kinds = 8 + recorder.stack_count() as u64 / 100;
            let stack: Vec<Step> = (0..below(12))
                .map(|_| match below(kinds) {
                    0 => Step::Native(stub),
                    1 => Step::Native(calling),
                    2 => Step::Caller(calling),
                    3 => Step::HostCall(calling),
                    4 => Step::Elided,
                    key => Step::Language(0, key),
                })
                .collect();
            path.begin();
            stack.iter().for_each(|step| path.push(*step));
            let found = path.intern(&mut frames, &shared, &mut recorder);
            let mut expected = Vec::new();
            for step in stack {
                match step {
                    Step::Native(word) if word == stub => {}
                    Step::Native(_) => expected.extend([call, caller]),
                    Step::Caller(_) => expected.push(caller),
                    Step::HostCall(_) => expected.push(call),
                    Step::Language(module, key) => expected.push(recorder.frame(Origin::Language { module, key })),
                    _ => expected.push(recorder.frame(Origin::Elided)),
                }
            }
            if expected.is_empty() {
                expected.push(recorder.frame(Origin::Host));
            }
            let leaf = expected[0];
            let before = recorder.truncated_counts();
            let stack = recorder.stack(expected.into_iter().rev()).unwrap();
            assert_eq!(found, InternedStack { leaf, stack });
            truncated += u64::from(recorder.truncated_counts() != before);
        }
    }
}
