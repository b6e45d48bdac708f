//! The stacks, locations, functions and mappings that rows refer to: each once, in tables that several recordings can share.

use super::Table;
use super::limits::{ELIDED, bounded_text, cut};
use crate::module_addresses::{address_of, first_address};
use crate::string_table::StringTable;
use std::collections::HashMap;
use wlprof_recording::{Frame, FrameId, FunctionId, ModuleId, Origin, Recording, StackId};

/// The tables of a profile. Numbers count from 1; 0 is none.
pub(crate) struct Symbols {
    pub(crate) texts: StringTable,
    pub(crate) mappings: Table<Mapping>,
    pub(crate) functions: Table<Function>,
    pub(crate) locations: Table<Location>,
    /// Locations, leaf first.
    pub(crate) stacks: Table<Box<[u32]>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    /// Place of the text.
    pub(crate) filename: i64,
    pub(crate) build_id: String,
}

/// A function. Its texts are places in [`Symbols::texts`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    pub(crate) name: i64,
    /// 0 if it is the same as the name.
    pub(crate) system_name: i64,
    pub(crate) filename: i64,
    pub(crate) start_line: u32,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    /// 0 for the host.
    pub(crate) mapping: u32,
    pub(crate) address: u64,
    /// Innermost inlined function first.
    pub(crate) lines: Vec<Line>,
    /// The value of OTLP's `profile.frame.type`.
    pub(crate) frame_type: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) function: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Symbols {
    pub(crate) fn new() -> Self {
        Self {
            texts: StringTable::new(),
            mappings: Table::default(),
            functions: Table::default(),
            locations: Table::default(),
            stacks: Table::default(),
        }
    }

    /// A text of the guest's. The empty one stays so.
    fn text(&mut self, text: &str) -> i64 {
        if text.is_empty() { 0 } else { self.texts.place(&bounded_text(text)) }
    }

    /// The location that stands for frames that are left out.
    fn elided(&mut self) -> u32 {
        let name = self.text(ELIDED);
        let function = self.functions.id(Function { name, system_name: 0, filename: 0, start_line: 0 });
        let lines = vec![Line { function, line: 0, column: 0 }];
        self.locations.id(Location { mapping: 0, address: 0, lines, frame_type: None })
    }
}

/// Which numbers the items of a recording have in [`Symbols`].
pub(super) struct RecordingSymbols<'a> {
    recording: &'a Recording,
    functions: HashMap<FunctionId, u32>,
    frames: HashMap<FrameId, u32>,
    modules: HashMap<ModuleId, u32>,
    stacks: HashMap<StackId, u32>,
}

impl<'a> RecordingSymbols<'a> {
    pub(super) fn new(recording: &'a Recording) -> Self {
        Self {
            recording,
            functions: HashMap::new(),
            frames: HashMap::new(),
            modules: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    pub(super) fn stack(&mut self, stack: StackId, symbols: &mut Symbols) -> u32 {
        if let Some(id) = self.stacks.get(&stack) {
            return *id;
        }
        let frames: Vec<FrameId> = self.recording.frame_ids(stack).collect();
        let (leaf, root) = cut(&frames);
        let mut locations: Vec<u32> = leaf.iter().map(|frame| self.location(*frame, symbols)).collect();
        if !root.is_empty() {
            locations.push(symbols.elided());
            locations.extend(root.iter().map(|frame| self.location(*frame, symbols)));
        }
        let id = symbols.stacks.id(locations.into_boxed_slice());
        self.stacks.insert(stack, id);
        id
    }

    fn location(&mut self, id: FrameId, symbols: &mut Symbols) -> u32 {
        if let Some(id) = self.frames.get(&id) {
            return *id;
        }
        let frame = &self.recording.frames[id as usize];
        let (module, address) = address_of(frame.origin);
        let line = |line: &wlprof_recording::Line| Line {
            function: self.function(line.function, symbols),
            line: line.line.unwrap_or(0),
            column: line.column.unwrap_or(0),
        };
        let lines = frame.lines.iter().map(line).collect();
        let mapping = module.map_or(0, |module| self.mapping(module, symbols));
        let frame_type = frame_type(self.recording, frame);
        let location = symbols.locations.id(Location { mapping, address, lines, frame_type });
        self.frames.insert(id, location);
        location
    }

    fn function(&mut self, id: FunctionId, symbols: &mut Symbols) -> u32 {
        *self.functions.entry(id).or_insert_with(|| {
            let function = &self.recording.functions[id as usize];
            let name = symbols.texts.place(&bounded_text(&function.name));
            let system_name = symbols.text(function.linkage_name.as_deref().unwrap_or_default());
            let filename = symbols.text(function.file.as_deref().unwrap_or_default());
            symbols.functions.id(Function {
                name,
                system_name: if system_name == name { 0 } else { system_name },
                filename,
                start_line: function.line.unwrap_or(0),
            })
        })
    }

    fn mapping(&mut self, id: ModuleId, symbols: &mut Symbols) -> u32 {
        *self.modules.entry(id).or_insert_with(|| {
            let module = &self.recording.modules[id as usize];
            let filename = symbols.text(&module.name);
            let is_known = !module.build_id.is_empty();
            let build_id = if is_known { bounded_text(&module.build_id).into_owned() } else { String::new() };
            symbols.mappings.id(Mapping { start: first_address(Some(id)), filename, build_id })
        })
    }
}

/// The kind of a frame, by OTLP's names and `wasm`, which has none there. Adapters between components are wasm that Wasmtime makes. What only
/// stands for missing frames has no kind.
fn frame_type(recording: &Recording, frame: &Frame) -> Option<&'static str> {
    match frame.origin {
        Origin::Wasm { .. } | Origin::Adapter => Some("wasm"),
        Origin::HostCall { .. } | Origin::Native { .. } | Origin::Host => Some("native"),
        Origin::Language { .. } => {
            let function = frame.lines.last().map(|line| &recording.functions[line.function as usize]);
            let file = function.and_then(|function| function.file.as_deref()).unwrap_or_default();
            Some(match file {
                _ if file.ends_with(".py") => "cpython",
                _ if file.ends_with(".go") => "go",
                _ => "wasm",
            })
        }
        Origin::Truncated | Origin::Elided => None,
    }
}
