//! Parts of a recording: the samples through some function, or those that waited, alone.

use super::{Clock, Function, HeapPart, Recording, Sample, Samples, Share, StackId, State, Weight};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Which samples of a recording are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Those through a function whose name or file has each of these in it, in capitals and small letters as given.
    pub focus: Vec<String>,
    /// None of those through a function whose name or file has one of these in it.
    pub ignore: Vec<String>,
    /// Those in which the thread waited.
    pub off_cpu: bool,
    /// In their place, those of memory: of that part of what was allocated.
    pub part: Option<HeapPart>,
}

/// What a selection is of the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionShare {
    /// All of it.
    pub share: Share,
    /// Time that all samples stand for, in nanoseconds.
    pub all_ns: u64,
    /// What was selected by, in words.
    pub by: String,
    /// Time in the guest's code, in the host's, and waiting, of the whole.
    pub places: [Share; 3],
}

impl Selection {
    /// The same of time.
    #[must_use]
    pub fn of_time(&self) -> Self {
        Self { part: None, ..self.clone() }
    }

    fn words(&self) -> String {
        let quoted = |patterns: &[String]| {
            let quoted: Vec<String> = patterns.iter().map(|pattern| format!("`{pattern}`")).collect();
            quoted.join(" and ")
        };
        let mut words = Vec::new();
        if self.off_cpu {
            words.push("waiting".to_owned());
        }
        if !self.focus.is_empty() {
            words.push(format!("through {}", quoted(&self.focus)));
        }
        if !self.ignore.is_empty() {
            words.push(format!("without {}", quoted(&self.ignore)));
        }
        words.join(", ")
    }

    /// Whether a stack of functions is in it.
    fn holds<'a>(&self, functions: impl Iterator<Item = &'a Function> + Clone) -> bool {
        let has = |pattern: &String| functions.clone().any(|function| matches(function, pattern));
        self.focus.iter().all(has) && !self.ignore.iter().any(has)
    }
}

/// Whether the name or the file of a function has `pattern` in it.
fn matches(function: &Function, pattern: &str) -> bool {
    function.name.contains(pattern) || function.file.as_ref().is_some_and(|file| file.contains(pattern))
}

impl Recording {
    /// The recording with the samples of `selection` alone, and what these are of all. A note says so to readers of files.
    /// Counts of ticks stay those of the run.
    ///
    /// # Errors
    /// If waiting or memory is asked for and was not sampled.
    pub fn select(mut self, selection: &Selection) -> Result<(Self, Option<SelectionShare>), &'static str> {
        if let Some(part) = selection.part {
            if !self.has_heaps() {
                return Err("it says nothing of memory; run the guest with --memory");
            }
            if selection.off_cpu {
                return Err("memory does not wait; leave out --off-cpu, or add --show=time");
            }
            self = self.of_memory(part);
        }
        if selection.of_time() == Selection::default() {
            return Ok((self, None));
        }
        if selection.off_cpu && self.meta.clock == Clock::Cpu {
            return Err(
                "its samples are of CPU time, in which waiting does not count; run the guest with --clock=wall",
            );
        }
        let mut held = HashMap::<StackId, bool>::new();
        let mut is_through = |stack: StackId| {
            *held.entry(stack).or_insert_with(|| {
                let functions = self.lines_of(stack).map(|line| &self.functions[line.function as usize]);
                selection.holds(functions.collect::<Vec<_>>().into_iter())
            })
        };
        let allocating: HashSet<StackId> = self.heap_stacks().filter(|stack| is_through(*stack)).collect();
        let mut holds =
            |sample: &Sample| is_through(sample.stack) && (!selection.off_cpu || sample.state == State::Blocked);
        let [mut all, mut part] = [Weight::default(); 2];
        let mut places = [Weight::default(); 3];
        for draw in self.draws() {
            all.add_draw(draw.period_ns);
            let place = match draw.state {
                State::Guest | State::Returned | State::Entering => 0,
                State::Host => 1,
                State::Blocked => 2,
            };
            places[place].add_draw(draw.period_ns);
            if holds(&draw) {
                part.add_draw(draw.period_ns);
            }
        }
        let samples: Vec<Samples> =
            self.threads.iter().map(|thread| thread.samples.iter().filter(&mut holds).collect()).collect();
        let stacks: HashSet<StackId> = samples.iter().flat_map(Samples::iter).map(|sample| sample.stack).collect();
        let frames: HashSet<u32> = stacks.into_iter().flat_map(|stack| self.frame_ids(stack)).collect();
        for (thread, samples) in self.threads.iter_mut().zip(samples) {
            thread.samples = samples;
            thread.host_calls.retain(|call| frames.contains(&call.frame) && (call.blocked || !selection.off_cpu));
        }
        self.stores.iter_mut().for_each(|store| store.restack(|stack| allocating.contains(&stack).then_some(stack)));
        let share = part.share_of(all);
        let by = selection.words();
        let whole = if selection.part.is_some() { "bytes" } else { "time" };
        self.meta
            .notes
            .push(format!("only a part of the samples is shown ({by}): {:.1} % of the {whole}", share.percent));
        Ok((self, Some(SelectionShare { share, all_ns: all.ns, by, places: places.map(|place| place.share_of(all)) })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn selected(selection: &Selection) -> (Recording, SelectionShare) {
        let (recording, selected) = example().select(selection).unwrap();
        (recording, selected.unwrap())
    }

    fn patterns(patterns: &[&str]) -> Vec<String> {
        patterns.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn nothing_selected_is_all() {
        assert_eq!(example().select(&Selection::default()).unwrap(), (example(), None));
    }

    #[test]
    fn stacks_through_a_function_or_a_file() {
        for (focus, ignore, expected) in [
            (&["shop.py"][..], &[][..], 5),
            (&["genexpr"], &["fd_write"], 3),
            (&["genexpr", "fd_write"], &[], 2),
            (&["GENEXPR"], &[], 0),
            (&[], &["shop.py"], 6),
        ] {
            let selection = Selection { focus: patterns(focus), ignore: patterns(ignore), ..Selection::default() };
            let (recording, selected) = selected(&selection);
            assert_eq!(recording.samples().count(), expected, "{selection:?}");
            let time: u64 = recording.samples().map(|sample| sample.period_ns).sum();
            assert!((selected.share.percent - 100.0 * time as f64 / 13e6).abs() < 1e-6, "{selection:?}: {selected:?}");
            let note = recording.meta.notes.last().unwrap();
            assert!(note.contains(&selected.by) && note.starts_with("only a part"), "{note}");
        }
    }

    #[test]
    fn waiting_alone() {
        let (recording, selected) = selected(&Selection { off_cpu: true, ..Selection::default() });
        assert!(recording.samples().all(|sample| sample.state == State::Blocked) && recording.samples().count() == 1);
        let [guest, host, waiting] = selected.places;
        assert_eq!(selected.share, waiting);
        assert!((guest.percent + host.percent + waiting.percent - 100.0).abs() < 1e-6);
        assert_eq!(recording.threads[0].host_calls.len(), 1, "those that waited");
        let mut of_cpu = example();
        of_cpu.meta.clock = Clock::Cpu;
        assert!(of_cpu.select(&Selection { off_cpu: true, ..Selection::default() }).is_err());
    }
}
