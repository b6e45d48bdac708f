//! Which frames of a recording are shown: all, or those of the guest's program without its interpreter's own.

use super::file::unnamed;
use super::{Category, Frame, FrameId, Function, FunctionId, Line, Origin, Recording, StackId};
use serde::{Deserialize, Serialize};

/// Which frames of a recording are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// As the guest's language sees it: in stacks with frames of the language's own, those of its interpreter are left out.
    /// What they took is time of the frames that called them. Other stacks keep their frames, without what of the
    /// interpreter was inlined into functions that are not its own.
    Guest,
    /// All that were recorded.
    All,
    /// Those of wasm, and of the host: a language's own are left out. Where nothing else is left of a stack, `[elided]` stands.
    Native,
}

impl Recording {
    /// The recording with the frames that `view` shows.
    #[must_use]
    pub fn view(self, view: View) -> Self {
        match view {
            View::Guest => self.without_interpreter(),
            View::All => self,
            View::Native => self.without_language(),
        }
    }

    /// Whether wasm frames were recorded beside those of a language, where there are any of these.
    pub fn has_native(&self) -> bool {
        let mut of_language =
            (0..self.stacks.len() as StackId).filter(|stack| self.frames_of(*stack).any(is_language)).peekable();
        let is_wasm = |frame: &Frame| matches!(frame.origin, Origin::Wasm { .. });
        of_language.peek().is_none() || of_language.any(|stack| self.frames_of(stack).any(is_wasm))
    }

    fn without_language(mut self) -> Self {
        if !self.frames.iter().any(is_language) {
            return self;
        }
        let elided = self.elided();
        self.replace_stacks(|recording, stack| {
            let leaf_first = recording.frame_ids(stack).filter(|id| !is_language(&recording.frames[*id as usize]));
            let mut frames: Vec<FrameId> = leaf_first.collect();
            frames.reverse();
            if frames.is_empty() { vec![elided] } else { frames }
        });
        self
    }

    /// The frame that stands for what is left out.
    fn elided(&mut self) -> FrameId {
        if let Some(known) = self.frames.iter().position(|frame| frame.origin == Origin::Elided) {
            return known as FrameId;
        }
        let function = Function {
            name: unnamed(&Origin::Elided),
            linkage_name: None,
            file: None,
            line: None,
            category: Category::Runtime,
            module: None,
        };
        self.functions.push(function);
        let line = Line { function: self.functions.len() as FunctionId - 1, line: None, column: None };
        self.frames.push(Frame { origin: Origin::Elided, lines: vec![line] });
        self.frames.len() as FrameId - 1
    }

    fn without_interpreter(mut self) -> Self {
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

    /// Leaves the interpreter's functions out of frames that others are in as well, into which they were inlined. A frame
    /// that is nothing else keeps them: every frame has a line.
    fn hide_inlined(&mut self, shown: &[bool]) {
        let functions = &self.functions;
        let is_interpreter = |function: u32| functions[function as usize].category == Category::Interpreter;
        for (frame, _) in self.frames.iter_mut().zip(shown).filter(|(_, shown)| **shown) {
            if frame.lines.iter().any(|line| !is_interpreter(line.function)) {
                frame.lines.retain(|line| !is_interpreter(line.function));
            }
        }
    }

    /// A language's own frame is shown whatever its plugin calls it: it is what the language's stack consists of.
    fn is_shown(&self, frame: &Frame) -> bool {
        let is_interpreter = |function: u32| self.functions[function as usize].category == Category::Interpreter;
        !matches!(frame.origin, Origin::Wasm { .. }) || frame.lines.iter().any(|line| !is_interpreter(line.function))
    }
}

fn is_language(frame: &Frame) -> bool {
    matches!(frame.origin, Origin::Language { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TRACK, finish, with_modules};
    use crate::{Sample, State};
    use wlprof_plugin::{Category as Kind, SourceFrame};

    const MAIN: Origin = Origin::Wasm { module: 0, function: 0, code_offset: 0 };
    const PYTHON: Origin = Origin::Language { module: 0, key: 0 };
    /// One of the language's own that its plugin takes for the interpreter's.
    const STUB: Origin = Origin::Language { module: 0, key: 1 };
    const SORT: Origin = Origin::Wasm { module: 0, function: 1, code_offset: 0 };
    const MALLOC: Origin = Origin::Wasm { module: 0, function: 2, code_offset: 0 };

    fn named(origin: &Origin, out: &mut Vec<SourceFrame>) {
        let (function, category) = match *origin {
            MAIN => ("main", Kind::Interpreter),
            SORT => ("sort", Kind::Library),
            MALLOC => ("malloc", Kind::Interpreter),
            STUB => ("stub", Kind::Interpreter),
            _ => ("f", Kind::User),
        };
        out.push(SourceFrame { function: function.to_owned(), category, ..SourceFrame::default() });
    }

    /// The functions of these stacks, given root first, as they are shown, leaf first.
    fn shown(stacks: &[&[Origin]]) -> Vec<Vec<String>> {
        shown_as(View::Guest, stacks)
    }

    fn shown_as(view: View, stacks: &[&[Origin]]) -> Vec<Vec<String>> {
        let mut recorder = with_modules(1);
        for stack in stacks {
            let frames: Vec<FrameId> = stack.iter().map(|origin| recorder.frame(*origin)).collect();
            let stack = recorder.stack(frames).unwrap();
            let state = State::Guest;
            recorder.sample(TRACK, 0, Sample { time_ns: 0, cpu_delta_ns: 0, period_ns: 1, stack, state, labels: None });
        }
        let recording = finish(recorder, &mut named);
        assert_eq!(recording.clone().view(View::All), recording);
        let shown = recording.view(view);
        let name = |function: u32| shown.functions[function as usize].name.clone();
        shown.samples().map(|sample| shown.lines_of(sample.stack).map(|line| name(line.function)).collect()).collect()
    }

    #[test]
    fn an_interpreters_frames_go_where_the_language_has_its_own() {
        let stacks = shown(&[&[MAIN, PYTHON, SORT, MALLOC], &[MAIN, MALLOC], &[MAIN, PYTHON, MALLOC]]);
        assert_eq!(stacks, [vec!["sort", "f"], vec!["malloc", "main"], vec!["f"]]);
    }

    #[test]
    fn native_frames_alone_are_those_of_wasm_where_there_are_some() {
        let stacks = shown_as(View::Native, &[&[MAIN, PYTHON, SORT, MALLOC], &[PYTHON], &[MAIN]]);
        assert_eq!(stacks, [vec!["malloc", "sort", "main"], vec!["[elided]"], vec!["main"]]);
    }

    #[test]
    fn a_languages_own_frames_stay_even_if_they_are_the_interpreters() {
        assert_eq!(shown(&[&[MAIN, STUB, PYTHON], &[MAIN, STUB]]), [vec!["f", "stub"], vec!["stub"]]);
    }
}
