//! The walker of one memory: keeps what walks have in common.

use crate::{
    chain::Chain,
    find::{Running, Runtimes},
    functions::{Functions, Reading},
    merge,
    program::{JavaScriptProgram, Tables},
};
use std::sync::atomic::Ordering;
use wlprof_plugin::{FrameSink, GuestMemory, Truncation, Walker, WasmFrame};

/// Reads the stacks of a JavaScript program.
///
/// # Accuracy
/// Functions, lines and columns are those that `new Error().stack` would say, but for the innermost function's line: that is
/// where it last called something.
#[derive(Debug)]
pub struct JavaScriptWalker {
    program: JavaScriptProgram,
    runtimes: Runtimes,
    functions: Functions,
    chain: Chain,
}

impl JavaScriptWalker {
    pub(crate) fn new(program: JavaScriptProgram) -> Self {
        let Tables { roles, functions, name_atom, .. } = &*program.0;
        let (runtimes, functions) = (Runtimes::new(roles.has_loop()), Functions::new(functions.clone(), *name_atom));
        Self { program, runtimes, functions, chain: Chain::default() }
    }

    /// Returns the program that made it, which names what it finds.
    pub fn program(&self) -> &JavaScriptProgram {
        &self.program
    }
}

impl Walker for JavaScriptWalker {
    fn walks_without_allocating(&self) -> bool {
        true
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let Tables { layout, roles, linking, globals: [global], has_walked, has_found, .. } = &*self.program.0;
        has_walked.store(true, Ordering::Relaxed);
        let stack_pointer = guest.global(*global).and_then(|value| u32::try_from(value).ok()).unwrap_or(u32::MAX);
        let running = self.runtimes.running(guest, layout, stack_pointer).ok_or(Truncation::NoStack)?;
        has_found.store(true, Ordering::Relaxed);
        if linking.is_under_way(wasm) {
            return Err(Truncation::Inconsistent);
        }
        self.functions.begin(out.may_allocate());
        if out.may_allocate() {
            self.functions.keep_wanted(guest, layout);
        }
        self.chain.clear();
        let read = running.iter().try_for_each(|&Running { runtime, frame }| {
            self.chain.read(Reading { guest, layout, runtime }, &mut self.functions, frame)
        });
        let walked = merge::merge(&self.chain.frames, read, roles, wasm, out);
        if walked == Err(Truncation::Inconsistent) {
            self.runtimes.search_next();
        }
        walked
    }
}
