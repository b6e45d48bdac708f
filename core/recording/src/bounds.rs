//! Bounds what formats make of a recording. They spell out stacks, which a recording shares: one of 39 KB can be crafted to be
//! 900 MB of folded stacks, and a guest that recurses without end makes such ones by itself.

use super::{Category, Frame, FrameId, Function, FunctionId, Line, Origin, Recording};
use std::collections::BTreeSet;

/// Bytes of names on all distinct stacks, and of addresses in all samples, that formats may write out.
const MOST_BYTES: u64 = 256 << 20;

/// What an honest recording may have more, for each of its stacks and samples.
const BYTES_OF_EACH: u64 = 64;

/// Bytes that a frame takes besides its name.
const BYTES_OF_FRAME: u64 = 8;

/// Functions at one place, inlined into each other, that are kept: compilers go to some dozens.
const MOST_LINES: usize = 256;

/// The shortest that stacks are cut to.
const SHORTEST: usize = 16;

impl Recording {
    /// The recording with what formats can be expected to hold: functions inlined too deeply, and the root ends of stacks
    /// that are too deep for so many of them, are left out and told of.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let mut cut_lines = 0;
        for frame in self.frames.iter_mut().filter(|frame| frame.lines.len() > MOST_LINES) {
            // The physical function comes last, and has to be there.
            frame.lines.drain(MOST_LINES - 1..frame.lines.len() - 1);
            cut_lines += 1;
        }
        if cut_lines > 0 {
            let note = format!(
                "at {cut_lines} places more than {MOST_LINES} functions are inlined into each other; the outer ones are left out"
            );
            self.meta.notes.push(note);
        }
        let deepest = self.deepest_within_bounds();
        if let Some(deepest) = deepest {
            let truncated = self.truncated_frame();
            self.replace_stacks(|recording, stack| {
                let mut leaf_first: Vec<FrameId> = recording.frame_ids(stack).take(deepest + 1).collect();
                if leaf_first.len() > deepest {
                    leaf_first[deepest] = truncated;
                }
                leaf_first.into_iter().rev().collect()
            });
            let note = format!(
                "stacks are too many and too deep to be written out; only the {deepest} innermost frames of each are kept"
            );
            self.meta.notes.push(note);
        }
        self
    }

    /// How many frames stacks may have for all of them to be within bounds; `None` if they are as they are.
    fn deepest_within_bounds(&self) -> Option<usize> {
        let (mut stacks, mut samples) = (BTreeSet::new(), 0);
        for sample in self.samples() {
            stacks.insert(sample.stack);
            samples += 1;
        }
        stacks.extend(self.heap_stacks());
        let most = MOST_BYTES + BYTES_OF_EACH * (self.stacks.len() as u64 + samples);
        // Some formats spell out where a function is beside its name.
        let place = |function: &Function| {
            let module = function.module.map_or(0, |module| self.modules[module as usize].name.len());
            function.file.as_ref().map_or(0, String::len).max(module)
        };
        let bytes_of = |line: &Line| {
            let function = &self.functions[line.function as usize];
            (function.name.len() + place(function)) as u64 + BYTES_OF_FRAME
        };
        let frames: Vec<u64> = self.frames.iter().map(|frame| frame.lines.iter().map(bytes_of).sum()).collect();
        let fits = |depth: usize| {
            let mut sum = 0;
            stacks.iter().all(|stack| {
                let bytes = self.frame_ids(*stack).take(depth).map(|frame| frames[frame as usize]);
                sum += bytes.take_while(|_| sum <= most).sum::<u64>();
                sum <= most
            }) && self.samples().all(|sample| {
                sum += BYTES_OF_FRAME * self.frame_ids(sample.stack).take(depth).count() as u64;
                sum <= most
            })
        };
        if fits(usize::MAX) {
            return None;
        }
        let shorter = std::iter::successors(Some(8192), |depth| (*depth > SHORTEST).then_some(depth / 2));
        shorter.into_iter().find(|depth| fits(*depth)).or(Some(SHORTEST))
    }

    /// The frame that stands for those that are left out.
    fn truncated_frame(&mut self) -> FrameId {
        if let Some(known) = self.frames.iter().position(|frame| frame.origin == Origin::Truncated) {
            return known as FrameId;
        }
        self.functions.push(Function {
            name: "[truncated]".to_owned(),
            linkage_name: None,
            file: None,
            line: None,
            category: Category::Runtime,
            module: None,
        });
        let line = Line { function: (self.functions.len() - 1) as FunctionId, line: None, column: None };
        self.frames.push(Frame { origin: Origin::Truncated, lines: vec![line] });
        (self.frames.len() - 1) as FrameId
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TRACK, finish, with_modules};
    use crate::{Sample, State};
    use wlprof_plugin::SourceFrame;

    /// A recursion that is one frame deeper at each sample, of a function with a name of so many bytes.
    fn recursion(depth: usize, name: usize, inlined: usize) -> Recording {
        let mut recorder = with_modules(1);
        let frame = recorder.frame(Origin::Wasm { module: 0, function: 0, code_offset: 0 });
        for depth in 1..=depth {
            let stack = recorder.stack(std::iter::repeat_n(frame, depth)).unwrap();
            let state = State::Guest;
            recorder.sample(TRACK, 0, Sample { time_ns: 0, cpu_delta_ns: 0, period_ns: 1, stack, state, labels: None });
        }
        finish(recorder, &mut |_: &Origin, out: &mut Vec<SourceFrame>| {
            for line in 0..=inlined {
                out.push(SourceFrame { function: "f".repeat(name), line: Some(line as u32), ..SourceFrame::default() });
            }
        })
    }

    fn written(recording: &Recording) -> usize {
        let lines = |sample: Sample| recording.lines_of(sample.stack).collect::<Vec<_>>();
        let name = |line: &Line| recording.functions[line.function as usize].name.len();
        recording.samples().map(|sample| lines(sample).iter().map(name).sum::<usize>()).sum()
    }

    #[test]
    fn a_recording_within_bounds_is_left_alone() {
        let recording = recursion(300, 20, 3);
        assert_eq!(recording.clone().bounded(), recording);
    }

    #[test]
    fn what_would_be_gigabytes_is_cut_at_the_root_and_told() {
        let recording = recursion(2000, 4000, 0);
        assert!(written(&recording) > 4 << 30);
        let bounded = recording.bounded();
        assert!(written(&bounded) <= 300 << 20, "{}", written(&bounded));
        assert!(bounded.meta.notes.iter().any(|note| note.contains("innermost frames")), "{:?}", bounded.meta.notes);
        let deepest = bounded.samples().last().unwrap();
        let names: Vec<_> = bounded.lines_of(deepest.stack).collect();
        let root = &bounded.functions[names.last().unwrap().function as usize].name;
        assert_eq!(root, "[truncated]");
        assert!(names.len() > SHORTEST);
    }

    #[test]
    fn inlining_without_end_has_one() {
        let recording = recursion(10, 1, 5000);
        let bounded = recording.clone().bounded();
        let (before, after) = (&recording.frames[0].lines, &bounded.frames[0].lines);
        assert_eq!((after.len(), after.first(), after.last()), (MOST_LINES, before.first(), before.last()));
        assert!(bounded.meta.notes.iter().any(|note| note.contains("inlined")), "{:?}", bounded.meta.notes);
    }
}
