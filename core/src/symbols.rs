//! Names every distinct frame of a finished session, once.

use crate::guest::ModuleImage;
use crate::recording::{Meta, Origin, Recording};
use crate::sampler::Finished;
use std::sync::Arc;
use wasmtime_environ::wasmparser::{BinaryReader, Operator, OperatorsReader};
use wlprof_plugin::{FrameKey, ModuleView, SourceFrame, Walker, WasmFrame};

/// The longest name that is kept, in bytes. Names come from the guest; one of a megabyte helps nobody.
const LONGEST_NAME: usize = 4096;

/// Symbolizes what a session left and closes the recording. `progress` is called with the number of frames done.
pub fn symbolize(
    finished: Finished,
    modules: &[Arc<ModuleImage>],
    complete_meta: impl FnOnce(&mut Meta),
    mut progress: impl FnMut(usize),
) -> Recording {
    let Finished { recorder, mut meta, ticks } = finished;
    complete_meta(&mut meta);
    let mut symbolizers: Vec<Symbolizer> = modules.iter().map(|image| Symbolizer::new(image.clone())).collect();
    let mut done = 0;
    let mut recording = recorder.finish(meta, ticks, |origin, out| {
        name(origin, &mut symbolizers, out);
        for frame in out {
            shorten(&mut frame.function);
            frame.linkage_name.iter_mut().chain(&mut frame.file).for_each(shorten);
        }
        done += 1;
        progress(done);
    });
    for symbolizer in &symbolizers {
        let notes: Vec<String> = symbolizer.notes(&recording).collect();
        recording.meta.notes.extend(notes);
    }
    recording
}

fn shorten(name: &mut String) {
    if name.len() > LONGEST_NAME {
        name.truncate(name.floor_char_boundary(LONGEST_NAME));
        name.push('…');
    }
}

fn name(origin: &Origin, symbolizers: &mut [Symbolizer], out: &mut Vec<SourceFrame>) {
    let named = |function: &str| SourceFrame { function: function.to_owned(), ..SourceFrame::default() };
    match *origin {
        Origin::Wasm { module, function, code_offset } => {
            let frame = WasmFrame { function, code_offset };
            symbolizers[module as usize].walker.symbolize(FrameKey::Wasm(frame), out);
            if out.is_empty() {
                out.push(named(&format!("wasm-function[{function}]")));
            }
        }
        Origin::Language { module, key } => {
            symbolizers[module as usize].walker.symbolize(FrameKey::Own(key), out);
            if out.is_empty() {
                out.push(named(&format!("(unknown frame {key:#x})")));
            }
        }
        Origin::HostCall { module, function, code_offset } => {
            out.push(named(&symbolizers[module as usize].host_call(function, code_offset)));
        }
        Origin::Host => out.push(named("(host)")),
        Origin::Truncated => out.push(named("(truncated)")),
    }
}

/// Names the frames of one module.
struct Symbolizer {
    image: Arc<ModuleImage>,
    walker: wlprof_dwarf::Symbolizer,
}

impl Symbolizer {
    fn new(image: Arc<ModuleImage>) -> Self {
        let walker = wlprof_dwarf::Symbolizer::new(&*image);
        Self { image, walker }
    }

    /// What the host does for the instruction at `code_offset`: the import that it calls, or the operation that
    /// Wasmtime carries out in host code.
    fn host_call(&self, function: u32, code_offset: u32) -> String {
        let operator = self
            .image
            .code_at(function, code_offset)
            .and_then(|code| OperatorsReader::new(BinaryReader::new(code, 0)).read().ok());
        match operator {
            Some(Operator::Call { function_index } | Operator::ReturnCall { function_index }) => {
                match self.image.function_imports().get(function_index as usize) {
                    Some(import) => format!("{}.{}", import.module, import.name),
                    None => "(wasmtime)".into(),
                }
            }
            Some(Operator::CallIndirect { .. } | Operator::CallRef { .. }) => {
                "(host function called indirectly)".into()
            }
            Some(operator) => builtin(&operator).map_or_else(|| "(wasmtime)".into(), |name| format!("wasm.{name}")),
            None => "(host)".into(),
        }
    }

    /// What the user should know of the module's symbols.
    fn notes(&self, recording: &Recording) -> impl Iterator<Item = String> {
        let any_wasm = recording.frames.iter().any(|frame| matches!(frame.origin, Origin::Wasm { .. }));
        let any_line = recording.frames.iter().flat_map(|frame| &frame.lines).any(|line| line.line.is_some());
        let name = self.image.name();
        let without_lines = match (any_wasm && !any_line, self.image.has_dwarf()) {
            (false, _) => None,
            (true, true) => Some(format!(
                "the debug information of {name} does not fit its code (stale or corrupt DWARF); functions have names \
                 but no lines"
            )),
            (true, false) => Some(format!(
                "{name} has no debug information; functions have names but no lines (compile with -g, or give \
                 --debug-file)"
            )),
        };
        let warnings = self.walker.warnings().into_iter().map(move |warning| format!("{name}: {warning}"));
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
