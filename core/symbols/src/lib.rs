//! Names every distinct frame of a recording, once.

#![forbid(unsafe_code)]

mod advice;
mod program_names;
mod source_map;
mod tables;

pub use program_names::ProgramNames;
pub use tables::SharedTables;

use source_map::SourceMap;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tables::SharedModule;
use wasmparser::Operator;
use wlprof_module::ModuleImage;
use wlprof_plugin::{Category, FrameKey, ModuleView, Program, SourceFrame, WasmFrame};
use wlprof_recording::file::unnamed;
use wlprof_recording::{ADAPTER, Frame, ModuleId, Names, Origin, RawRecording, Recording, shorten_names};

/// Names the frames of a recording that has no names yet. `modules` are those that it was made of, and `programs` what
/// languages know of them. `progress` is called with the number of frames done.
pub fn name(
    raw: RawRecording,
    modules: &[Arc<ModuleImage>],
    programs: Vec<Option<Arc<dyn Program>>>,
    progress: impl FnMut(usize),
) -> Recording {
    Symbols::new(modules, programs).name(raw, progress)
}

/// Names the wasm frames of a recording anew that has names. `of` says which of `modules` each of the recording's modules is; frames of
/// others keep their names. `programs` are as [`name`] has them.
pub fn rename(
    recording: &mut Recording,
    modules: &[Arc<ModuleImage>],
    programs: Vec<Option<Arc<dyn Program>>>,
    of: &HashMap<ModuleId, ModuleId>,
) {
    let mut symbols = Symbols::new(modules, programs);
    recording.rename(|origin, out| {
        if let Origin::Wasm { module, function, code_offset } = *origin
            && let Some(&module) = of.get(&module)
        {
            symbols.frames(&Origin::Wasm { module, function, code_offset }, out);
        }
    });
    for (&id, &module) in of {
        let symbolizer = &symbols.modules[module as usize];
        // What was said for want of these symbols is not true any more.
        let advice = without_debug_information(symbolizer.image.name());
        recording.meta.notes.retain(|note| !note.contains(&advice));
        let mut notes: Vec<String> = symbolizer.notes(id, recording).collect();
        notes.retain(|note| !recording.meta.notes.contains(note));
        recording.meta.notes.append(&mut notes);
    }
}

/// What notes begin with of a module without debug information.
fn without_debug_information(module: &str) -> String {
    format!("{module} has no debug information; ")
}

/// Which module, of those that work on the same memory, is in a language.
fn sibling_in_language(image: &ModuleImage, is_in_one: impl Fn(&usize) -> bool) -> Option<usize> {
    image.siblings().iter().map(|sibling| *sibling as usize).find(is_in_one)
}

struct Naming<'a, P> {
    symbolizers: &'a mut [Symbolizer],
    done: usize,
    progress: P,
}

impl<P: FnMut(usize)> Names for Naming<'_, P> {
    fn frames(&mut self, origin: &Origin, out: &mut Vec<SourceFrame>) {
        name_origin(origin, self.symbolizers, out);
        out.iter_mut().for_each(shorten_names);
        self.done += 1;
        (self.progress)(self.done);
    }

    fn instance(&self, module: ModuleId) -> Option<&str> {
        self.symbolizers.get(module as usize)?.image.instance()
    }

    fn is_glue(&self, module: ModuleId) -> bool {
        self.symbolizers.get(module as usize).is_some_and(|symbolizer| symbolizer.image.is_glue())
    }
}

fn named(function: &str) -> SourceFrame {
    SourceFrame { function: function.to_owned(), ..SourceFrame::default() }
}

/// Names frames: of recordings, or one by one.
#[derive(Default)]
pub struct Symbols {
    modules: Vec<Symbolizer>,
    tables: SharedTables,
}

impl Symbols {
    /// Reads the names and debug information of the modules of a program. `programs` are what languages know of them.
    pub fn new(modules: &[Arc<ModuleImage>], programs: Vec<Option<Arc<dyn Program>>>) -> Self {
        let tables = SharedTables::default();
        let is_in_one = |module: &usize| programs.get(*module).is_some_and(Option::is_some);
        let symbolizer = |(number, image): (usize, &Arc<ModuleImage>)| {
            let program = programs.get(number).cloned().flatten();
            let walked_by = if program.is_some() { None } else { sibling_in_language(image, is_in_one) };
            Symbolizer { walked_by, ..Symbolizer::new(image.clone(), program, &tables) }
        };
        let modules = modules.iter().enumerate().map(symbolizer).collect();
        Self { modules, tables }
    }

    /// Names of no module yet. Those that come share `tables` with others.
    pub fn sharing(tables: &SharedTables) -> Self {
        Self { modules: Vec::new(), tables: tables.clone() }
    }

    /// Has the module of that id, the next one at most, be this one from here on. `walked_by` is the one, of those that work on its memory,
    /// that is in a language, if it is in none itself.
    pub fn set(
        &mut self,
        id: usize,
        image: Arc<ModuleImage>,
        program: Option<Arc<dyn Program>>,
        walked_by: Option<usize>,
    ) {
        let symbolizer = Symbolizer { walked_by, ..Symbolizer::new(image, program, &self.tables) };
        match self.modules.get_mut(id) {
            Some(old) => *old = symbolizer,
            None => self.modules.push(symbolizer),
        }
        self.tables.forget_unused();
    }

    /// How many modules it knows.
    pub fn count(&self) -> usize {
        self.modules.len()
    }

    /// As [`name`], with these symbols.
    pub fn name(&mut self, raw: RawRecording, progress: impl FnMut(usize)) -> Recording {
        if raw.is_named() {
            return raw.named(&mut |origin: &Origin, out: &mut Vec<SourceFrame>| out.push(named(&unnamed(origin))));
        }
        let mut recording = raw.named(&mut Naming { symbolizers: &mut self.modules, done: 0, progress });
        for (id, symbolizer) in (0..).zip(&self.modules) {
            let mut notes: Vec<String> = symbolizer.notes(id, &recording).collect();
            // They may have been asked when the recording was closed.
            notes.retain(|note| !recording.meta.notes.contains(note));
            recording.meta.notes.extend(notes);
        }
        recording
    }

    /// Appends what is at `origin`, innermost inlined call first.
    pub fn frames(&mut self, origin: &Origin, out: &mut Vec<SourceFrame>) {
        name_origin(origin, &mut self.modules, out);
        out.iter_mut().for_each(shorten_names);
    }
}

/// Names that are no function's are in brackets, as perf has them: scripts that fold stacks drop those that begin with a
/// parenthesis.
fn name_origin(origin: &Origin, symbolizers: &mut [Symbolizer], out: &mut Vec<SourceFrame>) {
    match *origin {
        Origin::Wasm { module, function, code_offset } => {
            if let Some(symbolizer) = symbolizers.get_mut(module as usize) {
                symbolizer.symbolize(WasmFrame::attached(function, code_offset), out);
            }
            categorize_as_sibling(module, symbolizers, out);
        }
        Origin::HostCall { module, function, code_offset } => {
            let symbolizer = symbolizers.get(module as usize);
            out.extend(symbolizer.map(|symbolizer| named(&symbolizer.host_call(function, code_offset))));
        }
        Origin::Language { .. }
        | Origin::Native { .. }
        | Origin::Host
        | Origin::Truncated
        | Origin::Elided
        | Origin::Adapter => {}
    }
    if out.is_empty() {
        out.push(named(&unnamed(origin)));
    }
}

/// What works on a language's memory is of its interpreter, or not, in whatever module it is.
fn categorize_as_sibling(module: ModuleId, symbolizers: &[Symbolizer], frames: &mut [SourceFrame]) {
    let sibling = symbolizers.get(module as usize).and_then(|symbolizer| symbolizers.get(symbolizer.walked_by?));
    if let Some(program) = sibling.and_then(|sibling| sibling.program.as_deref()) {
        for frame in frames {
            frame.category = program.categorize(frame).unwrap_or(frame.category);
        }
    }
}

/// Names the frames of one module.
struct Symbolizer {
    image: Arc<ModuleImage>,
    /// What the language knows of it.
    program: Option<Arc<dyn Program>>,
    /// The module whose language the stacks are in that this one's frames are on, if that is another.
    walked_by: Option<usize>,
    /// What its own symbols say.
    tables: SharedModule,
    /// What its source map says, once a frame has asked for it.
    source_map: OnceLock<Result<SourceMap, String>>,
}

impl Symbolizer {
    fn new(image: Arc<ModuleImage>, program: Option<Arc<dyn Program>>, tables: &SharedTables) -> Self {
        let tables = tables.of(&image);
        Self { image, program, walked_by: None, tables, source_map: OnceLock::new() }
    }

    /// Asks the language first: it may know better names for wasm functions than DWARF or the name section does.
    fn symbolize(&mut self, wasm: WasmFrame, out: &mut Vec<SourceFrame>) {
        if let Some(program) = &self.program {
            program.symbolize(FrameKey::Wasm(wasm), out);
        }
        if out.is_empty() {
            self.tables.lock().symbolize(wasm, out);
            self.locate(wasm, out);
            for frame in out {
                if let Some(program) = &self.program {
                    frame.category = program.categorize(frame).unwrap_or(frame.category);
                } else if self.image.is_glue() {
                    frame.category = Category::Runtime;
                }
                // They are called by numbers.
                if self.image.stands_in() {
                    ADAPTER.clone_into(&mut frame.function);
                }
            }
        }
    }

    /// Adds the lines of the module's source map, if it has one, to the function at that place, which is the only frame.
    fn locate(&self, WasmFrame { function, code_offset, .. }: WasmFrame, out: &mut Vec<SourceFrame>) {
        if let Some(Ok(map)) = self.source_map()
            && let Some(body) = self.image.function_body(function)
            && let Some(frame) = out.pop()
        {
            let start = self.image.code_start();
            map.locate(start + body.start..start + body.end, start.saturating_add(code_offset), frame, out);
        }
    }

    fn source_map(&self) -> Option<&Result<SourceMap, String>> {
        let json = self.image.source_map()?;
        Some(self.source_map.get_or_init(|| SourceMap::read(json)))
    }

    /// What the host does for the instruction at `code_offset`: the import that it calls, or the operation that
    /// Wasmtime carries out in host code.
    fn host_call(&self, function: u32, code_offset: u32) -> String {
        match self.image.operator_at(function, code_offset) {
            Some(Operator::Call { function_index } | Operator::ReturnCall { function_index }) => {
                self.image.import_name(function_index).unwrap_or_else(|| "[wasmtime]".into())
            }
            Some(Operator::CallIndirect { .. } | Operator::CallRef { .. }) => {
                "[host function called indirectly]".into()
            }
            // Its code is not the module's.
            Some(_) if self.image.is_stand_in() => "[host]".into(),
            Some(operator) => builtin(&operator).map_or_else(|| "[wasmtime]".into(), |name| format!("wasm.{name}")),
            None => "[host]".into(),
        }
    }

    /// What the user should know of the module's symbols.
    fn notes(&self, id: ModuleId, recording: &Recording) -> impl Iterator<Item = String> {
        let of_wasm = |frame: &&Frame| matches!(frame.origin, Origin::Wasm { module, .. } if module == id);
        let any_wasm = recording.frames.iter().any(|frame| of_wasm(&frame));
        let of_module = |frame: &&Frame| frame.origin.module() == Some(id);
        let lines = recording.frames.iter().filter(of_module).flat_map(|frame| &frame.lines);
        let any_line = lines.into_iter().any(|line| line.line.is_some());
        let name = self.image.name();
        let functions = match self.image.custom_section("name") {
            Some(_) => "functions have names but no lines",
            None => "functions have no lines, and names only where they are exported",
        };
        // Of the libraries that an interpreter is linked with, those without lines are nobody's concern who looks at its language.
        let is_beside = self.image.is_glue() || self.walked_by.is_some();
        let without_lines = match (any_wasm && !any_line && !is_beside, self.image.has_dwarf()) {
            (false, _) => None,
            // Its warnings say so.
            (true, true) if self.tables.lock().dwarf().has_stale_dwarf() => None,
            (true, true) => Some(format!(
                "the debug information of {name} does not fit its code (stale or corrupt DWARF); {functions}"
            )),
            (true, false) => match self.source_map() {
                Some(Err(error)) => Some(format!("the source map of {name} cannot be read: {error}; {functions}")),
                Some(Ok(_)) => Some(format!("the source map of {name} does not fit its code; {functions}")),
                // Who has read the module has said why there is none.
                None if self.image.source_map_url().is_some() => None,
                None => {
                    let advice = advice::of(&self.image, &recording.meta.sampler);
                    Some(format!("{}{functions} ({advice})", without_debug_information(name)))
                }
            },
        };
        let language = self.program.as_ref().map(|program| program.warnings()).unwrap_or_default();
        let warnings = self
            .tables
            .lock()
            .dwarf()
            .warnings()
            .into_iter()
            .chain(language)
            .map(move |warning| format!("{name}: {warning}"));
        without_lines.into_iter().chain(warnings)
    }
}

/// The operations that Wasmtime carries out in host code, by their names in the text format.
fn builtin(operator: &Operator<'_>) -> Option<&'static str> {
    Some(match operator {
        Operator::MemoryGrow { .. } => "memory.grow",
        Operator::MemoryCopy { .. } => "memory.copy",
        Operator::MemoryFill { .. } => "memory.fill",
        Operator::MemoryInit { .. } => "memory.init",
        Operator::DataDrop { .. } => "data.drop",
        Operator::TableGrow { .. } => "table.grow",
        Operator::TableCopy { .. } => "table.copy",
        Operator::TableFill { .. } => "table.fill",
        Operator::TableInit { .. } => "table.init",
        Operator::TableGet { .. } => "table.get",
        Operator::TableSet { .. } => "table.set",
        Operator::ElemDrop { .. } => "elem.drop",
        Operator::RefFunc { .. } => "ref.func",
        Operator::MemoryAtomicNotify { .. } => "memory.atomic.notify",
        Operator::MemoryAtomicWait32 { .. } => "memory.atomic.wait32",
        Operator::MemoryAtomicWait64 { .. } => "memory.atomic.wait64",
        Operator::Throw { .. } | Operator::ThrowRef => "throw",
        Operator::StructNew { .. } | Operator::StructNewDefault { .. } => "struct.new",
        Operator::ArrayNew { .. } | Operator::ArrayNewDefault { .. } | Operator::ArrayNewData { .. } => "array.new",
        _ => return None,
    })
}
