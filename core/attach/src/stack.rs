//! The wasm frames on the stack of a thread of another process.

use crate::pages::Pages;
use std::ops::Range;
use wlprof_walk::{
    CodeKind, CodeMap, CodeReader, DIRECT_CALL, End, Frames, LONGEST_INDIRECT_CALL, Registers, StackMemory, Walk,
    WalkTruncation, calls_indirectly, directly_called, has_tail_call,
};

/// Bytes of a stack that are looked through for where wasm called the host. Hosts have some kilobytes there.
const MAX_HOST_BYTES: usize = 256 << 10;

/// What a trampoline's frame takes at most, from where the host returns to it up to its frame pointer.
const MAX_TRAMPOLINE_FRAME: usize = 4096;

/// Callers that are looked at to know a call that goes on from one that has ended: stacks that are deeper are taken as they are.
const MAX_CALLERS: usize = 1024;

/// Bytes of a function that are looked through for a tail call.
const MAX_SEARCHED: usize = 16 << 10;

/// Entries into wasm, one made in a host call of the other, that are looked for.
const MAX_ENTRIES: usize = 64;

const WORD: usize = size_of::<usize>();

impl StackMemory for &Pages<'_> {
    // The kernel refuses addresses that are not there: any may be asked for.
    unsafe fn word(&self, address: usize) -> Option<usize> {
        Pages::word(self, address)
    }
}

/// What a walk has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WalkOutcome {
    /// Wasm code was running, and not the host.
    pub(crate) is_in_wasm: bool,
    /// Where on the stack the innermost wasm frames begin.
    pub(crate) begins: usize,
    /// Where the host has entered wasm, innermost first: of stacks that are whole, each.
    pub(crate) entries: Vec<Entry>,
    pub(crate) end: Result<(), WalkTruncation>,
}

/// Where the host has entered wasm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Wasm frames up to there.
    pub(crate) frames: usize,
    /// Frame pointer of the trampoline.
    pub(crate) fp: usize,
}

/// Walks the wasm frames of a thread that stands still with these registers, on a stack that ends at `top` at the latest. Frames of
/// entries into wasm that host calls have made are those of one stack.
pub(crate) fn walk(
    memory: &Pages<'_>,
    code: &CodeMap,
    registers: Registers,
    top: usize,
    frames: &mut Frames<'_>,
) -> WalkOutcome {
    let walked = walk_entries(memory, code, registers, top, frames);
    // Where too much would have to be read, the chain is not broken.
    let end = if memory.is_exhausted() { Err(WalkTruncation::TooManyEntries) } else { walked.end };
    WalkOutcome { end, ..walked }
}

fn walk_entries(
    memory: &Pages<'_>,
    code: &CodeMap,
    registers: Registers,
    top: usize,
    frames: &mut Frames<'_>,
) -> WalkOutcome {
    let walk = Walk { code: code.read(), memory };
    let end = End::Trampoline { top };
    let running = walk.code.code(registers.pc);
    let mut is_in_wasm = running.is_some();
    let mut from = registers.sp;
    let mut begins = registers.sp;
    let mut entries = Vec::new();
    if let Some(code) = running {
        // SAFETY: the memory is not read in place, but by the kernel, which refuses what is not there.
        match unsafe { walk.interrupted(registers, code, end, frames) } {
            Ok(Some(fp)) => {
                from = fp;
                entries.push(Entry { frames: frames.leaves(), fp });
            }
            // The host enters wasm or is back in it.
            Ok(None) => is_in_wasm = false,
            Err(truncated) => return WalkOutcome { is_in_wasm, begins, entries, end: Err(truncated) },
        }
    }
    for _ in 0..MAX_ENTRIES {
        let Some(trampoline_fp) = find_call(memory, &walk.code, from..top) else {
            let end = frames.finish();
            return WalkOutcome { is_in_wasm, begins, entries, end };
        };
        let before = frames.leaves();
        if before == 0 {
            begins = trampoline_fp;
        }
        // SAFETY: the memory is not read in place, but by the kernel, which refuses what is not there.
        match unsafe { walk.call(trampoline_fp, None, end, frames) } {
            Ok(fp) => {
                from = fp;
                entries.push(Entry { frames: frames.leaves(), fp });
            }
            // What a left-over has written over is gone: frames in the middle, which are left out.
            Err(WalkTruncation::BrokenChain) if frames.is_cut() => {
                return WalkOutcome { is_in_wasm, begins, entries, end: frames.finish() };
            }
            Err(WalkTruncation::BrokenChain) => {
                // Left of a call that has ended by a trap, in what the host's frames have not written.
                frames.truncate(before);
                from = trampoline_fp + WORD;
            }
            Err(truncated) => return WalkOutcome { is_in_wasm, begins, entries, end: Err(truncated) },
        }
    }
    WalkOutcome { is_in_wasm, begins, entries, end: Err(WalkTruncation::TooManyEntries) }
}

/// The frame pointer of the innermost trampoline through which wasm has called the host, on the part of a stack that is the host's.
///
/// Host code keeps no frame pointers that lead there. What the trampoline has called returns into it, and right above that is its frame, which
/// returns to where a wasm function has called it. Words that a host's frames have left unwritten may look like one of these, and rarely like
/// both. Where they do, an earlier call has left them, and its callers have mostly made other calls since. Tail calls look like that, too: if
/// there is no better one, the first that was found is taken whose callers may have called what ends in tail calls.
fn find_call(memory: &Pages<'_>, code: &CodeReader<'_>, stack: Range<usize>) -> Option<usize> {
    let end = stack.end.min(stack.start.saturating_add(MAX_HOST_BYTES));
    let span = code.span();
    let is_return = |word| span.contains(&word) && is_in_trampoline(code, word);
    let (mut from, mut end, mut doubted) = (stack.start, end, None);
    while let Some(address) = memory.find_word(from..end, is_return) {
        if let Some((fp, trampoline)) = frame_above(memory, code, address, stack.end) {
            match callers_of(memory, code, fp, trampoline, stack.end) {
                Callers::AllCall => return Some(fp),
                Callers::MayCall { entry } => {
                    doubted = doubted.or(Some(fp));
                    // What is beyond is of another entry into wasm, whose host call this one is made in.
                    end = entry.map_or(end, |entry| entry.min(end));
                }
                Callers::CallOthers => {}
            }
        }
        from = address + WORD;
    }
    doubted
}

/// What the callers of a call are like, up to where the host has entered wasm.
enum Callers {
    /// Each stands behind a call of the one before.
    AllCall,
    /// Some do not, as far as they were looked at: they have called what may have ended in a tail call.
    MayCall {
        /// The frame pointer of the entry, if they lead to one.
        entry: Option<usize>,
    },
    /// One has called something else since.
    CallOthers,
}

/// Looks at the callers of what begins at `callee` and has its frame at `fp`.
fn callers_of(memory: &Pages<'_>, code: &CodeReader<'_>, mut fp: usize, mut callee: usize, top: usize) -> Callers {
    let mut all_call = true;
    for _ in 0..MAX_CALLERS {
        let (Some(callers_fp), Some(return_pc)) = (memory.word(fp), memory.word(fp + WORD)) else { break };
        let Some(caller) = return_pc.checked_sub(1).and_then(|pc| code.code(pc)) else { break };
        if !is_in_function(code, return_pc) {
            break;
        }
        if !calls(code, return_pc, callee) {
            if !may_end_elsewhere(memory, code, return_pc) {
                return Callers::CallOthers;
            }
            all_call = false;
        }
        if callers_fp <= fp || callers_fp >= top || !callers_fp.is_multiple_of(2 * WORD) {
            break;
        }
        if caller.kind == CodeKind::Entry {
            return if all_call { Callers::AllCall } else { Callers::MayCall { entry: Some(callers_fp) } };
        }
        (fp, callee) = (callers_fp, caller.start);
    }
    Callers::MayCall { entry: None }
}

/// The frame pointer of the trampoline that what is at `address` returns into, and where its code begins.
fn frame_above(memory: &Pages<'_>, code: &CodeReader<'_>, address: usize, top: usize) -> Option<(usize, usize)> {
    let trampoline = code.code(memory.word(address)?.checked_sub(1)?)?;
    let end = top.min(address.saturating_add(MAX_TRAMPOLINE_FRAME));
    let first = address.checked_add(WORD)?.checked_next_multiple_of(2 * WORD)?;
    let fp = (first..end).step_by(2 * WORD).find(|fp| {
        let (callers_fp, return_pc) = (memory.word(*fp), memory.word(fp + WORD));
        let is_frame =
            callers_fp.is_some_and(|callers| callers > *fp && callers < top && callers.is_multiple_of(2 * WORD));
        let is_called = |return_pc| is_in_function(code, return_pc) && calls(code, return_pc, trampoline.start);
        is_frame && return_pc.is_some_and(is_called)
    })?;
    Some((fp, trampoline.start))
}

/// Whether the instruction before `return_pc` calls `callee`, or may do so.
fn calls(code: &CodeReader<'_>, return_pc: usize, callee: usize) -> bool {
    let before = return_pc.checked_sub(LONGEST_INDIRECT_CALL).and_then(|start| code.bytes(start..return_pc));
    let indirect = before.and_then(|before| before.try_into().ok());
    called_before(code, return_pc) == Some(callee) || indirect.is_some_and(calls_indirectly)
}

/// What the instruction before `return_pc` calls, if it has the address in it.
fn called_before(code: &CodeReader<'_>, return_pc: usize) -> Option<usize> {
    let call = code.bytes(return_pc.checked_sub(DIRECT_CALL)?..return_pc)?;
    directly_called(call.try_into().ok()?, return_pc)
}

/// Whether what is called before `return_pc` may have ended in a tail call.
fn may_end_elsewhere(memory: &Pages<'_>, code: &CodeReader<'_>, return_pc: usize) -> bool {
    let called = called_before(code, return_pc).and_then(|called| code.code(called));
    let bytes = called.and_then(|called| code.bytes(called.start..called.end));
    // A process chooses how often that is asked.
    bytes.is_some_and(|bytes| bytes.len() > MAX_SEARCHED || !memory.work(bytes.len() / WORD) || has_tail_call(bytes))
}

/// Whether something returns there into a trampoline or a stub of Wasmtime's.
fn is_in_trampoline(code: &CodeReader<'_>, return_pc: usize) -> bool {
    kind(code, return_pc).is_some_and(|kind| matches!(kind, CodeKind::Stub | CodeKind::Builtin))
}

fn is_in_function(code: &CodeReader<'_>, return_pc: usize) -> bool {
    kind(code, return_pc)
        .is_some_and(|kind| matches!(kind, CodeKind::Function { .. } | CodeKind::Adapter | CodeKind::Entry))
}

fn kind(code: &CodeReader<'_>, return_pc: usize) -> Option<CodeKind> {
    Some(code.code(return_pc.checked_sub(1)?)?.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::tests::image_of;
    use crate::pages::WORK_OF_SAMPLE;
    use crate::process::Process;
    use std::hint::black_box;
    use std::sync::Arc;
    use wlprof_walk::{CompiledImage, FrameWord, MAX_FRAMES, MappedCode, MappedImage};

    /// Words of a stack.
    struct Stack {
        words: Vec<usize>,
        bottom: usize,
    }

    impl Stack {
        fn new() -> Self {
            let words = vec![0; 10_000];
            let bottom = words.as_ptr().addr().next_multiple_of(16);
            Self { words, bottom }
        }

        /// Two words, of which the first is at a multiple of 16.
        fn pair(&mut self, number: usize, pair: [usize; 2]) {
            let at = (self.bottom - self.words.as_ptr().addr()) / WORD + 2 * number;
            self.words[at..at + 2].copy_from_slice(&pair);
            black_box(&mut self.words);
        }

        fn at(&self, number: usize) -> usize {
            self.bottom + 16 * number
        }
    }

    #[test]
    fn what_a_later_call_of_its_caller_has_left_is_no_stack() {
        let pieces = [
            ("wasm[0]::function[0]", 0..512),
            ("wasm[0]::function[1]", 512..1024),
            ("wasm[0]::array_to_wasm_trampoline[0]", 1024..1040),
            ("signatures[0]::wasm_to_array_trampoline", 1040..1056),
        ];
        let process = Process::open(std::process::id() as i32).unwrap();
        // In function 1 a call of function 0, and in that a tail call.
        let (call, tail_call): (&[u8], &[u8]) = match cfg!(target_arch = "aarch64") {
            true => (&[0x40, 0xff, 0xff, 0x97], &[0xfd, 0x7b, 0xc1, 0xa8, 0x04, 0, 0, 0x14]),
            false => (&[0xe8, 0xfc, 0xfc, 0xff, 0xff], &[0x5d, 0xe9, 0, 1, 0, 0]),
        };
        for (has_tail_call, expected) in [(false, 0), (true, 2)] {
            let mut bytes = image_of(&pieces);
            let text = CompiledImage::parse(&bytes).unwrap().text().start;
            let behind = text + 772;
            bytes[behind - call.len()..behind].copy_from_slice(call);
            if has_tail_call {
                bytes[text + 256..][..tail_call.len()].copy_from_slice(tail_call);
            }
            let image = MappedImage { bytes: Arc::new(bytes), address: 1 << 32, modules: Vec::new() };
            let [caller, behind, entry, stub] = [600, 772, 1032, 1048].map(|at| image.address + text + at);
            let code = CodeMap::default();
            code.add(Vec::new(), MappedCode::new(&image, false));
            let mut stack = Stack::new();
            // The host returns into a trampoline, which function 1 has called. That has been called from where function 0 was called last.
            stack.pair(1, [stub, 0]);
            stack.pair(2, [stack.at(3), caller]);
            stack.pair(3, [stack.at(4), behind]);
            stack.pair(4, [stack.at(5), entry]);
            let registers = Registers { pc: 0, sp: stack.at(0), fp: 0, ..Registers::default() };
            let mut words = [0; MAX_FRAMES];
            let mut frames = Frames::new(&mut words);
            let memory = Pages::new(&process, WORK_OF_SAMPLE);
            walk(&memory, &code, registers, stack.at(100), &mut frames);
            assert_eq!(frames.len(), expected);
        }
    }

    #[test]
    fn a_deep_stack_below_left_overs_is_cut_and_says_so() {
        let pieces = [
            ("wasm[0]::function[0]", 0..1024),
            ("wasm[0]::array_to_wasm_trampoline[0]", 1024..1040),
            ("signatures[0]::wasm_to_array_trampoline", 1040..1056),
        ];
        let image = MappedImage { bytes: Arc::new(image_of(&pieces)), address: 1 << 32, modules: Vec::new() };
        let text = image.address + image.parse().unwrap().text().start;
        let [function, entry, stub] = [512, 1032, 1048].map(|at| text + at);
        let code = CodeMap::default();
        code.add(Vec::new(), MappedCode::new(&image, false));
        let process = Process::open(std::process::id() as i32).unwrap();
        let found = |depth: usize| {
            let mut stack = Stack::new();
            for frame in 0..depth {
                let return_pc = if frame + 1 < depth { function } else { entry };
                stack.pair(frame, [stack.at(frame + 1), return_pc]);
            }
            // Left of another call: its frames lead to nothing.
            stack.pair(depth + 1, [stub, 0]);
            stack.pair(depth + 2, [stack.at(depth + 4), function]);
            let registers = Registers { pc: function, sp: stack.at(0), fp: stack.at(0), ..Registers::default() };
            let mut words = [0; MAX_FRAMES];
            let mut frames = Frames::new(&mut words);
            let memory = Pages::new(&process, WORK_OF_SAMPLE);
            let walked = walk(&memory, &code, registers, stack.at(depth + 100), &mut frames);
            let length = frames.len();
            (walked.end, words[..length].to_vec())
        };
        assert_eq!((found(10).0, found(10).1.len()), (Ok(()), 10));
        let (end, words) = found(3000);
        assert_eq!((end, words.len()), (Err(WalkTruncation::Elided), MAX_FRAMES));
        assert!(words.contains(&FrameWord::ELIDED.0));
    }
}
