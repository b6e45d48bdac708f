//! Adds up samples: a row for each stack and set of labels that are kept.

use super::symbols::{RecordingSymbols, Symbols};
use super::{KeptLabels, SampleLabels, Table};
use std::collections::{BTreeMap, HashMap};
use wlprof_recording::{Recording, StackId};

/// Values of a row, in the order of [`pushed_types`](crate::sample_types::pushed_types). Those of time are exact up to 2^53: 104 days.
type Sums = [f64; 4];

/// What the samples of a recording come to.
pub(crate) struct Rows {
    labels: Table<SampleLabels>,
    sums: BTreeMap<(StackId, u32), Sums>,
}

/// A row with its stack in a profile's tables.
pub(crate) struct Row {
    /// Number in [`Symbols::stacks`].
    pub(crate) stack: u32,
    /// Place in the sets of labels.
    pub(crate) labels: usize,
    pub(crate) values: [i64; 4],
}

impl Rows {
    pub(crate) fn of(recording: &Recording, kept: &KeptLabels) -> Self {
        let mut rows = Self { labels: Table::default(), sums: BTreeMap::new() };
        if recording.part.is_some() {
            rows.add_memory(recording, kept);
        } else {
            rows.add_time(recording, kept);
        }
        // A row without a value says nothing.
        rows.sums.retain(|_, sums| sums.iter().any(|sum| sum.round() != 0.0));
        rows
    }

    fn add_time(&mut self, recording: &Recording, kept: &KeptLabels) {
        let mut sets = HashMap::new();
        for sample in recording.samples() {
            let labels = *sets.entry(sample.labels).or_insert_with(|| {
                let all = sample.labels.map_or(&[][..], |set| &recording.label_sets[set as usize]);
                self.labels.id(kept.of(all))
            });
            self.add(sample.stack, labels, [1.0, sample.period_ns as f64, 0.0, 0.0]);
        }
    }

    fn add_memory(&mut self, recording: &Recording, kept: &KeptLabels) {
        for store in &recording.stores {
            let Some(heap) = &store.heap else { continue };
            let labels = self.labels.id(kept.of(&store.labels));
            for site in &heap.sites {
                let [allocated, held] = [site.totals.allocated, site.totals.held];
                self.add(site.stack, labels, [allocated.blocks, allocated.bytes, held.blocks, held.bytes]);
            }
        }
    }

    fn add(&mut self, stack: StackId, labels: u32, values: Sums) {
        add(self.sums.entry((stack, labels)).or_default(), values);
    }

    /// The rows, with what they refer to in the tables of a profile, and their sets of labels. Stacks that are equal there are one.
    pub(crate) fn with_symbols(self, recording: &Recording, symbols: &mut Symbols) -> (Vec<Row>, Vec<SampleLabels>) {
        let mut of_recording = RecordingSymbols::new(recording);
        let mut rows = BTreeMap::<(u32, u32), Sums>::new();
        for ((stack, labels), sums) in self.sums {
            add(rows.entry((of_recording.stack(stack, symbols), labels)).or_default(), sums);
        }
        let row = |((stack, labels), sums): ((u32, u32), Sums)| Row {
            stack,
            labels: labels as usize - 1,
            values: sums.map(|sum| sum.round() as i64),
        };
        (rows.into_iter().map(row).collect(), self.labels.into_items())
    }
}

fn add(sums: &mut Sums, values: Sums) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}
