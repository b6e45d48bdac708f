//! Leaves frames out of a recording: an interpreter's own, for whoever looks for the program's.

use super::{Category, Frame, FrameId, Origin, Recording};

impl Recording {
    /// The recording as the guest's language sees it: in stacks with frames of the language's own, those of its
    /// interpreter are left out. What they took is time of the frames that called them. Other stacks keep their frames,
    /// without what of the interpreter was inlined into functions that are not its own.
    #[must_use]
    pub fn without_interpreter(mut self) -> Self {
        if !self.functions.iter().any(|function| function.category == Category::Interpreter) {
            return self;
        }
        let shown: Vec<bool> = self.frames.iter().map(|frame| self.is_shown(frame)).collect();
        self.replace_stacks(|recording, stack| {
            let leaf_first: Vec<FrameId> = recording.frame_ids(stack).collect();
            let is_language = |id: &FrameId| matches!(recording.frames[*id as usize].origin, Origin::Language { .. });
            let hides = leaf_first.iter().any(is_language);
            leaf_first.into_iter().rev().filter(|id| !hides || shown[*id as usize]).collect()
        });
        self.hide_inlined(&shown);
        self
    }

    /// Leaves the interpreter's functions out of frames that others are in as well, into which they were inlined.
    fn hide_inlined(&mut self, shown: &[bool]) {
        let functions = &self.functions;
        for (frame, _) in self.frames.iter_mut().zip(shown).filter(|(_, shown)| **shown) {
            frame.lines.retain(|line| functions[line.function as usize].category != Category::Interpreter);
        }
    }

    fn is_shown(&self, frame: &Frame) -> bool {
        let is_interpreter = |function: u32| self.functions[function as usize].category == Category::Interpreter;
        !matches!(frame.origin, Origin::Wasm { .. }) || frame.lines.iter().any(|line| !is_interpreter(line.function))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{finish, with_modules};
    use super::super::{Sample, State};
    use super::*;
    use wlprof_plugin::{Category as Kind, SourceFrame};

    const MAIN: Origin = Origin::Wasm { module: 0, function: 0, code_offset: 0 };
    const PYTHON: Origin = Origin::Language { module: 0, key: 0 };
    const SORT: Origin = Origin::Wasm { module: 0, function: 1, code_offset: 0 };
    const MALLOC: Origin = Origin::Wasm { module: 0, function: 2, code_offset: 0 };

    fn named(origin: &Origin, out: &mut Vec<SourceFrame>) {
        let (function, category) = match *origin {
            MAIN => ("main", Kind::Interpreter),
            SORT => ("sort", Kind::Library),
            MALLOC => ("malloc", Kind::Interpreter),
            _ => ("f", Kind::User),
        };
        out.push(SourceFrame { function: function.to_owned(), category, ..SourceFrame::default() });
    }

    #[test]
    fn an_interpreters_frames_go_where_the_language_has_its_own() {
        let mut recorder = with_modules(1);
        for stack in [&[MAIN, PYTHON, SORT, MALLOC][..], &[MAIN, MALLOC], &[MAIN, PYTHON, MALLOC]] {
            let frames: Vec<FrameId> = stack.iter().map(|origin| recorder.frame(*origin)).collect();
            let stack = recorder.stack(frames).unwrap();
            let state = State::Guest;
            recorder.sample(0, Sample { time_ns: 0, cpu_delta_ns: 0, period_ns: 1, stack, state, labels: None });
        }
        let recording = finish(recorder, &mut named);
        let shown = recording.without_interpreter();
        let stacks: Vec<Vec<&str>> = shown
            .samples()
            .map(|sample| {
                let lines = shown.lines_of(sample.stack);
                lines.map(|line| shown.functions[line.function as usize].name.as_str()).collect()
            })
            .collect();
        assert_eq!(stacks, [vec!["sort", "f"], vec!["malloc", "main"], vec!["f"]]);
    }
}
