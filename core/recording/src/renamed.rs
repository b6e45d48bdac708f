//! Gives a recording that has names other ones: those of a module's symbols that were not at hand where it ran.

use super::build::FunctionTable;
use super::{Origin, Recording};
use wlprof_plugin::SourceFrame;

impl Recording {
    /// Names wasm frames anew. `names` appends the source frames of one, innermost inlined first, or nothing if it is to keep its names.
    /// Frames of a language's own and the host's keep theirs.
    pub fn rename(&mut self, mut names: impl FnMut(&Origin, &mut Vec<SourceFrame>)) {
        let mut functions = FunctionTable::default();
        let mut source = Vec::new();
        for frame in &mut self.frames {
            if matches!(frame.origin, Origin::Wasm { .. }) {
                names(&frame.origin, &mut source);
            }
            if source.is_empty() {
                for line in &mut frame.lines {
                    line.function = functions.function(self.functions[line.function as usize].clone());
                }
            } else {
                let origin = frame.origin;
                frame.lines = source.drain(..).map(|source| functions.line(&origin, source)).collect();
            }
        }
        self.functions = functions.functions;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn frames_keep_their_names_where_there_are_no_others() {
        let mut recording = example();
        recording.rename(|_, _| ());
        let lines = |recording: &Recording| -> Vec<Vec<(String, Option<u32>)>> {
            let name = |function: u32| recording.functions[function as usize].name.clone();
            let named = recording.frames.iter();
            named.map(|frame| frame.lines.iter().map(|line| (name(line.function), line.line)).collect()).collect()
        };
        assert_eq!(lines(&recording), lines(&example()));
        let is_wasm = |origin: &Origin| matches!(origin, Origin::Wasm { .. });
        recording.rename(|_, out| {
            for function in ["inlined", "physical"] {
                out.push(SourceFrame { function: function.to_owned(), line: Some(7), ..SourceFrame::default() });
            }
        });
        let new = [("inlined", Some(7)), ("physical", Some(7))].map(|(name, line)| (name.to_owned(), line));
        for ((frame, now), before) in recording.frames.iter().zip(lines(&recording)).zip(lines(&example())) {
            assert_eq!(now, if is_wasm(&frame.origin) { new.to_vec() } else { before });
        }
        assert!(recording.frames.iter().any(|frame| is_wasm(&frame.origin)));
    }
}
