//! Who called the innermost frame, for the instants in which that frame does not lead to its caller.
//!
//! From 3.13 on, all that links a thread to its frames is a pointer to the innermost. Compilers have the loop set it before
//! that frame's own link when the loop begins, before that of the frame between a class and its `__init__`, and after they
//! have cleared that link when a generator yields. But whoever calls is either the function whose frame lies below on the
//! thread's stack of frames, or a generator. The latter are linked by the exceptions that they handle, which the runtime
//! sets before a generator runs and resets before it yields.
//!
//! Before 3.13, each loop has a `_PyCFrame`. While that of a loop has no frame yet, the frames are those of the loop around.

use crate::{
    chain::{GENERATOR, Reader},
    functions::{Functions, Role},
    layout::{CallersLayout, Top},
    threads::Thread,
};
use std::{cmp::Ordering, ops::Range};
use wlprof_plugin::{FrameSink, Truncation, WasmFrame};

/// `_PyStackChunk.top`: where its frames end, in words, while another chunk is in use.
const CHUNK_TOP: u32 = 8;
/// `_PyStackChunk.data`: after the previous chunk, its size and its top.
const CHUNK_DATA: u32 = 12;
/// Words of the smallest frame: all but its variables.
const LEAST_FRAME: u32 = 10;
/// Frames in a chunk that are looked at: more than the smallest ones that fit into 16 KB, which chunks have unless one
/// frame is larger.
const MOST_IN_CHUNK: usize = 512;
/// `_PyErr_StackItem.previous_item`.
const PREVIOUS_ITEM: u32 = 4;
/// From `gi_exc_state` to `gi_iframe`, in all releases that describe themselves.
const ITEM_TO_FRAME: u32 = 16;

/// The interpreter's loops on a wasm stack.
pub(crate) struct Loops<'a> {
    pub(crate) wasm: &'a [WasmFrame],
    pub(crate) functions: &'a Functions,
    /// The instructions with which a loop links its first frame.
    pub(crate) half_linked: &'a Range<u32>,
}

impl Loops<'_> {
    fn count(&self) -> usize {
        self.wasm.iter().filter(|frame| self.is_eval(frame)).count()
    }

    fn is_eval(&self, frame: &WasmFrame) -> bool {
        self.functions.role(*frame) == Role::Eval
    }

    /// Where the innermost loop stands if it links its first frame: `Greater` if the thread points there, `Equal` if it may.
    fn linking(&self) -> Option<Ordering> {
        let leaf =
            self.wasm.first().filter(|leaf| self.half_linked.contains(&leaf.code_offset) && self.is_eval(leaf))?;
        Some(leaf.code_offset.cmp(&self.half_linked.start))
    }

    /// Whether C code on the stack above the loop after the innermost `loops` throws an exception into a generator.
    fn throw(&self, loops: usize) -> bool {
        let mut seen = 0;
        let roles = self.wasm.iter().map(|frame| self.functions.role(*frame));
        let mut within = roles.take_while(|role| {
            seen += usize::from(*role == Role::Eval);
            seen <= loops
        });
        within.any(|role| role == Role::Throw)
    }
}

/// What the innermost frame does while it does not lead to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnlinkedFrame {
    /// It is the first of a loop that has just begun.
    Begins,
    /// It is the `__init__` of an object that is made, and its caller runs in the same loop.
    BeginsInit,
    /// It is a generator's, and yields.
    Yields,
}

impl Reader<'_> {
    /// Reads the chain of `thread` without believing links that may not have been made yet. `loops` are those on the wasm
    /// stack of the thread.
    pub(crate) fn read_linked(&mut self, thread: Thread, loops: &Loops<'_>) -> Result<(), Truncation> {
        let read = self.read(thread);
        let is_linking = match (loops.linking(), self.layout.thread.top) {
            (None, _) => false,
            (Some(Ordering::Equal), Top::Frame { .. }) => self.chain.begins,
            // Before and after that instruction, the loop has no frame.
            (Some(Ordering::Equal), Top::CFrame { .. }) => self.chain.activations.len() >= loops.count(),
            (Some(_), _) => true,
        };
        let (Top::Frame { at }, Some(layout)) = (self.layout.thread.top, self.layout.thread.callers) else {
            return if is_linking { self.read_outer(thread) } else { read };
        };
        let unlinked = if is_linking {
            UnlinkedFrame::Begins
        } else if self.chain.begins_init {
            UnlinkedFrame::BeginsInit
        } else if read.is_err() && self.is_unlinked_generator(thread, at) {
            UnlinkedFrame::Yields
        } else {
            return read;
        };
        let innermost = self.word(thread.address, at)?;
        let read = self.read_from_caller(thread, innermost, layout, unlinked, loops);
        if read.is_err() {
            self.chain.keep_innermost();
        }
        read
    }

    /// Whether the innermost frame is a generator's with a link that is null, as it is while that yields.
    fn is_unlinked_generator(&self, thread: Thread, at: u32) -> bool {
        let innermost = self.word(thread.address, at).and_then(|address| self.frame(address));
        innermost.is_ok_and(|frame| frame.owner == GENERATOR && frame.previous == 0)
    }

    /// Reads the chain of `thread` from `innermost` on, whose link is not believed.
    fn read_from_caller(
        &mut self,
        thread: Thread,
        innermost: u32,
        layout: CallersLayout,
        unlinked: UnlinkedFrame,
        loops: &Loops<'_>,
    ) -> Result<(), Truncation> {
        self.chain.clear();
        let frame = self.frame(innermost)?;
        self.push_frame(&frame)?;
        let own_frames = self.chain.frames.len();
        let callee = if unlinked == UnlinkedFrame::BeginsInit { frame.previous } else { innermost };
        let caller = self.caller(layout, thread, callee, unlinked)?;
        self.follow(caller, None)?;
        let missing = loops.count().saturating_sub(self.chain.activations.len());
        let own_loops = match (unlinked, missing) {
            (UnlinkedFrame::BeginsInit | UnlinkedFrame::Yields, 0) => 0,
            (UnlinkedFrame::Begins, 0 | 1) | (UnlinkedFrame::Yields, 1) => 1,
            // One between has given its frame back, and what that frees is finalized.
            (UnlinkedFrame::Begins, 2) => 2,
            _ => return Err(Truncation::Inconsistent),
        };
        if loops.throw(own_loops) {
            // The generators between, which delegate to the one that the exception is for, do not run and are in no list.
            return Err(Truncation::Inconsistent);
        }
        for _ in 0..own_loops {
            self.chain.activations.insert(0, own_frames);
        }
        Ok(())
    }

    /// The frame that called `callee`, or one that marks the activation of that frame. 0 if none did.
    fn caller(
        &self,
        layout: CallersLayout,
        thread: Thread,
        callee: u32,
        unlinked: UnlinkedFrame,
    ) -> Result<u32, Truncation> {
        let below = self.function_below(layout, thread, callee)?;
        let function = if unlinked == UnlinkedFrame::BeginsInit { below } else { self.running(layout, below)? };
        let generator = self.running_generator(layout, thread, callee)?;
        // Of two, the one that was called by the other.
        if generator == 0 {
            Ok(function)
        } else if function == 0 || self.leads_to(generator, function)? {
            Ok(generator)
        } else if self.leads_to(function, generator)? {
            Ok(function)
        } else {
            Err(Truncation::Inconsistent)
        }
    }

    /// The frame that lies below `callee` on the thread's stack of frames, or the topmost if `callee` is not there.
    fn function_below(&self, layout: CallersLayout, thread: Thread, callee: u32) -> Result<u32, Truncation> {
        let mut chunk = self.word(thread.address, layout.data_stack)?;
        let mut end = self.word(thread.address, layout.data_stack.wrapping_add(4))?;
        // A chunk has at least one frame, except the first one. `callee` may be the only one of the last chunk.
        for _ in 0..3 {
            if chunk == 0 {
                return Ok(0);
            }
            let previous = self.word(chunk, 0)?;
            let start = chunk.wrapping_add(CHUNK_DATA);
            // In the first chunk a word is left out, so that it is never freed.
            let first = if previous == 0 { start.wrapping_add(4) } else { start };
            let found = self.last_frame(layout, first, end, callee)?;
            if found != 0 {
                return Ok(found);
            }
            chunk = previous;
            if chunk != 0 {
                let words = self.word(chunk, CHUNK_TOP)?;
                end = chunk.wrapping_add(CHUNK_DATA).wrapping_add(words.wrapping_mul(4));
            }
        }
        Err(Truncation::Inconsistent)
    }

    /// The last frame before `callee`, or before `end`, of those that lie one after the other from `start` on.
    fn last_frame(&self, layout: CallersLayout, start: u32, end: u32, callee: u32) -> Result<u32, Truncation> {
        let mut last = 0;
        let mut at = start;
        for _ in 0..MOST_IN_CHUNK {
            if at == callee || at == end {
                return Ok(last);
            }
            let words = self.word(self.code(at)?, layout.frame_size)?;
            let left = end.wrapping_sub(at) / 4;
            if at > end || words < LEAST_FRAME || words > left {
                return Err(Truncation::Inconsistent);
            }
            last = at;
            at = at.wrapping_add(words.wrapping_mul(4));
        }
        Err(Truncation::TooDeep)
    }

    fn code(&self, frame: u32) -> Result<u32, Truncation> {
        Ok(self.word(frame, self.layout.frame.code)? & !self.layout.frame.code_tags)
    }

    /// That function, or what it leads to if it has returned: its frame is on the stack until its values are freed, which may
    /// call functions.
    fn running(&self, layout: CallersLayout, function: u32) -> Result<u32, Truncation> {
        if function == 0 {
            return Ok(0);
        }
        let end = self.word(function, layout.values_end)?;
        if end != 0 && end != function.wrapping_add(layout.values) {
            return Ok(function);
        }
        if self.word(self.code(function)?, layout.local_count)? == 0 {
            // It may also run, and have no values.
            return Err(Truncation::Inconsistent);
        }
        self.word(function, self.layout.frame.previous)
    }

    /// The frame of the generator that runs and was begun last, other than `callee`. 0 if none runs.
    fn running_generator(&self, layout: CallersLayout, thread: Thread, callee: u32) -> Result<u32, Truncation> {
        let mut item = self.word(thread.address, layout.exceptions)?;
        if item.wrapping_add(ITEM_TO_FRAME) == callee {
            item = self.word(item, PREVIOUS_ITEM)?;
        }
        // The last item is the thread's own.
        if self.word(item, PREVIOUS_ITEM)? == 0 {
            return Ok(0);
        }
        let address = item.wrapping_add(ITEM_TO_FRAME);
        let is_running = self.frame(address)?.owner == GENERATOR;
        if is_running { Ok(address) } else { Err(Truncation::Inconsistent) }
    }

    /// Whether `callee` was called by `caller`, or by what that called.
    fn leads_to(&self, callee: u32, caller: u32) -> Result<bool, Truncation> {
        let mut address = callee;
        for _ in 0..2 * FrameSink::CAPACITY {
            if address == caller || address == 0 {
                return Ok(address == caller);
            }
            address = self.word(address, self.layout.frame.previous)?;
        }
        Err(Truncation::TooDeep)
    }
}
