//! Reading the stack of a thread of another process while it does not change.

#[cfg(feature = "host-frames")]
use crate::host_frames;
use crate::host_frames::HostFrames;
use crate::instance::RemoteGuest;
use crate::language::LanguageModule;
use crate::pages::{Pages, WORK_OF_DUMP, WORK_OF_OWN_SAMPLE, WORK_OF_SAMPLE};
use crate::process::Process;
use crate::stack::{self, WalkOutcome};
use std::ops::Range;
use wlprof_recording::Origin;
use wlprof_walk::{
    CodeMap, CodeReader, Dump, FrameWord, Frames, LanguageStacks, MAX_FRAMES, MAX_LANGUAGE_WORDS, Registers,
};

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
    /// What unwinds the host's own frames, if they are wanted.
    #[cfg(feature = "host-frames")]
    pub(crate) host: Option<wlprof_host::HostCode>,
}

/// What a stack is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Sample,
    /// To see whether there is wasm on it.
    Look,
    Dump,
}

/// What was found on the stack of a thread.
#[derive(Clone, Debug)]
pub(crate) struct FoundStack {
    /// The wasm frames, leaf first; none if it is all the host's.
    pub(crate) words: Vec<u64>,
    pub(crate) walked: WalkOutcome,
    pub(crate) host: HostFrames,
    /// The language's own stack, if its module is on the stack; within, `None` if it is not known which instance ran.
    pub(crate) language: Option<Option<Vec<u64>>>,
    /// The thread is about to come back from a system call.
    pub(crate) is_behind_system_call: bool,
}

impl StackReader {
    /// Reads the stack of a thread with these registers. The instance that it runs is looked for in `general`, too.
    pub(crate) fn read(&mut self, registers: Registers, general: &[usize]) -> FoundStack {
        self.walk(registers, general, Purpose::Sample, |(walked, host), words, memory, code, language| {
            let language = language.map(|language| {
                language.of_instance(|guest, stacks| {
                    let mut own = [0; MAX_LANGUAGE_WORDS];
                    let length = stacks.collect(guest, code, words, true, &mut own);
                    own[..length].to_vec()
                })
            });
            let is_behind_system_call = is_behind_system_call(memory, registers.pc);
            FoundStack { words: words.to_vec(), walked, host, language, is_behind_system_call }
        })
    }

    /// Returns whether wasm is on the stack of a thread with these registers.
    pub(crate) fn is_in_wasm(&mut self, registers: Registers) -> bool {
        self.walk(registers, &[], Purpose::Look, |_, words, _, _, _| !words.is_empty())
    }

    /// Reads the stack of a thread with these registers, and those of all threads of its guest's language. `thread` and `state` are what it is
    /// called and does where the language does not say so. Empty if it is all the host's.
    pub(crate) fn dump(&mut self, registers: Registers, general: &[usize], thread: &str, state: &str) -> Dump {
        self.walk(registers, general, Purpose::Dump, |_, words, _, code, language| {
            let of_language = language
                .and_then(|language| language.of_instance(|guest, stacks| stacks.threads(guest, code, words, state)));
            let origins = words.iter().filter_map(|word| match FrameWord(*word) {
                FrameWord::ELIDED => Some(Origin::Elided),
                word => code.origin(word.native_pc()),
            });
            match of_language {
                Some(dump) if !dump.threads.is_empty() => dump,
                _ if words.is_empty() => Dump::default(),
                _ => Dump::of_wasm(thread, state, origins),
            }
        })
    }

    /// Walks the wasm frames of a thread with these registers, and has `found` do the rest with them while the thread stands still. For samples the
    /// host's own frames are unwound, if they are wanted.
    fn walk<R>(
        &mut self,
        registers: Registers,
        general: &[usize],
        purpose: Purpose,
        found: impl FnOnce((WalkOutcome, HostFrames), &[u64], &Pages<'_>, &CodeReader<'_>, Option<RunningLanguage<'_>>) -> R,
    ) -> R {
        let Self { process, code, mappings, languages, .. } = self;
        let work = if purpose == Purpose::Dump { WORK_OF_DUMP } else { WORK_OF_SAMPLE };
        let work = if process.is_own() { work.min(WORK_OF_OWN_SAMPLE) } else { work };
        let memory = Pages::new(process, work);
        let stack = mappings.iter().find(|range| range.contains(&registers.sp));
        let top = stack.map_or(registers.sp.saturating_add(LARGEST_STACK), |range| range.end);
        let mut words = [0; MAX_FRAMES];
        let mut frames = Frames::new(&mut words);
        let walked = stack::walk(&memory, code, registers, top, &mut frames);
        let length = frames.len();
        let words = &words[..length];
        let code = code.read();
        #[cfg(feature = "host-frames")]
        let host = self.host.as_mut().filter(|_| purpose == Purpose::Sample);
        #[cfg(feature = "host-frames")]
        let host = host.map_or_else(HostFrames::default, |host| {
            host_frames::unwind(host, &memory, &code, registers, &walked, words.len())
        });
        #[cfg(not(feature = "host-frames"))]
        let host = HostFrames::default();
        let modules = words.iter().filter_map(|word| code.origin(FrameWord(*word).native_pc())?.module());
        let module = languages.iter_mut().find(|language| modules.clone().any(|module| language.has_frames_of(module)));
        let language = module.map(|module| RunningLanguage {
            module,
            memory: &memory,
            registers: general,
            stack: walked.begins..top,
        });
        found((walked, host), words, &memory, &code, language)
    }
}

/// The language of a module whose frames are on a stack.
struct RunningLanguage<'a> {
    module: &'a mut LanguageModule,
    memory: &'a Pages<'a>,
    registers: &'a [usize],
    stack: Range<usize>,
}

impl RunningLanguage<'_> {
    /// Does `walk` with the instance that runs; `None` if it is not known which that is.
    fn of_instance<R>(self, walk: impl FnOnce(&RemoteGuest<'_>, &mut LanguageStacks) -> R) -> Option<R> {
        self.module.of_instance(self.memory, self.registers, self.stack, walk)
    }
}

/// The instruction that asks the kernel.
const SYSTEM_CALL: &[u8] = if cfg!(target_arch = "x86_64") { &[0x0f, 0x05] } else { &[0x01, 0x00, 0x00, 0xd4] };

fn is_behind_system_call(memory: &Pages<'_>, pc: usize) -> bool {
    let mut before = [0; SYSTEM_CALL.len()];
    pc.checked_sub(SYSTEM_CALL.len()).is_some_and(|at| memory.read(at, &mut before)) && before == SYSTEM_CALL
}
