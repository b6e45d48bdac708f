//! Sums over a recording: how much time each function has, itself and with all it called.

use super::{FunctionId, Recording, State};
use std::collections::HashMap;

/// Time of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTotal {
    /// The function.
    pub function: FunctionId,
    /// Nanoseconds in which it was the innermost frame, inlined functions counting as frames.
    pub self_ns: u64,
    /// Nanoseconds in which it was anywhere on the stack. Recursion counts once.
    pub total_ns: u64,
    /// Line on which most of its self time was spent, if lines are known.
    pub hottest_line: Option<u32>,
}

/// Time of a whole recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Nanoseconds that all samples stand for.
    pub all_ns: u64,
    /// Of those, in host code.
    pub host_ns: u64,
    /// Of those, waiting in host code.
    pub blocked_ns: u64,
    /// Functions that were seen, most self time first.
    pub functions: Vec<FunctionTotal>,
}

#[derive(Default)]
struct Sum {
    self_ns: u64,
    total_ns: u64,
    lines: HashMap<Option<u32>, u64>,
    last_sample: usize,
}

impl Totals {
    /// Adds up `recording`.
    pub fn of(recording: &Recording) -> Self {
        let mut totals = Self::default();
        let mut sums: HashMap<FunctionId, Sum> = HashMap::default();
        // Stacks repeat: add up their samples first, and walk each stack once.
        let mut stack_ns: HashMap<u32, u64> = HashMap::default();
        for sample in recording.samples() {
            totals.all_ns = totals.all_ns.saturating_add(sample.period_ns);
            totals.host_ns += if sample.state == State::Guest { 0 } else { sample.period_ns };
            totals.blocked_ns += if sample.state == State::Blocked { sample.period_ns } else { 0 };
            *stack_ns.entry(sample.stack).or_default() += sample.period_ns;
        }
        for (number, (stack, time_ns)) in stack_ns.into_iter().enumerate() {
            for (depth, line) in recording.lines_of(stack).enumerate() {
                let sum = sums.entry(line.function).or_default();
                if depth == 0 {
                    sum.self_ns += time_ns;
                    *sum.lines.entry(line.line).or_default() += time_ns;
                }
                if sum.last_sample != number + 1 {
                    sum.last_sample = number + 1;
                    sum.total_ns += time_ns;
                }
            }
        }
        totals.functions = sums
            .into_iter()
            .map(|(function, sum)| {
                let known =
                    sum.lines.iter().filter_map(|(line, time)| line.map(|line| (*time, std::cmp::Reverse(line))));
                FunctionTotal {
                    function,
                    self_ns: sum.self_ns,
                    total_ns: sum.total_ns,
                    hottest_line: known.max().map(|(_, line)| line.0),
                }
            })
            .collect();
        totals.functions.sort_by_key(|total| (std::cmp::Reverse((total.self_ns, total.total_ns)), total.function));
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::testing::{TRACK, finish, with_modules};
    use crate::recording::{Origin, Recorder, Sample};
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
        for (stack, state) in [(deep, State::Guest), (deep, State::Host), (flat, State::Blocked)] {
            recorder.sample(
                TRACK,
                0,
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
        assert_eq!((totals.all_ns, totals.host_ns, totals.blocked_ns), (30, 20, 10));
        let rows: Vec<_> =
            totals.functions.iter().map(|t| (t.function, t.self_ns, t.total_ns, t.hottest_line)).collect();
        assert_eq!(rows, [(1, 20, 20, Some(2)), (0, 10, 30, Some(1))]);
    }
}
