//! Leaves out of a recording what no sample refers to: a part of a long run has all stacks of the run in its tables.

use super::{FrameId, NamedFrame, Origin, Stack, StackId, Thread};
use std::collections::HashMap;

/// The tables of a recording whose frames have no symbols yet.
pub(super) struct Tables<'a> {
    pub(super) frames: &'a mut Vec<Origin>,
    pub(super) stacks: &'a mut Vec<Stack>,
    pub(super) threads: &'a mut Vec<Thread>,
    pub(super) language_names: &'a mut HashMap<FrameId, Vec<NamedFrame>>,
}

/// For each item of a table its new number, if it is kept.
struct Numbers(Vec<Option<u32>>);

impl Numbers {
    fn of(used: &[bool]) -> Self {
        let mut next = 0;
        let number = |used: &bool| {
            used.then(|| {
                next += 1;
                next - 1
            })
        };
        Self(used.iter().map(number).collect())
    }

    /// The new number of what is used.
    fn new_of(&self, id: u32) -> u32 {
        self.0[id as usize].unwrap_or_default()
    }

    fn retain<T>(&self, items: &mut Vec<T>) {
        let mut used = self.0.iter();
        items.retain(|_| used.next().is_some_and(Option::is_some));
    }
}

impl Tables<'_> {
    /// Leaves out stacks and frames that are in no sample and no host call, and numbers the others anew. Threads keep their places.
    pub(super) fn keep_used(self) {
        let Self { frames, stacks, threads, language_names } = self;
        let mut used_stacks = vec![false; stacks.len()];
        threads
            .iter()
            .flat_map(|thread| thread.samples.iter())
            .for_each(|sample| used_stacks[sample.stack as usize] = true);
        // A parent stands before its children.
        for id in (0..stacks.len()).rev().filter(|&id| used_stacks[id]).collect::<Vec<_>>() {
            mark_parents(id as StackId, stacks, &mut used_stacks);
        }
        let mut used_frames = vec![false; frames.len()];
        let in_stacks = stacks.iter().zip(&used_stacks).filter(|(_, used)| **used).map(|(stack, _)| stack.frame);
        let in_calls = threads.iter().flat_map(|thread| thread.host_calls.iter().map(|call| call.frame));
        in_stacks.chain(in_calls).for_each(|frame| used_frames[frame as usize] = true);
        if used_stacks.iter().chain(&used_frames).all(|used| *used) {
            return;
        }
        let (new_stacks, new_frames) = (Numbers::of(&used_stacks), Numbers::of(&used_frames));
        new_frames.retain(frames);
        new_stacks.retain(stacks);
        for stack in stacks {
            stack.frame = new_frames.new_of(stack.frame);
            stack.parent = stack.parent.map(|parent| new_stacks.new_of(parent));
        }
        for thread in threads {
            let renumbered = thread.samples.iter().map(|mut sample| {
                sample.stack = new_stacks.new_of(sample.stack);
                sample
            });
            thread.samples = renumbered.collect();
            thread.host_calls.iter_mut().for_each(|call| call.frame = new_frames.new_of(call.frame));
        }
        let kept = std::mem::take(language_names).into_iter().filter(|(frame, _)| used_frames[*frame as usize]);
        *language_names = kept.map(|(frame, names)| (new_frames.new_of(frame), names)).collect();
    }
}

fn mark_parents(stack: StackId, stacks: &[Stack], used: &mut [bool]) {
    let mut parent = stacks[stack as usize].parent;
    while let Some(id) = parent.filter(|id| !used[*id as usize]) {
        used[id as usize] = true;
        parent = stacks[id as usize].parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{HostCallSpan, Sample, State};

    fn wasm(function: u32) -> Origin {
        Origin::Wasm { module: 0, function, code_offset: function }
    }

    fn on_stack(stack: StackId) -> Sample {
        Sample { time_ns: 1, period_ns: 1, cpu_delta_ns: 1, stack, state: State::Guest, labels: None }
    }

    #[test]
    fn what_nothing_refers_to_is_left_out() {
        let mut frames: Vec<Origin> = (0..5).map(wasm).collect();
        let stack = |parent, frame| Stack { parent, frame };
        // Of 0 → 1 → 2 and 3 → 1 the last is unused; frame 4 is a host call's alone.
        let mut stacks = vec![stack(None, 0), stack(None, 3), stack(Some(0), 1), stack(Some(1), 1), stack(Some(2), 2)];
        let call = HostCallSpan { frame: 4, start_ns: 0, end_ns: 1, blocked: true };
        let thread =
            Thread { samples: [on_stack(4)].into_iter().collect(), host_calls: vec![call], ..Thread::default() };
        let mut threads = vec![Thread::default(), thread];
        let mut language_names = [(3, Vec::new()), (4, Vec::new())].into_iter().collect();
        Tables { frames: &mut frames, stacks: &mut stacks, threads: &mut threads, language_names: &mut language_names }
            .keep_used();
        assert_eq!(frames, [wasm(0), wasm(1), wasm(2), wasm(4)]);
        assert_eq!(stacks, [stack(None, 0), stack(Some(0), 1), stack(Some(1), 2)]);
        assert_eq!(threads[1].samples.iter().collect::<Vec<_>>(), [on_stack(2)]);
        assert_eq!(threads[1].host_calls[0].frame, 3);
        assert_eq!(language_names.keys().collect::<Vec<_>>(), [&3]);
    }
}
