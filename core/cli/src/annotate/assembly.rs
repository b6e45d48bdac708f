//! `wlprof annotate --asm`: the machine instructions of a function, with the time of the wasm instructions that they are for.
//!
//! A recording has no machine code, and its samples say at which wasm instruction they were. So the guest is compiled again, as it
//! was for the run, and the code of one wasm instruction has its time, all together. What the compiler has mixed stays mixed: the
//! code of an instruction may lie in several places, and its time stands at the first.

use super::Annotate;
use super::disassembly::{CAN_DISASSEMBLE, disassemble};
use crate::failure::{FAILED, Failure};
use crate::options::output::FramesChoice;
use crate::{guest, recordings};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use wlprof::languages::{self, Choice};
use wlprof::machine_code::{CodeName, NativeCode, native_code};
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, SourceFrame};
use wlprof_recording::sources::SourceFolders;
use wlprof_recording::{InstructionTotals, Module, ModuleId, Origin, RawRecording, Recording};
use wlprof_run::guest::{Entry, LoadOptions, Program};
use wlprof_show::annotated::{PROPOSED, share};
use wlprof_show::escape::single_line;
use wlprof_symbols::{Symbols, name};

/// Prints the functions that the user asks for. `path` is the guest's.
pub(super) fn annotated(
    annotate: &Annotate,
    path: &Path,
    raw: RawRecording,
    folders: &SourceFolders,
) -> Result<String, Failure> {
    if !CAN_DISASSEMBLE {
        let message = "--asm reads the instructions of x86-64 alone; annotate without it shows lines";
        return Err(Failure::new(FAILED, message));
    }
    // Where stacks are of a language alone, nothing is said of instructions.
    let recording = name(raw, &[], Vec::new(), |_| ());
    recordings::check_frames(&recording, FramesChoice::Native, &annotate.recording)?;
    let recording = recording.bounded();
    let options = LoadOptions {
        debug_file: annotate.names.debug_file.clone(),
        epoch_interruption: recording.meta.sampler == "epoch",
        ..LoadOptions::default()
    };
    let program = Program::read(path, &options).map_err(|error| guest::cannot_load(path, &error))?;
    let chosen = languages::choose_each(&Choice::Auto, languages::BUILT_IN, program.name(), &program.modules())
        .unwrap_or_default();
    let guest = program.compile(Entry::Nothing, None).map_err(|error| guest::cannot_load(path, &error))?;
    let images = &guest.code.images;
    let totals = totals(&recording, images).ok_or_else(|| recordings::other_program(path))?;
    let mut listing = Listing {
        code: native_code(&guest.code),
        text: guest.code.compiled.text().as_ptr() as u64,
        symbols: Symbols::new(images, chosen.programs),
        images,
        totals,
        folders,
        sources: BTreeMap::new(),
    };
    let functions = listing.chosen(annotate.what.as_deref());
    let functions = functions.map_err(|error| recordings::cannot_read(&annotate.recording, &error))?;
    Ok(functions.into_iter().map(|function| listing.function(function)).collect())
}

/// The time of the instructions of each module of a guest; `None` if not all of them are in the recording. Those that are the same bytes are told
/// apart by their order.
fn totals(recording: &Recording, images: &[Arc<ModuleImage>]) -> Option<Vec<InstructionTotals>> {
    let mut taken = BTreeSet::new();
    let of_module = |image: &Arc<ModuleImage>| {
        let build_id = image.build_id();
        let is_it = |(id, module): &(ModuleId, &Module)| module.build_id == build_id && !taken.contains(id);
        let (id, _) = (0..).zip(&recording.modules).find(is_it)?;
        taken.insert(id);
        Some(InstructionTotals::of(recording, id))
    };
    images.iter().map(of_module).collect()
}

/// A function: the number of its module, and its index there.
type Function = (u32, u32);

/// What listings of functions are made of.
struct Listing<'a> {
    /// In order of addresses.
    code: Vec<NativeCode<'a>>,
    /// Where the code begins. Addresses are counted from there, as in the image that Wasmtime compiles to.
    text: u64,
    symbols: Symbols,
    images: &'a [Arc<ModuleImage>],
    /// Of each of these modules.
    totals: Vec<InstructionTotals>,
    folders: &'a SourceFolders,
    /// Texts of the files that were looked for.
    sources: BTreeMap<String, Option<String>>,
}

impl Listing<'_> {
    /// The functions that `what` means: by their name or a part of it; without it the hottest one.
    fn chosen(&mut self, what: Option<&str>) -> Result<Vec<Function>, String> {
        let Some(what) = what else {
            let hottest = self.hottest().first().copied();
            return Ok(vec![hottest.ok_or("it has no samples in this program")?]);
        };
        let all: Vec<Function> = self.code.iter().filter_map(|code| function(&code.name)).collect();
        let names: Vec<(Function, String)> = all.into_iter().map(|id| (id, self.declared(id).function)).collect();
        let named = |is_it: &dyn Fn(&str) -> bool| -> Vec<Function> {
            names.iter().filter(|(_, name)| is_it(name)).map(|(function, _)| *function).collect()
        };
        let mut found = named(&|name| name == what);
        if found.is_empty() {
            found = named(&|name| name.contains(what));
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let hot = self.hottest().into_iter().take(PROPOSED);
        let hot: Vec<String> = hot.map(|id| single_line(&self.declared(id).function)).collect();
        Err(format!("no function of the program is called {what}; hot ones are {}", hot.join(", ")))
    }

    /// The functions that were sampled, those with the most time of their own first.
    fn hottest(&self) -> Vec<Function> {
        let of_module = |(module, totals): (u32, &InstructionTotals)| {
            let functions = totals.hottest_functions().into_iter();
            functions.map(move |(function, time_ns)| ((module, function), time_ns))
        };
        let mut all: Vec<(Function, u64)> = (0..).zip(&self.totals).flat_map(of_module).collect();
        all.sort_by_key(|(_, time_ns)| std::cmp::Reverse(*time_ns));
        all.into_iter().map(|(function, _)| function).collect()
    }

    /// A function as it is declared.
    fn declared(&mut self, (module, function): Function) -> SourceFrame {
        let body = self.images[module as usize].function_body(function).unwrap_or_default();
        // The last is the function itself, those before it are inlined at its first instruction.
        self.frames((module, function), body.start).pop().unwrap_or_default()
    }

    fn frames(&mut self, (module, function): Function, code_offset: u32) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        self.symbols.frames(&Origin::Wasm { module, function, code_offset }, &mut frames);
        frames
    }

    fn function(&mut self, (module, function): Function) -> String {
        let Some(index) = self.code.iter().position(|code| code.name == CodeName::Function { module, function }) else {
            return String::new();
        };
        let (images, id) = (self.images, (module, function));
        let image = &images[module as usize];
        let NativeCode { address, bytes, .. } = self.code[index];
        let declared = self.declared(id);
        let mut text = format!("{}\n", single_line(&declared.function));
        // Writing to a string cannot fail.
        if let Some(file) = &declared.file {
            let _ = writeln!(text, "{}", single_line(file));
        }
        let of = if images.len() > 1 { format!(" of {}", single_line(image.name())) } else { String::new() };
        let _ = writeln!(text, "wasm function {function}{of}, {} bytes of machine code\n", bytes.len());
        let _ = writeln!(text, "{:>13} {:>13} {:>9} {:>9}", "self", "total", "wasm", "code");
        let stretches = self.code[index].code_offsets.clone();
        let starts: Vec<usize> = stretches.iter().map(|(at, _)| *at as usize).collect();
        let mut stretches = stretches.into_iter().peekable();
        let mut told = BTreeSet::new();
        let mut last_line = None;
        for instruction in disassemble(bytes, address - self.text, &starts) {
            let mut before = format!("{:>37}", "");
            // An instruction is of the last stretch that begins with or before it.
            let mut begun = None;
            while let Some(stretch) = stretches.next_if(|(at, _)| *at as usize <= instruction.offset) {
                begun = Some(stretch);
            }
            if let Some((_, code_offset)) = begun {
                let line = self.source_line(id, code_offset);
                if line.is_some() && line != last_line {
                    let _ = writeln!(text, "{:>49}{}", "", line.as_deref().unwrap_or_default().trim_end());
                    last_line = line;
                }
                let totals = &self.totals[module as usize];
                let total = totals.instructions.get(&(function, code_offset)).copied();
                let total = total.filter(|_| told.insert(code_offset)).unwrap_or_default();
                let [own, all] = [total.self_time, total.total_time].map(|time| share(time, totals.all));
                let wasm = format!("{:#x}", image.file_offset(code_offset));
                before = format!("{own} {all} {wasm:>9}");
            }
            let at = format!("{:#x}", address - self.text + instruction.offset as u64);
            let target = instruction.target.and_then(|target| self.name_of_target(target, index));
            let target = target.map_or_else(String::new, |name| format!(" <{}>", single_line(&name)));
            let _ = writeln!(text, "{before} {at:>9}      {}{target}", instruction.text);
        }
        text + "\n"
    }

    /// The source line of an instruction, with its text if that is found.
    fn source_line(&mut self, function: Function, code_offset: u32) -> Option<String> {
        let frames = self.frames(function, code_offset);
        let innermost = frames.first()?;
        let (file, line) = (innermost.file.as_deref()?, innermost.line?);
        let folders = self.folders;
        let source = self.sources.entry(file.to_owned()).or_insert_with(|| folders.text(file));
        let code = source.as_ref().and_then(|source| source.lines().nth(line.checked_sub(1)? as usize));
        let file_name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let inlined = if frames.len() > 1 { format!(" {}", innermost.function) } else { String::new() };
        let code = code.unwrap_or_default().replace('\t', "    ");
        Some(format!("{}  {}", single_line(&format!("{file_name}:{line}{inlined}")), single_line(&code)))
    }

    /// What the code at `target` is called, if it is the beginning of another piece than that at `index`.
    fn name_of_target(&mut self, target: u64, index: usize) -> Option<String> {
        let found = self.code.binary_search_by_key(&(self.text.wrapping_add(target)), |code| code.address).ok()?;
        if found == index {
            return None;
        }
        match self.code[found].name {
            CodeName::Function { module, function } => Some(self.declared((module, function)).function),
            CodeName::Entry { name, .. } | CodeName::Stub(name) => Some(name.to_owned()),
        }
    }
}

fn function(name: &CodeName<'_>) -> Option<Function> {
    match name {
        CodeName::Function { module, function } => Some((*module, *function)),
        CodeName::Entry { .. } | CodeName::Stub(_) => None,
    }
}
