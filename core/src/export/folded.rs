//! Folded stacks: `root;caller;leaf 12`, one line a stack, for flame graph scripts and for grep.

use super::Exporter;
use super::plain_text::plain_name;
use crate::recording::{Recording, StackId};
use std::collections::BTreeMap;
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
        counts.iter().try_for_each(|(stack, count)| writeln!(out, "{stack} {count}"))?;
        Ok(None)
    }
}
