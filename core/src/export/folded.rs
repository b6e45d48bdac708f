//! Folded stacks: `root;caller;leaf 12`, one line a stack, for flame graph scripts and for grep.

use super::Exporter;
use super::plain_text::plain_name;
use crate::recording::{Recording, Sample, StackId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

/// `folded`: one line per distinct stack with the number of its samples, or of its bytes, sorted.
pub(super) struct Folded;

impl Exporter for Folded {
    fn name(&self) -> &'static str {
        "folded"
    }

    fn description(&self) -> &'static str {
        "Folded stacks: a line for each with the number of its samples, for flame graphs and for grep"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["folded", "collapsed"]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("open {} at https://speedscope.app or with flamegraph.pl", path.display())
    }

    fn export(&self, recording: &Recording, _: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        let is_memory = recording.part.is_some();
        let counts = sums(recording, |sample| if is_memory { sample.period_ns } else { 1 });
        counts.iter().try_for_each(|(stack, count)| writeln!(out, "{stack} {count}"))?;
        Ok(None)
    }

    fn shows_differences(&self) -> bool {
        true
    }

    /// Writes lines as `difffolded.pl` does: `stack before after`, sorted. The numbers are microseconds: samples stand for
    /// different times. Of memory they are bytes.
    fn export_difference(&self, recordings: [&Recording; 2], out: &mut dyn Write) -> io::Result<()> {
        let [before, after] = recordings.map(|recording| sums(recording, |sample| sample.period_ns));
        let stacks: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let unit = if recordings[0].part.is_some() { 1 } else { 1000 };
        let micros =
            |sums: &BTreeMap<String, u64>, stack: &String| sums.get(stack).copied().unwrap_or(0).div_ceil(unit);
        stacks
            .into_iter()
            .try_for_each(|stack| writeln!(out, "{stack} {} {}", micros(&before, stack), micros(&after, stack)))
    }
}

/// What samples of each stack come to, as it is written.
fn sums(recording: &Recording, of_sample: impl Fn(&Sample) -> u64) -> BTreeMap<String, u64> {
    let mut of_stacks = BTreeMap::<StackId, u64>::new();
    for sample in recording.samples() {
        let sum = of_stacks.entry(sample.stack).or_default();
        *sum = sum.saturating_add(of_sample(&sample));
    }
    let mut sums = BTreeMap::<String, u64>::new();
    for (stack, of_stack) in of_stacks {
        let mut names: Vec<_> = recording
            .lines_of(stack)
            .map(|line| plain_name(&recording.functions[line.function as usize].name))
            .collect();
        names.reverse();
        let sum = sums.entry(names.join(";")).or_default();
        *sum = sum.saturating_add(of_stack);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::example;

    #[test]
    fn differences_have_the_time_of_both() {
        let mut other = example();
        let thread = &mut other.threads[0];
        thread.samples = thread.samples.iter().take(1).collect();
        let mut out = Vec::new();
        Folded.export_difference([&example(), &other], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let sums = text.lines().fold((0, 0), |sums, line| {
            let mut fields = line.rsplit(' ').map(|field| field.parse::<u64>());
            let (after, before) = (fields.next().unwrap().unwrap(), fields.next().unwrap().unwrap());
            (sums.0 + before, sums.1 + after)
        });
        let micros = |recording: &Recording| recording.samples().map(|sample| sample.period_ns).sum::<u64>() / 1000;
        assert_eq!(sums, (micros(&example()), micros(&other)), "{text}");
    }
}
