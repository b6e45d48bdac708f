//! Leaves out of a recording what no sample refers to: a part of a long run has all stacks of the run in its tables.

use super::numbers::Numbers;
use super::{FrameId, LabelSetId, NamedFrame, Origin, Stack, StackId, Store, StoreId, Thread};
use std::collections::HashMap;

/// What others refer to by its number.
#[derive(Debug, Default)]
pub struct HeldNumbers {
    /// Frames.
    pub frames: Vec<FrameId>,
    /// Stacks.
    pub stacks: Vec<StackId>,
    /// Sets of labels.
    pub labels: Vec<LabelSetId>,
    /// Threads, by their index.
    pub threads: Vec<u32>,
    /// Stores.
    pub stores: Vec<StoreId>,
}

/// The new numbers of what is kept.
#[derive(Debug)]
pub struct NewNumbers {
    /// Of frames.
    pub frames: Numbers,
    /// Of stacks.
    pub stacks: Numbers,
    /// Of sets of labels.
    pub labels: Numbers,
    /// Of threads.
    pub threads: Numbers,
    /// Of stores.
    pub stores: Numbers,
}

/// The tables of a recording whose frames have no symbols yet.
pub(super) struct Tables<'a> {
    pub(super) frames: &'a mut Vec<Origin>,
    pub(super) stacks: &'a mut Vec<Stack>,
    pub(super) label_sets: &'a mut Vec<Vec<(String, String)>>,
    pub(super) stores: &'a mut Vec<Store>,
    pub(super) threads: &'a mut Vec<Thread>,
    pub(super) language_names: &'a mut HashMap<FrameId, Vec<NamedFrame>>,
}

/// A place for each of so many items, which says of those of `held` that they are used.
fn marked(count: usize, held: &[u32]) -> Vec<bool> {
    let mut used = vec![false; count];
    held.iter().for_each(|id| used[*id as usize] = true);
    used
}

/// Of stacks, frames and sets of labels, which are used.
pub(super) struct UsedNumbers {
    pub(super) stacks: Vec<bool>,
    pub(super) frames: Vec<bool>,
    pub(super) labels: Vec<bool>,
}

impl UsedNumbers {
    /// Marks what samples and host calls of `threads` refer to, and heaps of `stores`, and the callers of all that is marked.
    pub(super) fn mark(&mut self, threads: &[Thread], stores: &[Store], stacks: &[Stack]) {
        for thread in threads {
            for sample in thread.samples.iter() {
                self.stacks[sample.stack as usize] = true;
                sample.labels.into_iter().for_each(|set| self.labels[set as usize] = true);
            }
            thread.host_calls.iter().for_each(|call| self.frames[call.frame as usize] = true);
        }
        for stack in stores.iter().flat_map(Store::heap_stacks) {
            self.stacks[stack as usize] = true;
        }
        // A parent stands before its children.
        for (id, stack) in stacks.iter().enumerate().rev() {
            if self.stacks[id] {
                self.frames[stack.frame as usize] = true;
                stack.parent.into_iter().for_each(|parent| self.stacks[parent as usize] = true);
            }
        }
    }

    /// Leaves out the stacks and labels that are not used, and has those that are, and what is in `threads`, refer to the others by
    /// their new numbers. Gives these.
    pub(super) fn keep(
        &self,
        stacks: &mut Vec<Stack>,
        label_sets: &mut Vec<Vec<(String, String)>>,
        threads: &mut [Thread],
        stores: &mut [Store],
    ) -> [Numbers; 3] {
        let [new_stacks, new_frames, new_labels] =
            [&self.stacks, &self.frames, &self.labels].map(|used| Numbers::keeping(used));
        new_stacks.retain(stacks);
        new_labels.retain(label_sets);
        for stack in stacks {
            stack.frame = new_frames.new_of(stack.frame);
            stack.parent = stack.parent.map(|parent| new_stacks.new_of(parent));
        }
        for thread in threads {
            let renumbered = thread.samples.iter().map(|mut sample| {
                sample.stack = new_stacks.new_of(sample.stack);
                sample.labels = sample.labels.map(|set| new_labels.new_of(set));
                sample
            });
            thread.samples = renumbered.collect();
            thread.host_calls.iter_mut().for_each(|call| call.frame = new_frames.new_of(call.frame));
        }
        stores.iter_mut().for_each(|store| store.restack(|stack| Some(new_stacks.new_of(stack))));
        [new_stacks, new_frames, new_labels]
    }
}

impl Tables<'_> {
    /// Leaves out what is neither in a sample nor in a host call nor `held`, and numbers the rest anew. A store is kept for its memory
    /// and for its heap, too.
    pub(super) fn keep_used(self, held: &HeldNumbers) -> NewNumbers {
        let Self { frames, stacks, label_sets, stores, threads, language_names } = self;
        let mut used_threads = marked(threads.len(), &held.threads);
        let mut used_stores = marked(stores.len(), &held.stores);
        for (thread, is_used) in threads.iter().zip(&mut used_threads) {
            *is_used |= !thread.samples.is_empty() || !thread.host_calls.is_empty();
            used_stores[thread.store as usize] |= *is_used;
        }
        stores
            .iter()
            .zip(&mut used_stores)
            .for_each(|(store, is_used)| *is_used |= !store.memory.is_empty() || store.heap.is_some());
        let [new_threads, new_stores] = [used_threads, used_stores].map(|used| Numbers::keeping(&used));
        new_threads.retain(threads);
        new_stores.retain(stores);
        threads.iter_mut().for_each(|thread| thread.store = new_stores.new_of(thread.store));

        let mut used = UsedNumbers {
            stacks: marked(stacks.len(), &held.stacks),
            frames: marked(frames.len(), &held.frames),
            labels: marked(label_sets.len(), &held.labels),
        };
        used.mark(threads, stores, stacks);
        let [new_stacks, new_frames, new_labels] = used.keep(stacks, label_sets, threads, stores);
        new_frames.retain(frames);
        let kept = std::mem::take(language_names).into_iter();
        *language_names = kept.filter_map(|(frame, names)| Some((new_frames.of(frame)?, names))).collect();
        NewNumbers {
            frames: new_frames,
            stacks: new_stacks,
            labels: new_labels,
            threads: new_threads,
            stores: new_stores,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostCallSpan, Sample, State};

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
        let thread = Thread {
            samples: [on_stack(4)].into_iter().collect(),
            host_calls: vec![call],
            store: 2,
            ..Thread::default()
        };
        let mut threads = vec![Thread::default(), thread];
        let mut language_names = [(3, Vec::new()), (4, Vec::new())].into_iter().collect();
        let set = |name: &str| vec![(name.to_owned(), String::new())];
        let mut label_sets = vec![set("a"), set("b"), set("c")];
        let store = |name: &str| Store { name: name.to_owned(), ..Store::default() };
        let mut stores = vec![store("a"), store("b"), store("c")];
        let held = HeldNumbers { labels: vec![2], stores: vec![0], ..HeldNumbers::default() };
        let tables = Tables {
            frames: &mut frames,
            stacks: &mut stacks,
            label_sets: &mut label_sets,
            stores: &mut stores,
            threads: &mut threads,
            language_names: &mut language_names,
        };
        let numbers = tables.keep_used(&held);
        assert_eq!(label_sets, [set("c")]);
        assert_eq!(stores, [store("a"), store("c")]);
        assert_eq!((threads.len(), threads[0].store), (1, 1), "one has no samples");
        assert_eq!([0, 1].map(|thread| numbers.threads.of(thread)), [None, Some(0)]);
        assert_eq!(frames, [wasm(0), wasm(1), wasm(2), wasm(4)]);
        assert_eq!(stacks, [stack(None, 0), stack(Some(0), 1), stack(Some(1), 2)]);
        assert_eq!(threads[0].samples.iter().collect::<Vec<_>>(), [on_stack(2)]);
        assert_eq!(threads[0].host_calls[0].frame, 3);
        assert_eq!(language_names.keys().collect::<Vec<_>>(), [&3]);
    }
}
