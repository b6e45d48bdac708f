//! Where the stack pointer and the pc stand at every instruction of a function, found by reading its body.
//!
//! Go on wasm has no pc register, and its tables know the frame size only at the points where a function can be
//! resumed. An interrupted guest stands anywhere: before the prologue, in the middle of pushing a return address, in
//! the epilogue. But the code that moves the stack pointer always looks the same (`cmd/internal/obj/wasm/wasmobj.go`):
//!
//! ```text
//! global.get SP  local.set 1               every function caches SP in its local 1
//! block? loop? block…  local.get 0  br_table   "dispatch": on to the block that parameter 0 says
//! end                                      block 0, the function's entry
//!   local.get 1  i32.const F  i32.sub  local.tee 1  global.set SP         prologue
//!   local.get 1  i32.const 8  i32.sub  local.tee 1  global.set SP         call: room for the return address
//!   local.get 1  i64.const PC  i64.store                                        and the address itself
//!   i32.const 0  call f  global.get SP  local.set 1  br_if unwind               1 = the goroutine was switched
//! end                                      the next resume point: SP is F below the return address again
//! ```
//!
//! Every jump goes through the dispatch, which therefore takes a good part of tight loops; which block is next is in a
//! wasm local that nobody can see.

use crate::{
    pclntab::{Function, Pclntab},
    scan::Scan,
};

/// Larger bodies are not read: the largest functions that Go makes, of tables of Unicode, have half of this.
const LARGEST_BODY: usize = 2 << 20;

/// Depths of one function that are told apart; Go's functions have five at most.
const MOST_DEPTHS: usize = 16;

/// How a function uses Go's stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Convention {
    /// As Go functions do: its return address is on the stack.
    Go,
    /// A `//go:wasmexport` wrapper, called by the host. It has a frame on Go's stack all the same.
    Export,
    /// Assembly with a signature of its own and nothing on the stack, as `runtime.wasmDiv` or the write barrier.
    #[default]
    Bare,
}

/// What code is about to do with the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Ordinary code.
    Code,
    /// On the way to a block that is not known.
    Dispatch,
    /// A call has returned, and whether it returned or switched goroutines is not yet looked at.
    AfterCall,
    /// Returning because the goroutine was switched: the stack is another goroutine's.
    Unwinding,
}

/// The stack at an instruction, before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// How far SP is below the slot of the function's return address. Negative once that is popped.
    pub(crate) depth: Option<i32>,
    pub(crate) place: Place,
}

/// A call instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Where it is, in code section offsets.
    pub(crate) offset: u32,
    /// The return address it left on Go's stack; `None` for calls that leave none (tail calls, assembly).
    pub(crate) return_pc: Option<u64>,
    /// Index of the function called; `None` if that is decided at run time.
    pub(crate) target: Option<u32>,
}

/// What is known of one body.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) convention: Convention,
    /// From which offset on each holds, ascending.
    pub(crate) states: Vec<(u32, State)>,
    /// From which offset on code is in each block, ascending.
    pub(crate) blocks: Vec<(u32, u32)>,
    /// Ascending by offset.
    pub(crate) calls: Vec<Call>,
    /// Every depth that SP has somewhere in the function, the most usual first, each once.
    pub(crate) depths: Vec<i32>,
    /// The return addresses of `calls` and their targets, ascending.
    returns: Vec<(u64, Option<u32>)>,
}

impl Body {
    /// The state at an instruction.
    pub(crate) fn state(&self, offset: u32) -> State {
        let after = self.states.partition_point(|(start, _)| *start <= offset);
        let unknown = State { depth: None, place: Place::Code };
        after.checked_sub(1).and_then(|at| self.states.get(at)).map_or(unknown, |(_, state)| *state)
    }

    /// The block of an instruction: exact up to the inlined calls inside one block, which share it out evenly.
    pub(crate) fn block(&self, offset: u32) -> u32 {
        let after = self.blocks.partition_point(|(start, _)| *start <= offset);
        after.checked_sub(1).and_then(|at| self.blocks.get(at)).map_or(0, |(_, block)| *block)
    }

    /// The call at an instruction.
    pub(crate) fn call(&self, offset: u32) -> Option<&Call> {
        self.calls.get(self.calls.binary_search_by_key(&offset, |call| call.offset).ok()?)
    }

    /// Which function the call that returns to `return_pc` may be of: `Some(None)` if that is decided at run time.
    #[expect(clippy::option_option, reason = "no such call, and a call of anything, are two things")]
    pub(crate) fn target_of_return(&self, return_pc: u64) -> Option<Option<u32>> {
        let at = self.returns.partition_point(|(pc, _)| *pc < return_pc);
        self.returns.get(at).filter(|(pc, _)| *pc == return_pc).map(|(_, target)| *target)
    }

    /// Fills what is derived from the rest.
    pub(crate) fn index(mut self) -> Self {
        let mut counts: Vec<(usize, i32)> = Vec::new();
        for depth in self.states.iter().filter_map(|(_, state)| state.depth) {
            match counts.iter().position(|(_, known)| *known == depth) {
                Some(at) => counts[at].0 += 1,
                None if counts.len() < MOST_DEPTHS => counts.push((1, depth)),
                None => {}
            }
        }
        counts.sort_by_key(|(count, depth)| (std::cmp::Reverse(*count), *depth));
        self.depths = counts.into_iter().map(|(_, depth)| depth).collect();
        self.returns = self.calls.iter().filter_map(|call| Some((call.return_pc?, call.target))).collect();
        self.returns.sort_unstable();
        self
    }

    /// About how many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + 16 * (self.states.len() + self.blocks.len()) + 56 * self.calls.len()
    }

    /// Reads the body `bytes`, which starts at `start` in the code section. `is_go` says which functions have Go's
    /// signature.
    pub(crate) fn read(bytes: &[u8], start: u32, table: &Pclntab, function: &Function, is_go: &[bool]) -> Self {
        let own = is_go.len() - table.len() as usize + function.index as usize;
        let mut scan = Scan::new(table, function, is_go, is_go.get(own).copied().unwrap_or(false));
        if bytes.len() <= LARGEST_BODY {
            // A body that cannot be read to its end is known up to there.
            let _ = scan.read(bytes, start);
        }
        scan.finish(start.saturating_add(bytes.len() as u32))
    }
}
