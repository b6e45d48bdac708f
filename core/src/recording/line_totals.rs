//! How much time each line of source has, itself and with all that was called there.

use super::{FunctionId, Recording, StackId};
use std::collections::{BTreeMap, BTreeSet};

/// Time of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTotal {
    /// Nanoseconds in which it was the innermost one.
    pub self_ns: u64,
    /// Nanoseconds in which it was anywhere on the stack. Recursion counts once.
    pub total_ns: u64,
}

/// Time of the lines of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTotals {
    /// Nanoseconds that all samples stand for.
    pub all_ns: u64,
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
    /// here but in `all_ns`.
    pub fn of(recording: &Recording) -> Self {
        let mut stacks = BTreeMap::<StackId, u64>::new();
        for sample in recording.samples() {
            let time_ns = stacks.entry(sample.stack).or_default();
            *time_ns = time_ns.saturating_add(sample.period_ns);
        }
        let mut totals = Self::default();
        for (stack, time_ns) in stacks {
            totals.all_ns = totals.all_ns.saturating_add(time_ns);
            let mut seen = BTreeSet::new();
            for (depth, line) in recording.lines_of(stack).enumerate() {
                let (Some(file), Some(number)) = (&recording.functions[line.function as usize].file, line.line) else {
                    continue;
                };
                totals.of_functions.entry(line.function).or_default().insert(number);
                let place = (file.clone(), number);
                let sum = totals.lines.entry(place.clone()).or_default();
                if depth == 0 {
                    sum.self_ns = sum.self_ns.saturating_add(time_ns);
                }
                if seen.insert(place) {
                    sum.total_ns = sum.total_ns.saturating_add(time_ns);
                }
            }
        }
        totals
    }

    /// The lines of a file, with their numbers.
    pub fn of_file(&self, file: &str) -> impl Iterator<Item = (u32, LineTotal)> {
        let range = (file.to_owned(), 0)..=(file.to_owned(), u32::MAX);
        self.lines.range(range).map(|((_, line), total)| (*line, *total))
    }

    /// The file with the most time in its own lines.
    pub fn hottest_file(&self) -> Option<&str> {
        let mut files = BTreeMap::<&str, (u64, u64)>::new();
        for ((file, _), total) in &self.lines {
            let sum = files.entry(file).or_default();
            *sum = (sum.0.saturating_add(total.self_ns), sum.1.max(total.total_ns));
        }
        files.into_iter().max_by_key(|(_, time_ns)| *time_ns).map(|(file, _)| file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::example;

    #[test]
    fn lines_have_the_time_of_their_samples_and_recursion_counts_once() {
        let totals = LineTotals::of(&example());
        assert_eq!(totals.all_ns, 13_000_000);
        let script: Vec<_> = totals.of_file("/app/shop.py").collect();
        let line =
            |self_ms: u64, total_ms: u64| LineTotal { self_ns: self_ms * 1_000_000, total_ns: total_ms * 1_000_000 };
        assert_eq!(script, [(6, line(0, 4)), (7, line(0, 4))]);
        let own = totals.of_file("a.c").collect::<Vec<_>>();
        assert_eq!(own, [(4, line(1, 1))]);
        assert_eq!(totals.of_file("/app/shop").count(), 0);
        assert!(totals.hottest_file().is_some());
    }
}
