//! Sums over a recording: how much time each function has, itself and with all it called.

use super::{Doubt, FunctionId, Origin, Recording, StackId, State, Weight};
use std::collections::{BTreeMap, HashMap};

/// Time of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTotal {
    /// The function.
    pub function: FunctionId,
    /// Time in which it was the innermost frame, inlined functions counting as frames.
    pub self_time: Weight,
    /// Time in which it was anywhere on the stack. Recursion counts once.
    pub total_time: Weight,
    /// Line on which most of its self time was spent, if lines are known.
    pub hottest_line: Option<u32>,
    /// Of its self time, what may be another's.
    pub doubt: Doubt,
}

/// Time of a whole recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What all samples stand for.
    pub all: Weight,
    /// Of that, in host code.
    pub host: Weight,
    /// Of that, waiting in host code.
    pub blocked: Weight,
    /// Time that was spent before the function began that it is shown for.
    pub entering: Weight,
    /// Time that may be of functions which that one had called that it is shown for.
    pub returned: Weight,
    /// Time on stacks whose root is missing: totals may be too low by as much.
    pub rootless: Weight,
    /// Functions that were seen, most self time first.
    pub functions: Vec<FunctionTotal>,
}

#[derive(Default)]
struct Sum {
    self_time: Weight,
    total_time: Weight,
    lines: HashMap<Option<u32>, u64>,
    doubt: Doubt,
    last_stack: Option<StackId>,
}

impl Recording {
    /// What the samples of each stack stand for. Stacks repeat: sums walk each of them once.
    pub fn stack_weights(&self) -> BTreeMap<StackId, Weight> {
        let mut weights = BTreeMap::<StackId, Weight>::new();
        self.draws().for_each(|draw| weights.entry(draw.stack).or_default().add_draw(draw.period_ns));
        weights
    }
}

impl Totals {
    /// Adds up `recording`.
    pub fn of(recording: &Recording) -> Self {
        let mut totals = Self::default();
        for draw in recording.draws() {
            totals.all.add_draw(draw.period_ns);
            if !draw.state.is_guest() {
                totals.host.add_draw(draw.period_ns);
            }
            match draw.state {
                State::Guest | State::Host => {}
                State::Blocked => totals.blocked.add_draw(draw.period_ns),
                State::Entering => totals.entering.add_draw(draw.period_ns),
                State::Returned => totals.returned.add_draw(draw.period_ns),
            }
        }
        let doubts = recording.doubts();
        let mut sums: HashMap<FunctionId, Sum> = HashMap::default();
        for (stack, weight) in recording.stack_weights() {
            if recording.frames_of(stack).last().is_some_and(|frame| frame.origin == Origin::Truncated) {
                totals.rootless.add(weight);
            }
            for (depth, line) in recording.lines_of(stack).enumerate() {
                let sum = sums.entry(line.function).or_default();
                if depth == 0 {
                    sum.self_time.add(weight);
                    doubts.get(&stack).into_iter().for_each(|doubt| sum.doubt.add(*doubt));
                    *sum.lines.entry(line.line).or_default() += weight.ns;
                }
                if sum.last_stack != Some(stack) {
                    sum.last_stack = Some(stack);
                    sum.total_time.add(weight);
                }
            }
        }
        totals.functions = sums
            .into_iter()
            .map(|(function, sum)| FunctionTotal {
                function,
                self_time: sum.self_time,
                total_time: sum.total_time,
                hottest_line: hottest(&sum.lines),
                doubt: sum.doubt,
            })
            .collect();
        let key = |total: &FunctionTotal| (total.self_time.ns, total.total_time.ns);
        totals.functions.sort_by_key(|total| (std::cmp::Reverse(key(total)), total.function));
        totals
    }
}

/// The line with the most time, of those that are known; the first of several.
pub(super) fn hottest(lines: &HashMap<Option<u32>, u64>) -> Option<u32> {
    let known = lines.iter().filter_map(|(line, time)| line.map(|line| (*time, std::cmp::Reverse(line))));
    known.max().map(|(_, line)| line.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TRACK, finish, with_modules};
    use crate::{Neighbors, Origin, Recorder, Sample};
    use wlprof_plugin::SourceFrame;

    #[test]
    fn recursion_counts_once_and_the_leaf_has_the_self_time() {
        let mut recorder = with_modules(1);
        let frame = |recorder: &mut Recorder, function| {
            recorder.frame(Origin::Wasm { module: 0, function, code_offset: function * 10 })
        };
        let (a, b) = (frame(&mut recorder, 0), frame(&mut recorder, 1));
        let deep = recorder.stack([a, b, b, b]).unwrap();
        let flat = recorder.stack([a]).unwrap();
        for (cpu_ns, stack, state) in [(10, deep, State::Guest), (20, deep, State::Host), (20, flat, State::Blocked)] {
            recorder.sample(
                TRACK,
                cpu_ns,
                Sample { time_ns: 0, cpu_delta_ns: 0, period_ns: 10, stack, state, labels: None },
            );
        }
        let recording = finish(recorder, &mut |origin: &Origin, out: &mut Vec<SourceFrame>| {
            let Origin::Wasm { function, .. } = *origin else { unreachable!("only wasm frames") };
            out.push(SourceFrame {
                function: function.to_string(),
                line: Some(function + 1),
                ..SourceFrame::default()
            });
        });
        let totals = Totals::of(&recording);
        assert_eq!((totals.all.ns, totals.host.ns, totals.blocked.ns), (30, 20, 10));
        let row = |t: &FunctionTotal| (t.function, t.self_time.ns, t.total_time.ns, t.hottest_line);
        let rows: Vec<_> = totals.functions.iter().map(row).collect();
        assert_eq!(rows, [(1, 20, 20, Some(2)), (0, 10, 30, Some(1))]);
    }

    #[test]
    fn time_that_may_be_anothers_is_told_of_the_function_that_is_shown() {
        let mut recorder = with_modules(1);
        let [caller, leaf] = [0, 1].map(|key| recorder.frame(Origin::Language { module: 0, key }));
        let stack = recorder.stack([caller, leaf]).unwrap();
        for (time_ns, state) in [(1, State::Guest), (2, State::Entering), (3, State::Entering), (4, State::Returned)] {
            let sample = Sample { time_ns, cpu_delta_ns: 1, period_ns: 10, stack, state, labels: None };
            recorder.sample(TRACK, time_ns, sample);
        }
        let recording = finish(recorder, &mut |origin: &Origin, out: &mut Vec<SourceFrame>| {
            out.push(SourceFrame { function: format!("{origin:?}"), ..SourceFrame::default() });
        });
        let totals = Totals::of(&recording);
        assert_eq!((totals.all.ns, totals.host.ns, totals.entering.ns, totals.returned.ns), (40, 0, 20, 10));
        let rows: Vec<_> = totals.functions.iter().map(|row| (row.self_time.ns, row.doubt)).collect();
        assert_eq!(rows, [(40, Doubt { entering_ns: 20, returned_ns: 10 }), (0, Doubt::default())]);
        let [leaf] = &Neighbors::of(&recording, &recording.functions[totals.functions[0].function as usize].name)[..]
        else {
            panic!("{recording:?}")
        };
        assert_eq!(leaf.doubt, totals.functions[0].doubt);
    }
}
