//! What called what: all stacks as one tree, with the time of each call.

use super::{FunctionId, Recording};
use std::cmp::Reverse;
use std::collections::HashMap;

/// A function where it was called by the functions above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The call above it, by its place in [`CallTree::calls`]; `None` at the root of stacks.
    pub caller: Option<usize>,
    /// The function that was called. Inlined ones are functions of their own.
    pub function: FunctionId,
    /// What samples stand for whose innermost call it is, in nanoseconds.
    pub self_ns: u64,
    /// What samples stand for that it is anywhere on the stack of.
    pub total_ns: u64,
}

/// The calls of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTree {
    /// What all samples stand for, in nanoseconds.
    pub all_ns: u64,
    /// The calls, most total time first. Callers stand before what they call.
    pub calls: Vec<Call>,
    /// How many more calls were sampled: those with the least time, which are left out.
    pub left_out: usize,
}

impl CallTree {
    /// Adds up `recording`, and keeps the `most` calls with the most time.
    pub fn of(recording: &Recording, most: usize) -> Self {
        let mut calls: Vec<Call> = Vec::new();
        let mut known = HashMap::<(Option<usize>, FunctionId), usize>::new();
        // The innermost call of each stack. Stacks share what they begin with, and a parent stands before its children.
        let mut leaves: Vec<Option<usize>> = Vec::with_capacity(recording.stacks.len());
        for stack in &recording.stacks {
            let caller = stack.parent.and_then(|parent| leaves[parent as usize]);
            let lines = &recording.frames[stack.frame as usize].lines;
            let leaf = lines.iter().rev().fold(caller, |caller, line| {
                let call = known.entry((caller, line.function)).or_insert_with(|| {
                    calls.push(Call { caller, function: line.function, self_ns: 0, total_ns: 0 });
                    calls.len() - 1
                });
                Some(*call)
            });
            leaves.push(leaf);
        }
        let mut all_ns = 0_u64;
        for sample in recording.samples() {
            all_ns = all_ns.saturating_add(sample.period_ns);
            if let Some(leaf) = leaves[sample.stack as usize] {
                calls[leaf].self_ns = calls[leaf].self_ns.saturating_add(sample.period_ns);
            }
        }
        for at in (0..calls.len()).rev() {
            let Call { caller, self_ns, total_ns, .. } = calls[at];
            calls[at].total_ns = total_ns.saturating_add(self_ns);
            if let Some(caller) = caller {
                calls[caller].total_ns = calls[caller].total_ns.saturating_add(calls[at].total_ns);
            }
        }
        let mut kept: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].total_ns > 0).collect();
        // A caller has as much time as what it calls, or more, and stood before it.
        kept.sort_by_key(|at| Reverse(calls[*at].total_ns));
        let left_out = kept.len().saturating_sub(most);
        kept.truncate(most);
        let places: HashMap<usize, usize> = kept.iter().enumerate().map(|(place, at)| (*at, place)).collect();
        let moved = |at: &usize| Call { caller: calls[*at].caller.map(|caller| places[&caller]), ..calls[*at] };
        Self { all_ns, calls: kept.iter().map(moved).collect(), left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Totals;
    use crate::example;

    /// The names on the way to a call, root first.
    fn path(recording: &Recording, tree: &CallTree, at: usize) -> Vec<FunctionId> {
        let mut path: Vec<FunctionId> =
            std::iter::successors(Some(at), |at| tree.calls[*at].caller).map(|at| tree.calls[at].function).collect();
        path.reverse();
        assert!(path.iter().all(|function| (*function as usize) < recording.functions.len()));
        path
    }

    #[test]
    fn calls_have_the_time_of_the_stacks_that_begin_with_them() {
        let recording = example();
        let tree = CallTree::of(&recording, usize::MAX);
        assert_eq!((tree.all_ns, tree.left_out), (Totals::of(&recording).all.ns, 0));
        let stack_of = |stack| {
            let mut functions: Vec<FunctionId> = recording.lines_of(stack).map(|line| line.function).collect();
            functions.reverse();
            functions
        };
        let mut paths = Vec::new();
        for (at, call) in tree.calls.iter().enumerate() {
            let path = path(&recording, &tree, at);
            let sum = |is_it: &dyn Fn(&[FunctionId]) -> bool| -> u64 {
                recording.samples().filter(|s| is_it(&stack_of(s.stack))).map(|s| s.period_ns).sum()
            };
            assert_eq!(call.total_ns, sum(&|stack| stack.starts_with(&path)), "{path:?}");
            assert_eq!(call.self_ns, sum(&|stack| stack == path), "{path:?}");
            assert!(call.caller.is_none_or(|caller| caller < at), "{tree:?}");
            paths.push(path);
        }
        let count = paths.len();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), count, "each way is one call");
    }

    #[test]
    fn the_calls_with_the_least_time_are_left_out_and_never_a_caller_without_its_callees() {
        let recording = example();
        let whole = CallTree::of(&recording, usize::MAX);
        for most in 0..whole.calls.len() {
            let tree = CallTree::of(&recording, most);
            assert_eq!((tree.calls.len(), tree.left_out), (most, whole.calls.len() - most));
            assert_eq!(tree.calls, whole.calls[..most]);
        }
    }
}
