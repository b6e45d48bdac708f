//! Folded stacks: `root;caller;leaf 12`, one line a stack, for flame graph scripts and for grep.

use super::Exporter;
use super::plain_text::plain_name;
use crate::recording::{Recording, StackId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

/// `folded`: one line per distinct stack with the number of its samples, sorted.
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
        let counts = counts(recording);
        counts.iter().try_for_each(|(stack, count)| writeln!(out, "{stack} {count}"))?;
        Ok(None)
    }
}

/// Samples of each stack, as it is written.
fn counts(recording: &Recording) -> BTreeMap<String, u64> {
    let mut samples = BTreeMap::<StackId, u64>::new();
    recording.samples().for_each(|sample| *samples.entry(sample.stack).or_default() += 1);
    let mut counts = BTreeMap::<String, u64>::new();
    for (stack, count) in samples {
        let mut names: Vec<_> = recording
            .lines_of(stack)
            .map(|line| plain_name(&recording.functions[line.function as usize].name))
            .collect();
        names.reverse();
        *counts.entry(names.join(";")).or_default() += count;
    }
    counts
}

/// Writes the stacks of two recordings as `difffolded.pl` does: `stack count count`, sorted.
///
/// # Errors
/// Whatever `out` fails with.
pub fn write_differences(recordings: [&Recording; 2], out: &mut dyn Write) -> io::Result<()> {
    let [before, after] = recordings.map(counts);
    let stacks: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let count = |counts: &BTreeMap<String, u64>, stack: &String| counts.get(stack).copied().unwrap_or(0);
    for stack in stacks {
        writeln!(out, "{stack} {} {}", count(&before, stack), count(&after, stack))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::example;

    #[test]
    fn differences_have_both_counts() {
        let mut other = example();
        let thread = &mut other.threads[0];
        thread.samples = thread.samples.iter().take(1).collect();
        let mut out = Vec::new();
        write_differences([&example(), &other], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let sums = text.lines().fold((0, 0), |sums, line| {
            let mut fields = line.rsplit(' ').map(|field| field.parse::<u64>());
            let (after, before) = (fields.next().unwrap().unwrap(), fields.next().unwrap().unwrap());
            (sums.0 + before, sums.1 + after)
        });
        assert_eq!(sums, (11, 3), "{text}");
    }
}
