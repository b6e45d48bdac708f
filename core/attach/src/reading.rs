//! Reading the stack of a thread of another process while it does not change.

use crate::language::LanguageModule;
use crate::pages::Pages;
use crate::process::Process;
use crate::stack::{self, Walked};
use std::ops::Range;
use wlprof_walk::{CodeMap, FrameWord, Frames, MAX_FRAMES, MAX_LANGUAGE_WORDS, Registers};

/// How far up a stack goes whose mapping is not known yet.
const LARGEST_STACK: usize = 64 << 20;

/// What the stacks of a process are read with.
pub(crate) struct StackReader {
    pub(crate) process: Process,
    pub(crate) code: CodeMap,
    /// Where the stacks of threads and of fibers may be.
    pub(crate) mappings: Vec<Range<usize>>,
    /// The modules whose languages have stacks of their own.
    pub(crate) languages: Vec<LanguageModule>,
}

/// What was found on the stack of a thread.
#[derive(Clone, Debug)]
pub(crate) struct FoundStack {
    /// The wasm frames, leaf first; none if it is all the host's.
    pub(crate) words: Vec<u64>,
    pub(crate) walked: Walked,
    /// The language's own stack, if its module is on the stack; within, `None` if it is not known which instance ran.
    pub(crate) language: Option<Option<Vec<u64>>>,
    /// The thread is about to come back from a system call.
    pub(crate) is_behind_system_call: bool,
}

impl StackReader {
    /// Reads the stack of a thread with these registers. Where it has an instance of a language's module is looked for in `general`, too.
    pub(crate) fn read(&mut self, registers: Registers, general: &[usize]) -> FoundStack {
        let Self { process, code, mappings, languages } = self;
        let memory = Pages::new(process);
        let stack = mappings.iter().find(|range| range.contains(&registers.sp));
        let top = stack.map_or(registers.sp.saturating_add(LARGEST_STACK), |range| range.end);
        let mut words = [0; MAX_FRAMES];
        let mut frames = Frames::new(&mut words);
        let walked = stack::walk(&memory, code, registers, top, &mut frames);
        let length = frames.len();
        let words = &words[..length];
        let code = code.read();
        let modules = words.iter().filter_map(|word| code.origin(FrameWord(*word).native_pc())?.module());
        let language =
            languages.iter_mut().find(|language| modules.clone().any(|module| language.has_frames_of(module)));
        let language = language.map(|language| {
            let mut own = [0; MAX_LANGUAGE_WORDS];
            let length = language.collect(&memory, &code, general, walked.begins..top, words, &mut own)?;
            Some(own[..length].to_vec())
        });
        let is_behind_system_call = is_behind_system_call(&memory, registers.pc);
        FoundStack { words: words.to_vec(), walked, language, is_behind_system_call }
    }
}

/// The instruction that asks the kernel.
const SYSTEM_CALL: &[u8] = if cfg!(target_arch = "x86_64") { &[0x0f, 0x05] } else { &[0x01, 0x00, 0x00, 0xd4] };

fn is_behind_system_call(memory: &Pages<'_>, pc: usize) -> bool {
    let mut before = [0; SYSTEM_CALL.len()];
    pc.checked_sub(SYSTEM_CALL.len()).is_some_and(|at| memory.read(at, &mut before)) && before == SYSTEM_CALL
}
