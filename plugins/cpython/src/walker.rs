//! The walker of one memory: keeps what walks have in common.

use crate::{
    caller::Loops,
    chain::{Chain, Reader},
    code::Codes,
    layout::Layout,
    merge,
    program::PythonProgram,
    runtime::Runtime,
    state::State,
    threads::{self, Thread},
};
use std::ops::Range;
use wlprof_plugin::{FrameSink, GuestMemory, Truncation, Walker, WasmFrame};

/// Reads the stacks of a Python program.
///
/// # Accuracy
/// Functions, lines and columns are those that Python itself would say in a traceback. A function that is just being
/// called or returning may be missing as the innermost one.
#[derive(Debug)]
pub struct PythonWalker {
    runtime: Runtime,
    program: PythonProgram,
    /// What the prologue is in the layout that was found.
    half_linked: Option<Range<u32>>,
    codes: Codes,
    chain: Chain,
    /// Counts walks of suspended tasks.
    turn: u64,
}

impl PythonWalker {
    pub(crate) fn new(runtime: Runtime, program: PythonProgram) -> Self {
        let (codes, chain) = (Codes::new(program.tables.codes.clone()), Chain::default());
        Self { runtime, program, half_linked: None, codes, chain, turn: 0 }
    }

    /// Returns the program that made it, which names what it finds.
    pub fn program(&self) -> &PythonProgram {
        &self.program
    }

    /// Returns the minor release and where `_PyRuntime` is, once a walk has found it.
    pub fn runtime(&self) -> Option<(u8, u32)> {
        self.runtime.found()
    }

    /// Finds the thread whose frames are to be read.
    fn begin(&mut self, guest: &dyn GuestMemory, out: &FrameSink) -> Result<(Thread, Layout), Truncation> {
        let is_known = self.runtime.found().is_some();
        let (address, layout) = self.runtime.find(guest, out.may_allocate())?;
        if !is_known {
            self.program.tables.set_found(address);
        }
        let thread = threads::current(guest, &layout, address)?.ok_or(Truncation::NoStack)?;
        self.codes.begin(out.may_allocate());
        if out.may_allocate() {
            self.codes.keep_wanted(guest, &layout);
        }
        Ok((thread, layout))
    }
}

impl Walker for PythonWalker {
    fn walks_without_allocating(&self) -> bool {
        true
    }

    fn reads_suspended_tasks(&self) -> bool {
        self.runtime.lists_tasks()
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        self.program.tables.set_walked();
        let (thread, layout) = self.begin(guest, out)?;
        let mut reader = Reader { guest, layout: &layout, codes: &mut self.codes, chain: &mut self.chain };
        let tables = &*self.program.tables;
        let half_linked = self.half_linked.get_or_insert_with(|| tables.prologue.half_linked(&layout));
        let read = reader.read_linked(thread, &Loops { wasm, functions: &tables.functions, half_linked });
        let collecting = u64::from(thread.interpreter) + u64::from(layout.interpreter.collecting);
        let is_collecting = guest.read_u32(collecting).is_ok_and(|collecting| collecting != 0);
        let state = State::tell(wasm, &tables.calls, &tables.functions, is_collecting, self.chain.is_importing);
        out.set_labels(state.key());
        merge::merge(&self.chain, read, &tables.functions, wasm, out)
    }

    fn walk_suspended(&mut self, guest: &dyn GuestMemory, out: &mut FrameSink) -> Result<(), Truncation> {
        let (thread, layout) = self.begin(guest, out)?;
        let mut reader = Reader { guest, layout: &layout, codes: &mut self.codes, chain: &mut self.chain };
        let read = reader.read_awaited(thread, self.turn);
        self.turn = self.turn.wrapping_add(1);
        if !self.chain.frames.is_empty() {
            out.set_labels(State::Awaiting.key());
        }
        merge::merge(&self.chain, read, &self.program.tables.functions, &[], out)
    }
}
