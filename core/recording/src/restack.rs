//! Puts the stacks of a recording together anew, from frames that are left of them.

use super::{FrameId, Recording, Sample, Samples, Stack, StackId};
use std::collections::HashMap;

impl Recording {
    /// Ids of the frames of a stack, leaf first.
    pub fn frame_ids(&self, stack: StackId) -> impl Iterator<Item = FrameId> {
        std::iter::successors(Some(self.stacks[stack as usize]), |stack| {
            stack.parent.map(|parent| self.stacks[parent as usize])
        })
        .map(|stack| stack.frame)
    }

    /// Gives each sample, and each site of a heap, the stack of those frames, root first, that `frames_of` says of its own.
    pub(super) fn replace_stacks(&mut self, frames_of: impl Fn(&Self, StackId) -> Vec<FrameId>) {
        let mut stacks = Stacks::default();
        let mut replaced: HashMap<StackId, StackId> = HashMap::new();
        let mut replace = |stack: StackId| *replaced.entry(stack).or_insert_with(|| stacks.add(frames_of(self, stack)));
        let mut all: Vec<Samples> = Vec::with_capacity(self.threads.len());
        for thread in &self.threads {
            let replaced = thread.samples.iter().map(|sample| Sample { stack: replace(sample.stack), ..sample });
            all.push(replaced.collect());
        }
        let of_heaps: Vec<StackId> = self.heap_stacks().collect();
        let of_heaps: HashMap<StackId, StackId> = of_heaps.into_iter().map(|stack| (stack, replace(stack))).collect();
        self.stores.iter_mut().for_each(|store| store.restack(|stack| Some(of_heaps[&stack])));
        self.threads.iter_mut().zip(all).for_each(|(thread, samples)| thread.samples = samples);
        self.stacks = stacks.stacks;
    }
}

#[derive(Default)]
struct Stacks {
    stacks: Vec<Stack>,
    known: HashMap<Stack, StackId>,
}

impl Stacks {
    /// The stack of these frames, root first. There is at least one.
    fn add(&mut self, root_first: Vec<FrameId>) -> StackId {
        let mut parent = None;
        for frame in root_first {
            let stack = Stack { parent, frame };
            let id = *self.known.entry(stack).or_insert_with(|| {
                self.stacks.push(stack);
                (self.stacks.len() - 1) as StackId
            });
            parent = Some(id);
        }
        // A stack with a frame of the language keeps that one, others keep all.
        parent.unwrap_or(0)
    }
}
