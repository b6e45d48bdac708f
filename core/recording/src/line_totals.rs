//! How much time each line of source has, itself and with all that was called there.

use super::{FunctionId, Recording, Weight};
use std::collections::{BTreeMap, BTreeSet};

/// Time of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTotal {
    /// Time in which it was the innermost one. A script's line has that of native code which it called, too.
    pub self_time: Weight,
    /// Time in which it was anywhere on the stack. Recursion counts once.
    pub total_time: Weight,
}

/// Time of the lines of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTotals {
    /// What all samples stand for.
    pub all: Weight,
    /// By file and line. A line that several functions were sampled in is one.
    pub lines: BTreeMap<(String, u32), LineTotal>,
    /// The lines that each function was sampled in.
    pub of_functions: BTreeMap<FunctionId, BTreeSet<u32>>,
}

impl LineTotals {
    /// Adds up `recording`.
    ///
    /// # Accuracy
    /// Lines are those that debug information has for the sampled instructions; time of instructions without one is nowhere
    /// here but in `all`. Where a language's functions call native code ([`UserLines`](super::UserLines)), its time is that of the
    /// line of the language that called it, and of its own line, too: of one that is in C, say.
    pub fn of(recording: &Recording) -> Self {
        let mut totals = Self::default();
        recording.draws().for_each(|draw| totals.all.add_draw(draw.period_ns));
        let weights = recording.stack_weights();
        let is_script = weights.keys().any(|stack| recording.calls_native(*stack));
        for (stack, weight) in weights {
            let mut own = BTreeSet::new();
            let mut seen = BTreeSet::new();
            let mut in_script = false;
            for (depth, frame) in recording.frames_of(stack).enumerate() {
                let is_innermost_of_script = is_script && !in_script && frame.is_of_language();
                in_script |= is_innermost_of_script;
                for (inlined, line) in frame.lines.iter().enumerate() {
                    let function = &recording.functions[line.function as usize];
                    let (Some(file), Some(number)) = (&function.file, line.line) else { continue };
                    totals.of_functions.entry(line.function).or_default().insert(number);
                    let place = (file.clone(), number);
                    if inlined == 0 && (depth == 0 || is_innermost_of_script) {
                        own.insert(place.clone());
                    }
                    seen.insert(place);
                }
            }
            for place in seen {
                let sum = totals.lines.entry(place).or_default();
                sum.total_time.add(weight);
            }
            for place in own {
                totals.lines.entry(place).or_default().self_time.add(weight);
            }
        }
        totals
    }

    /// The lines of a file, with their numbers.
    pub fn of_file(&self, file: &str) -> impl Iterator<Item = (u32, LineTotal)> {
        let range = (file.to_owned(), 0)..=(file.to_owned(), u32::MAX);
        self.lines.range(range).map(|((_, line), total)| (*line, *total))
    }

    /// What the lines of a file have for themselves.
    pub fn own_of_file(&self, file: &str) -> Weight {
        self.of_file(file).fold(Weight::default(), |mut sum, (_, total)| {
            sum.add(total.self_time);
            sum
        })
    }

    /// The file with the most time in its own lines.
    pub fn hottest_file(&self) -> Option<&str> {
        let mut files = BTreeMap::<&str, (u64, u64)>::new();
        for ((file, _), total) in &self.lines {
            let sum = files.entry(file).or_default();
            *sum = (sum.0.saturating_add(total.self_time.ns), sum.1.max(total.total_time.ns));
        }
        files.into_iter().max_by_key(|(_, time_ns)| *time_ns).map(|(file, _)| file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::testing::{TRACK, finish, with_modules};
    use crate::{Origin, Sample, State};
    use wlprof_plugin::SourceFrame;

    #[test]
    fn a_scripts_line_has_the_time_of_native_code_that_it_called() {
        const SCRIPT: Origin = Origin::Language { module: 0, key: 0 };
        const SORT: Origin = Origin::Wasm { module: 0, function: 1, code_offset: 0 };
        let mut recorder = with_modules(1);
        for (number, stack) in (1..).zip([&[SCRIPT, SORT][..], &[SCRIPT], &[SORT]]) {
            let frames: Vec<u32> = stack.iter().map(|origin| recorder.frame(*origin)).collect();
            let stack = recorder.stack(frames).unwrap();
            let state = State::Guest;
            recorder.sample(
                TRACK,
                number,
                Sample { time_ns: number, cpu_delta_ns: 1, period_ns: number, stack, state, labels: None },
            );
        }
        let recording = finish(recorder, &mut |origin: &Origin, out: &mut Vec<SourceFrame>| {
            let file = Some(if *origin == SCRIPT { "a.py" } else { "sort.c" }.to_owned());
            out.push(SourceFrame { file, line: Some(7), ..SourceFrame::default() });
        });
        let totals = LineTotals::of(&recording);
        let times = |file| totals.of_file(file).map(|(_, sum)| (sum.self_time.ns, sum.total_time.ns)).next().unwrap();
        assert_eq!((times("a.py"), times("sort.c")), ((3, 3), (4, 4)));
        assert_eq!(totals.hottest_file(), Some("sort.c"));
    }

    #[test]
    fn lines_have_the_time_of_their_samples_and_recursion_counts_once() {
        let totals = LineTotals::of(&example());
        assert_eq!(totals.all.ns, 13_000_000);
        let ms = |file: &str| -> Vec<(u32, u64, u64)> {
            let lines = totals.of_file(file);
            lines.map(|(line, sum)| (line, sum.self_time.ns / 1_000_000, sum.total_time.ns / 1_000_000)).collect()
        };
        // All that is spent below the script is its innermost line's.
        assert_eq!(ms("/app/shop.py"), [(6, 4, 4), (7, 2, 4)]);
        assert_eq!(ms("a.c"), [(4, 1, 1)]);
        assert_eq!(ms("/app/shop"), []);
        assert!(totals.hottest_file().is_some());
    }
}
