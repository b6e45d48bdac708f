//! Draws: the samples of one tick together. A tick that stands for a long time is several samples, which all saw the same moment.

use super::{Recording, Sample, Thread};
use std::iter::Peekable;

impl Recording {
    /// All draws of all threads, each as its last sample with the time that all of its samples stand for.
    ///
    /// # Accuracy
    /// The samples of a tick are told by what the recorder made them from: one stack, state and set of labels, no CPU time in
    /// between, and weights that differ by what was left of a division alone. Two ticks that look like that are taken for
    /// one, which makes bounds wider and not narrower.
    pub fn draws(&self) -> impl Iterator<Item = Sample> {
        self.threads.iter().flat_map(Thread::draws)
    }
}

impl Thread {
    /// Those of [`Recording::draws`] that are of this thread.
    pub fn draws(&self) -> impl Iterator<Item = Sample> {
        Draws { samples: self.samples.iter().peekable() }
    }
}

struct Draws<I: Iterator<Item = Sample>> {
    samples: Peekable<I>,
}

impl<I: Iterator<Item = Sample>> Iterator for Draws<I> {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        let first = self.samples.next()?;
        let (mut draw, mut pieces) = (first, 1);
        while let Some(piece) = self.samples.next_if(|next| is_piece(&first, next, pieces)) {
            pieces += 1;
            draw = Sample { period_ns: draw.period_ns.saturating_add(piece.period_ns), time_ns: piece.time_ns, ..draw };
            if piece.period_ns > first.period_ns {
                // What is left of the division goes to the last one.
                break;
            }
        }
        Some(draw)
    }
}

/// Whether `next` is of the tick whose first sample was `first`, and of which there have been `pieces`.
fn is_piece(first: &Sample, next: &Sample, pieces: u64) -> bool {
    let is_same = (first.stack, first.state, first.labels) == (next.stack, next.state, next.labels);
    let more_ns = next.period_ns.checked_sub(first.period_ns);
    is_same && next.cpu_delta_ns == 0 && more_ns.is_some_and(|more_ns| more_ns <= pieces)
}

#[cfg(test)]
mod tests {
    use crate::testing::{TRACK, finish, with_modules};
    use crate::{Origin, Sample, State};
    use wlprof_plugin::SourceFrame;

    #[test]
    fn samples_of_one_tick_are_one_draw() {
        let mut recorder = with_modules(1);
        let frame = recorder.frame(Origin::Host);
        let stack = recorder.stack([frame]).unwrap();
        // CPU time, and what the sample stands for.
        let pieces = [(10, 5), (0, 5), (0, 7), (0, 5), (0, 9), (10, 9), (10, 9), (0, 9), (0, 9)];
        for (number, (cpu_delta_ns, period_ns)) in (1..).zip(pieces) {
            let sample = Sample { time_ns: number, cpu_delta_ns, period_ns, stack, state: State::Host, labels: None };
            recorder.sample(TRACK, 0, sample);
        }
        let recording =
            finish(recorder, &mut |_: &Origin, out: &mut Vec<SourceFrame>| out.push(SourceFrame::default()));
        let draws: Vec<(u64, u64)> = recording.draws().map(|draw| (draw.time_ns, draw.period_ns)).collect();
        assert_eq!(draws, [(3, 17), (4, 5), (5, 9), (6, 9), (9, 27)]);
    }
}
