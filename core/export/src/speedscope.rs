//! speedscope's own file format: <https://www.speedscope.app/file-format-schema.json>.
//!
//! A profile a thread, whose samples stay in order of time, each with the time that it stands for. speedscope lays them end to
//! end, so that a profile ends at their sum and not when the guest did.
//!
//! What speedscope counts as one is a frame of the table that all profiles share. Here that is a line of a function, as other
//! profilers have it, and not a place within the line: those would tear a line's time apart. So a frame has a column where
//! its line has only one.

use super::Exporter;
use super::json::Column;
use super::plain_text::printable_name;
use super::with_a_thread;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use wlprof_recording::{FunctionId, Line, Recording, StackId, Thread};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// `speedscope`: for speedscope.app.
pub(super) struct Speedscope;

impl Exporter for Speedscope {
    fn name(&self) -> &'static str {
        "speedscope"
    }

    fn description(&self) -> &'static str {
        "A profile for speedscope, https://www.speedscope.app, with all samples in order of time"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["speedscope.json"]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("load {} at https://www.speedscope.app", path.display())
    }

    fn export(&self, recording: &Recording, _: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        let recording = &*with_a_thread(recording);
        let frames = Frames::of(recording);
        let meta = &recording.meta;
        let words: Vec<_> =
            std::iter::once(&meta.guest).chain(&meta.arguments).map(|word| printable_name(word)).collect();
        let file = File {
            schema: SCHEMA,
            exporter: format!("wlprof {}", meta.wlprof_version),
            name: words.join(" "),
            active_profile_index: 0,
            shared: SharedTables { frames: frames.table(recording) },
            profiles: Column(recording.threads.iter().map(|thread| frames.profile(recording, thread))),
        };
        serde_json::to_writer(out, &file)?;
        Ok(None)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<Profiles> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    active_profile_index: usize,
    shared: SharedTables,
    profiles: Profiles,
}

#[derive(Serialize)]
struct SharedTables {
    frames: Vec<FrameRow>,
}

#[derive(Serialize)]
struct FrameRow {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    col: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<Samples, Weights> {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Samples,
    weights: Weights,
}

/// A line of a function.
type Place = (FunctionId, Option<u32>);

/// The frames that stacks go through.
struct Frames {
    /// Each with its place in the table and its column, if there is only one.
    all: BTreeMap<Place, (usize, Option<u32>)>,
}

fn place(line: &Line) -> Place {
    (line.function, line.line)
}

impl Frames {
    fn of(recording: &Recording) -> Self {
        let mut all = BTreeMap::new();
        let seen = recording.stacks.iter().flat_map(|stack| &recording.frames[stack.frame as usize].lines);
        for line in seen {
            let (_, column) = all.entry(place(line)).or_insert((0, line.column));
            *column = column.filter(|column| Some(*column) == line.column);
        }
        (0..).zip(all.values_mut()).for_each(|(number, (index, _))| *index = number);
        Self { all }
    }

    fn table(&self, recording: &Recording) -> Vec<FrameRow> {
        let row = |(&(function, line), &(_, col)): (&Place, &(usize, Option<u32>))| {
            let function = &recording.functions[function as usize];
            FrameRow {
                name: printable_name(&function.name).into_owned(),
                file: function.file.as_deref().map(|file| printable_name(file).into_owned()),
                line,
                col,
            }
        };
        self.all.iter().map(row).collect()
    }

    /// A stack's frames, root first.
    fn stack(&self, recording: &Recording, stack: StackId) -> Vec<usize> {
        let mut frames: Vec<usize> = recording.lines_of(stack).map(|line| self.all[&place(&line)].0).collect();
        frames.reverse();
        frames
    }

    fn profile<'a>(&'a self, recording: &'a Recording, thread: &'a Thread) -> impl Serialize + 'a {
        let samples = thread.samples.iter();
        Profile {
            r#type: "sampled",
            name: printable_name(&recording.thread_name(thread)).into_owned(),
            unit: if recording.part.is_some() { "bytes" } else { "nanoseconds" },
            start_value: 0,
            end_value: samples.clone().fold(0_u64, |sum, sample| sum.saturating_add(sample.period_ns)),
            samples: Column(samples.clone().map(|sample| self.stack(recording, sample.stack))),
            weights: Column(samples.map(|sample| sample.period_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use wlprof_recording::example;

    #[test]
    fn samples_keep_their_order_and_lines_their_columns_if_they_have_one() {
        let recording = example();
        let mut written = Vec::new();
        Speedscope.export(&recording, Path::new("/x.speedscope.json"), &mut written).unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        let frames = written["shared"]["frames"].as_array().unwrap();
        let at_line = |line: u32| {
            let mut own = frames.iter().filter(|frame| frame["line"] == line && frame["file"] == "/app/shop.py");
            let frame = own.next().unwrap();
            assert!(own.next().is_none(), "a line is one frame");
            frame.clone()
        };
        assert_eq!(at_line(6)["col"], Value::Null, "sampled in two of its columns");
        assert_eq!(frames.iter().filter(|frame| frame["col"] == 21).count(), 1);

        for (thread, profile) in recording.threads.iter().zip(written["profiles"].as_array().unwrap()) {
            let weights: Vec<u64> = serde_json::from_value(profile["weights"].clone()).unwrap();
            assert!(weights.iter().copied().eq(thread.samples.iter().map(|sample| sample.period_ns)));
            assert_eq!(profile["endValue"], weights.iter().sum::<u64>());
            let samples: Vec<Vec<usize>> = serde_json::from_value(profile["samples"].clone()).unwrap();
            assert_eq!(samples.len(), weights.len());
            for (indexes, sample) in samples.iter().zip(thread.samples.iter()) {
                let leaf = recording.lines_of(sample.stack).next().unwrap();
                let frame = &frames[*indexes.last().unwrap()];
                let name = printable_name(&recording.functions[leaf.function as usize].name);
                assert_eq!((frame["name"].as_str(), &frame["line"]), (Some(&*name), &Value::from(leaf.line)));
                assert_eq!(indexes.len(), recording.lines_of(sample.stack).count());
            }
        }
    }
}
