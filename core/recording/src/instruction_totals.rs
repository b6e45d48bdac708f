//! How much time each wasm instruction has, itself and with what it called.

use super::{Frame, ModuleId, Origin, Recording, Weight};
use std::collections::{BTreeMap, BTreeSet};

/// Time of one wasm instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionTotal {
    /// Time in which it was what the guest executed.
    pub self_time: Weight,
    /// Time in which it was anywhere on the stack, as a call that had not returned. Recursion counts once.
    pub total_time: Weight,
}

/// Time of the wasm instructions of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstructionTotals {
    /// What all samples stand for.
    pub all: Weight,
    /// By function and code offset.
    pub instructions: BTreeMap<(u32, u32), InstructionTotal>,
}

impl InstructionTotals {
    /// Adds up the instructions of `module` in `recording`.
    ///
    /// # Accuracy
    /// A sample says at which wasm instruction it was, and not at which of the machine's that it was compiled to. Code of which
    /// the compiler does not tell the instruction counts for one before or behind it.
    ///
    /// A language's frame stands in place of those of its interpreter. Where it is the innermost one, nothing says which
    /// instruction was executed, and the time is none's own. Recordings of runs without the language's frames have all.
    pub fn of(recording: &Recording, module: ModuleId) -> Self {
        let place = |frame: &Frame| match frame.origin {
            Origin::Wasm { module: of, function, code_offset } if of == module => Some((function, code_offset)),
            _ => None,
        };
        let mut totals = Self::default();
        recording.draws().for_each(|draw| totals.all.add_draw(draw.period_ns));
        for (stack, weight) in recording.stack_weights() {
            if let Some(leaf) = recording.frames_of(stack).next().and_then(place) {
                totals.instructions.entry(leaf).or_default().self_time.add(weight);
            }
            for place in recording.frames_of(stack).filter_map(place).collect::<BTreeSet<_>>() {
                totals.instructions.entry(place).or_default().total_time.add(weight);
            }
        }
        totals
    }

    /// The functions that were sampled and the time in their own instructions, in nanoseconds, those with the most first.
    pub fn hottest_functions(&self) -> Vec<(u32, u64)> {
        let mut functions = BTreeMap::<u32, u64>::new();
        for ((function, _), total) in &self.instructions {
            *functions.entry(*function).or_default() += total.self_time.ns;
        }
        let mut functions: Vec<(u32, u64)> = functions.into_iter().collect();
        functions.sort_by_key(|(_, time_ns)| std::cmp::Reverse(*time_ns));
        functions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TRACK, finish, with_modules};
    use crate::{Sample, State};
    use wlprof_plugin::SourceFrame;

    fn wasm(module: u32, function: u32, code_offset: u32) -> Origin {
        Origin::Wasm { module, function, code_offset }
    }

    #[test]
    fn an_instruction_has_its_own_time_and_that_of_what_it_called() {
        let mut recorder = with_modules(2);
        let call = wasm(0, 1, 10);
        let script = Origin::Language { module: 0, key: 1 };
        let host = Origin::HostCall { module: 0, function: 1, code_offset: 10 };
        for stack in [
            &[call, call, wasm(0, 2, 30)][..],
            &[call, wasm(0, 2, 34), script],
            &[call, host],
            &[call, wasm(1, 2, 30)],
            &[call],
        ] {
            let frames: Vec<u32> = stack.iter().map(|origin| recorder.frame(*origin)).collect();
            let stack = recorder.stack(frames).unwrap();
            let state = State::Guest;
            recorder.sample(TRACK, 0, Sample { time_ns: 0, cpu_delta_ns: 1, period_ns: 1, stack, state, labels: None });
        }
        let name = |_: &Origin, out: &mut Vec<SourceFrame>| out.push(SourceFrame::default());
        let totals = InstructionTotals::of(&finish(recorder, &mut { name }), 0);
        let rows: Vec<_> =
            totals.instructions.iter().map(|(at, total)| (*at, total.self_time.ns, total.total_time.ns)).collect();
        assert_eq!(rows, [((1, 10), 1, 5), ((2, 30), 1, 1), ((2, 34), 0, 1)]);
        assert_eq!((totals.all.ns, totals.hottest_functions()), (5, vec![(1, 1), (2, 1)]));
    }
}
