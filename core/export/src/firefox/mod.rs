//! The Firefox Profiler's processed profile format, version 64.
//!
//! Why 64: from there on a profile has its tables in `shared` and may carry source text, and the public front end has
//! read it since June 2026. Newer files are refused by older front ends, older files are upgraded by newer ones.
//!
//! The source view shows the text of a source where the profile has it (`content`), and asks servers for it where not. The
//! front end leaves these texts out of profiles that it uploads.
//!
//! The front end validates nothing: a missing column or an index out of range crashes a panel or lies quietly. So every
//! column is written, empty or not, and null and -1 are not interchangeable (`address` and `resource` take -1).
//!
//! A call-tree row is a *function*, shown with the line the function is declared at; the lines that ran are in
//! `frameTable.line` and show in the source view. One frame is written for each distinct line of a function, so that
//! they do. Inlined frames share the address and the native symbol of the function they are inlined into, with
//! `inlineDepth` counting from 0 at the outermost.

mod allocations;
mod counters;
mod markers;

use super::Exporter;
use super::categories::{CATEGORIES, category_index};
use super::json::Column;
use super::with_a_thread;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use wlprof_recording::{Frame, Function, Line, Origin, Recording, Thread};

const VERSION: u32 = 64;

/// `firefox`: for profiler.firefox.com.
pub(super) struct Firefox;

impl Exporter for Firefox {
    fn name(&self) -> &'static str {
        "firefox"
    }

    fn description(&self) -> &'static str {
        "A profile for the Firefox Profiler, https://profiler.firefox.com"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["json"]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("load {} at https://profiler.firefox.com", path.display())
    }

    fn is_of_time(&self) -> bool {
        true
    }

    fn shows_sources(&self) -> bool {
        true
    }

    fn export(&self, recording: &Recording, _: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        let with_threads = allocations::with_threads(recording);
        let recording = &*with_a_thread(&with_threads);
        let tables = Tables::new(recording);
        let profile = Profile {
            meta: meta(recording),
            libs: recording.modules.iter().map(library).collect(),
            threads: Column(recording.threads.iter().enumerate().map(|(i, t)| tables.thread(recording, i, t))),
            shared: tables.shared(recording),
            counters: counters::table(recording),
        };
        serde_json::to_writer(out, &profile)?;
        Ok(None)
    }
}

#[derive(Serialize)]
struct Profile<Threads> {
    meta: Value,
    libs: Vec<Value>,
    threads: Threads,
    shared: Value,
    counters: Vec<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThreadProfile<'a, Samples> {
    name: String,
    process_name: &'a str,
    process_type: &'static str,
    is_main_thread: bool,
    show_markers_in_timeline: bool,
    pid: &'static str,
    tid: u64,
    register_time: u32,
    unregister_time: f64,
    process_startup_time: u32,
    process_shutdown_time: f64,
    paused_ranges: [u32; 0],
    samples: Samples,
    markers: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    native_allocations: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleTable<Stack, Time, Weight, Delta> {
    length: u64,
    stack: Stack,
    time: Time,
    weight: Option<Weight>,
    weight_type: &'static str,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: Delta,
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn meta(recording: &Recording) -> Value {
    let meta = &recording.meta;
    let facts = [
        ("Sampler", meta.sampler.clone()),
        ("Clock", format!("{:?}", meta.clock).to_lowercase()),
        ("Requested rate", format!("{} Hz", meta.requested_hz)),
        ("Allowed rate", format!("{:.0} Hz", meta.allowed_hz)),
        ("Samples", recording.ticks.sampled.to_string()),
        ("Time not sampled", format!("{:.1} ms", ms(meta.unsampled_ns))),
        ("Time taken by sampling", format!("{:.1} ms", ms(meta.sampling_ns))),
        ("Ticks lost", recording.ticks.lost().to_string()),
        ("Ticks while waiting", recording.ticks.idle.to_string()),
        ("Ticks without a processor", recording.ticks.preempted.to_string()),
        ("Ticks too late to fire", recording.ticks.late.to_string()),
        ("Source files", format!("{}, whose text is in this file", recording.sources.len())),
        ("Truncated stacks", recording.truncated.iter().map(|(_, count)| count).sum::<u64>().to_string()),
    ];
    let notes = meta.notes.iter().map(|note| ("Note", note.clone()));
    let entries: Vec<Value> = facts
        .into_iter()
        .chain(notes)
        .map(|(label, value)| json!({"label": label, "format": "string", "value": value}))
        .collect();
    json!({
        "interval": 1e3 / meta.allowed_hz.max(1e-3),
        "startTime": meta.start_unix_ms,
        "profilingStartTime": 0,
        "profilingEndTime": ms(meta.duration_ns),
        "processType": 0,
        "product": meta.guest,
        "importedFrom": "wlprof",
        "arguments": meta.arguments.join(" "),
        "stackwalk": 1,
        "version": 30,
        "preprocessedProfileVersion": VERSION,
        "symbolicated": true,
        "symbolicationNotSupported": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "categories": CATEGORIES.iter().map(|shown| {
            json!({"name": shown.name, "color": shown.color, "subcategories": ["Other"]})
        }).collect::<Vec<_>>(),
        "markerSchema": markers::schema(),
        "extra": [{"label": "wlprof", "entries": entries}],
    })
}

fn library(module: &wlprof_recording::Module) -> Value {
    json!({
        "arch": "wasm32", "name": module.name, "path": module.name, "debugName": module.name,
        "debugPath": module.name, "breakpadId": "", "codeId": module.build_id,
    })
}

/// A line of a frame that is itself perhaps inlined into others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FrameRow {
    line: Line,
    /// The physical function that holds it, as a row of the native symbol table.
    native_symbol: Option<usize>,
    /// Code offset of the frame, -1 where it has none.
    address: i64,
    inline_depth: usize,
}

/// The tables that all threads share.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    string_ids: HashMap<String, usize>,
    sources: Vec<usize>,
    source_ids: HashMap<String, usize>,
    resources: Vec<(Option<u32>, usize)>,
    functions: Vec<FunctionRow>,
    native_symbols: Vec<(u32, u32, usize)>,
    native_symbol_ids: HashMap<(u32, u32), usize>,
    frames: Vec<(FrameRow, usize)>,
    frame_ids: HashMap<FrameRow, usize>,
    stacks: Vec<(usize, Option<usize>)>,
    stack_ids: HashMap<(usize, Option<usize>), usize>,
    /// For each stack of the recording, its row here.
    stack_rows: Vec<usize>,
    /// For each frame of the recording, the name of its leaf line.
    host_call_names: Vec<String>,
}

struct FunctionRow {
    name: usize,
    resource: usize,
    source: Option<usize>,
    line: Option<u32>,
}

impl Tables {
    fn new(recording: &Recording) -> Self {
        let mut tables = Self::default();
        tables.string(markers::HOST_CALL);
        markers::label_names(recording).into_iter().for_each(|name| _ = tables.string(name));
        let resources = recording.modules.iter().map(|module| module.name.as_str()).chain(["host"]);
        for (index, name) in resources.enumerate() {
            let name = tables.string(name);
            let library = (index < recording.modules.len()).then_some(index as u32);
            tables.resources.push((library, name));
        }
        for function in &recording.functions {
            tables.function(function, recording.modules.len());
        }
        for stack in &recording.stacks {
            let parent = stack.parent.map(|id| tables.stack_rows[id as usize]);
            let row = tables.stack(recording, &recording.frames[stack.frame as usize], parent);
            tables.stack_rows.push(row);
        }
        tables.host_call_names = recording
            .frames
            .iter()
            .map(|frame| recording.functions[frame.lines[0].function as usize].name.clone())
            .collect();
        tables
    }

    fn string(&mut self, text: &str) -> usize {
        if let Some(&id) = self.string_ids.get(text) {
            return id;
        }
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), self.strings.len() - 1);
        self.strings.len() - 1
    }

    fn function(&mut self, function: &Function, host_resource: usize) {
        let name = self.string(&function.name);
        let source = function.file.as_ref().map(|file| {
            let text = self.string(file);
            *self.source_ids.entry(file.clone()).or_insert_with(|| {
                self.sources.push(text);
                self.sources.len() - 1
            })
        });
        let resource = function.module.map_or(host_resource, |module| module as usize);
        self.functions.push(FunctionRow { name, resource, source, line: function.line });
    }

    /// The row of `frame`, with all that is inlined there, on top of row `parent`.
    fn stack(&mut self, recording: &Recording, frame: &Frame, mut parent: Option<usize>) -> usize {
        let (native_symbol, address) = match frame.origin {
            Origin::Wasm { module, function, code_offset } => {
                let physical = frame.lines[frame.lines.len() - 1];
                let symbol = self.native_symbol(recording, module, function, physical);
                // Where the function begins is not in the recording; the first place seen in it stands in.
                let first = &mut self.native_symbols[symbol].1;
                *first = code_offset.min(*first);
                (Some(symbol), i64::from(code_offset))
            }
            _ => (None, -1),
        };
        for (inline_depth, &line) in frame.lines.iter().rev().enumerate() {
            let category = recording.functions[line.function as usize].category;
            let row = FrameRow { line, native_symbol, address, inline_depth };
            let frame = *self.frame_ids.entry(row).or_insert_with(|| {
                self.frames.push((row, category_index(category)));
                self.frames.len() - 1
            });
            parent = Some(*self.stack_ids.entry((frame, parent)).or_insert_with(|| {
                self.stacks.push((frame, parent));
                self.stacks.len() - 1
            }));
        }
        parent.expect("a frame has at least one line")
    }

    fn native_symbol(&mut self, recording: &Recording, module: u32, function: u32, physical: Line) -> usize {
        let name = self.string(&recording.functions[physical.function as usize].name);
        *self.native_symbol_ids.entry((module, function)).or_insert_with(|| {
            self.native_symbols.push((module, u32::MAX, name));
            self.native_symbols.len() - 1
        })
    }

    fn shared(&self, recording: &Recording) -> Value {
        fn column<T, V: Into<Value>>(rows: &[T], value: impl Fn(&T) -> V) -> Value {
            rows.iter().map(|row| value(row).into()).collect::<Vec<Value>>().into()
        }
        let nulls = |length: usize| vec![Value::Null; length];
        let Self { strings, sources, resources, functions, native_symbols, frames, stacks, .. } = self;
        json!({
            "stringArray": strings,
            "sources": {
                "length": sources.len(),
                "id": nulls(sources.len()),
                "filename": sources,
                "startLine": vec![1; sources.len()],
                "startColumn": vec![1; sources.len()],
                "sourceMapURL": nulls(sources.len()),
                "content": column(sources, |name| recording.sources.get(&strings[*name]).cloned()),
            },
            "sourceLocationTable": {"length": 0, "source": [], "line": [], "column": []},
            "resourceTable": {
                "length": resources.len(),
                "lib": column(resources, |row| row.0),
                "name": column(resources, |row| row.1),
                "host": nulls(resources.len()),
                "type": vec![1; resources.len()],
            },
            "nativeSymbols": {
                "length": native_symbols.len(),
                "libIndex": column(native_symbols, |row| row.0),
                "address": column(native_symbols, |row| row.1),
                "name": column(native_symbols, |row| row.2),
                "functionSize": nulls(native_symbols.len()),
            },
            "funcTable": {
                "length": functions.len(),
                "name": column(functions, |row| row.name),
                "isJS": vec![false; functions.len()],
                "relevantForJS": vec![false; functions.len()],
                "resource": column(functions, |row| row.resource),
                "source": column(functions, |row| row.source),
                "lineNumber": column(functions, |row| row.line),
                "columnNumber": nulls(functions.len()),
                "originalLocation": nulls(functions.len()),
            },
            "frameTable": {
                "length": frames.len(),
                "address": column(frames, |row| row.0.address),
                "inlineDepth": column(frames, |row| row.0.inline_depth),
                "category": column(frames, |row| row.1),
                "subcategory": vec![0; frames.len()],
                "func": column(frames, |row| row.0.line.function),
                "nativeSymbol": column(frames, |row| row.0.native_symbol),
                "innerWindowID": nulls(frames.len()),
                "line": column(frames, |row| row.0.line.line),
                "column": column(frames, |row| row.0.line.column),
                "originalLocation": nulls(frames.len()),
            },
            "stackTable": {
                "length": stacks.len(),
                "frame": column(stacks, |row| row.0),
                "prefix": column(stacks, |row| row.1),
            },
        })
    }

    fn thread<'a>(&'a self, recording: &'a Recording, index: usize, thread: &'a Thread) -> impl Serialize + 'a {
        let samples = thread.samples.iter();
        let periods = samples.clone().map(|sample| sample.period_ns);
        let periods_differ = periods.clone().zip(periods.skip(1)).any(|(one, next)| one != next);
        // Plain counts read best; where the governor changed the rate only time is a true weight.
        let weight = periods_differ.then(|| Column(samples.clone().map(|sample| ms(sample.period_ns))));
        ThreadProfile {
            name: recording.thread_name(thread),
            process_name: &recording.meta.guest,
            process_type: "default",
            is_main_thread: index == 0,
            show_markers_in_timeline: true,
            pid: "0",
            tid: thread.tid,
            register_time: 0,
            unregister_time: ms(recording.meta.duration_ns),
            process_startup_time: 0,
            process_shutdown_time: ms(recording.meta.duration_ns),
            paused_ranges: [],
            samples: SampleTable {
                length: thread.samples.len(),
                stack: Column(samples.clone().map(|sample| self.stack_rows[sample.stack as usize])),
                time: Column(samples.clone().map(|sample| ms(sample.time_ns))),
                weight_type: if weight.is_some() { "tracing-ms" } else { "samples" },
                weight,
                thread_cpu_delta: Column(samples.map(|sample| sample.cpu_delta_ns)),
            },
            markers: markers::table(
                recording,
                thread,
                |text| self.string_ids.get(text).copied().unwrap_or(0),
                |frame| self.host_call_names[frame as usize].clone(),
            ),
            native_allocations: allocations::table(recording, index, |stack| self.stack_rows[stack as usize]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    #[test]
    fn sources_that_are_there_are_in_the_profile_under_their_names() {
        let mut recording = example();
        recording.sources.insert("/app/shop.py".to_owned(), "pass\n".to_owned());
        let mut written = Vec::new();
        Firefox.export(&recording, Path::new("/x.json"), &mut written).unwrap();
        let profile: Value = serde_json::from_slice(&written).unwrap();
        let shared = &profile["shared"];
        let names = shared["sources"]["filename"].as_array().unwrap();
        let texts = shared["sources"]["content"].as_array().unwrap();
        for (name, text) in names.iter().zip(texts) {
            let name = shared["stringArray"][name.as_u64().unwrap() as usize].as_str().unwrap();
            assert_eq!(text.as_str(), (name == "/app/shop.py").then_some("pass\n"), "{name}");
        }
        assert!(texts.iter().any(Value::is_string) && texts.iter().any(Value::is_null));
    }
}
