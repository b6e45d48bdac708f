//! Walks the wasm frames of a stopped thread along its frame pointers.
//!
//! Cranelift keeps frame pointers in all code it compiles for Wasmtime: `[fp]` is the caller's frame pointer and
//! `[fp + 8]` the return address. A walk begins at the interrupted registers, or, where host code was interrupted, at
//! the place where wasm last left for the host, and ends at the frame through which the host entered wasm.

use super::super::arch::x86_64::{Caller, Registers, caller_of_interrupted};
use super::super::code_map::{CodeKind, CodeMap, NativePc};
use super::activations::OuterActivations;
use super::vm_context::{Activation, StoreContext};

/// Frames that a walk gives at most; deeper stacks lose their root end.
pub(super) const MAX_FRAMES: usize = 2048;

/// A frame as it goes into the ring: the pc, and what is known of it in the bits that no address uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FrameWord(pub(super) u64);

impl FrameWord {
    /// The interrupted instruction itself; without it, the pc is a return address.
    const EXACT: u64 = 1 << 63;
    /// Host code that this frame called was running.
    const CALLS_HOST: u64 = 1 << 62;
    const PC: u64 = (1 << 48) - 1;

    fn exact(pc: usize) -> Self {
        Self(pc as u64 | Self::EXACT)
    }

    fn return_address(pc: usize) -> Self {
        Self(pc as u64)
    }

    fn calls_host(pc: usize) -> Self {
        Self(pc as u64 | Self::CALLS_HOST)
    }

    pub(super) fn pc(self) -> usize {
        (self.0 & Self::PC) as usize
    }

    pub(super) fn native_pc(self) -> NativePc {
        if self.is_exact() { NativePc::Exact(self.pc()) } else { NativePc::Return(self.pc()) }
    }

    pub(super) fn is_exact(self) -> bool {
        self.0 & Self::EXACT != 0
    }

    pub(super) fn is_host_call(self) -> bool {
        self.0 & Self::CALLS_HOST != 0
    }
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WalkEnd {
    /// At the frame through which the host entered wasm.
    Complete,
    /// After [`MAX_FRAMES`] frames.
    TooDeep,
    /// A frame pointer led off the stack, or a return address out of the guest's code.
    BrokenChain,
}

impl WalkEnd {
    pub(super) fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Complete,
            1 => Self::TooDeep,
            _ => Self::BrokenChain,
        }
    }
}

/// Where frames go, leaf first.
pub(super) struct Frames<'a> {
    words: &'a mut [u64],
    length: usize,
}

impl<'a> Frames<'a> {
    /// Collects up to [`MAX_FRAMES`] frames, or as many as there is room for.
    pub(super) fn new(words: &'a mut [u64]) -> Self {
        let room = words.len().min(MAX_FRAMES);
        Self { words: &mut words[..room], length: 0 }
    }

    fn push(&mut self, frame: FrameWord) -> Result<(), WalkEnd> {
        let place = self.words.get_mut(self.length).ok_or(WalkEnd::TooDeep)?;
        *place = frame.0;
        self.length += 1;
        Ok(())
    }

    /// Number of frames collected.
    pub(super) fn len(&self) -> usize {
        self.length
    }
}

/// What a walk reads.
pub(super) struct Stack<'a> {
    pub(super) code: &'a CodeMap,
    pub(super) store: StoreContext,
    /// Lowest address of the stack that wasm runs on.
    pub(super) low: usize,
    /// Whether an imported function has been called and has not returned.
    pub(super) in_host_call: bool,
    /// Activations that are not the innermost.
    pub(super) outer: &'a OuterActivations,
}

impl Stack<'_> {
    /// Walks from interrupted registers.
    ///
    /// # Safety
    /// The registers must be those of the thread that runs the store, standing still for the whole walk.
    pub(super) unsafe fn walk(&self, registers: Registers, frames: &mut Frames<'_>) -> WalkEnd {
        // SAFETY: the store is alive while its thread runs in it.
        let activation = unsafe { self.store.activation() };
        let innermost = match self.code.code(registers.pc) {
            // SAFETY: passed on to the caller.
            Some(code) => unsafe { self.walk_interrupted(registers, code, activation, frames) },
            // On another stack than wasm's: in Wasmtime's own signal handler, which turns a fault into a trap. What the
            // store says of the last exit is stale then.
            None if registers.sp < self.low || registers.sp > activation.entry_fp => Ok(()),
            // SAFETY: passed on to the caller.
            None => unsafe { self.walk_innermost_exit(activation, registers.sp, frames) },
        };
        // SAFETY: passed on to the caller.
        innermost.and_then(|()| unsafe { self.walk_outer(activation, frames) }).err().unwrap_or(WalkEnd::Complete)
    }

    /// Walks the stack of a thread that waits in a host call, from another thread.
    ///
    /// # Safety
    /// That thread's stack must stay mapped. If the thread runs meanwhile the result is meaningless, but nothing is read
    /// outside the stack.
    pub(super) unsafe fn walk_blocked(&self, frames: &mut Frames<'_>) -> WalkEnd {
        // SAFETY: the store is alive while its thread runs in it.
        let activation = unsafe { self.store.activation() };
        // SAFETY: passed on to the caller.
        let innermost = unsafe { self.walk_innermost_exit(activation, self.low, frames) };
        // SAFETY: passed on to the caller.
        innermost.and_then(|()| unsafe { self.walk_outer(activation, frames) }).err().unwrap_or(WalkEnd::Complete)
    }

    unsafe fn walk_interrupted(
        &self,
        registers: Registers,
        code: super::super::code_map::Code,
        activation: Activation,
        frames: &mut Frames<'_>,
    ) -> Result<(), WalkEnd> {
        match code.kind {
            // The host has just entered wasm or is about to leave it: this activation has no frames.
            CodeKind::Entry => return Ok(()),
            CodeKind::Function(_) => frames.push(FrameWord::exact(registers.pc))?,
            CodeKind::Builtin | CodeKind::Stub => {}
        }
        // SAFETY: compiled code stays mapped and unchanged while the code map holds its module.
        let bytes = unsafe { std::slice::from_raw_parts(code.start as *const u8, code.end - code.start) };
        // SAFETY: the thread stands still at `registers.pc`, inside this code.
        let caller = unsafe { caller_of_interrupted(registers, code.start, bytes, activation.entry_fp) };
        let caller = caller.ok_or(WalkEnd::BrokenChain)?;
        // SAFETY: passed on to the caller.
        unsafe { self.walk_callers(caller.return_pc, caller.fp, registers.sp, activation.entry_fp, frames) }
    }

    /// Walks from where wasm left for the host, if that is where it still is.
    ///
    /// The store says only where wasm last left. Inside an imported function that is the call of it. Else host code may
    /// be one of Wasmtime's builtins, which wasm calls directly, or the few instructions around the call of an import in
    /// which the call hook has not been told yet, or not any more. Or no wasm is left: Wasmtime turns a trap into an error
    /// after it has taken the guest's frames down, and what the store says of them is stale. So there the frames must be
    /// whole, and near.
    unsafe fn walk_innermost_exit(
        &self,
        activation: Activation,
        above: usize,
        frames: &mut Frames<'_>,
    ) -> Result<(), WalkEnd> {
        /// What Wasmtime's frames between wasm and the call hook take at most; some 1 KiB was seen.
        const NEAR: usize = 4096;
        let is_near = activation.exit_trampoline_fp.wrapping_sub(above) < NEAR;
        if !self.in_host_call && !is_near && !self.returns_from_builtin(activation.exit_pc) {
            return Ok(());
        }
        // SAFETY: passed on to the caller.
        let walked = unsafe { self.walk_exit(activation, above, frames) };
        if walked == Err(WalkEnd::BrokenChain) && !self.in_host_call {
            // Frames of the guest's last host call, found in what Wasmtime's own frames leave unwritten, after the stack
            // overflowed.
            frames.length = 0;
            return Ok(());
        }
        walked
    }

    /// Whether the instruction before `exit_pc` calls a builtin.
    fn returns_from_builtin(&self, exit_pc: usize) -> bool {
        /// Length of `call rel32`.
        const CALL: usize = 5;
        let Some(call) = exit_pc.checked_sub(CALL).filter(|call| self.code.contains(*call)) else { return false };
        // SAFETY: the instruction lies in compiled code, which stays mapped and is never written.
        let bytes = unsafe { (call as *const [u8; CALL]).read_unaligned() };
        let [0xe8, a, b, c, d] = bytes else { return false };
        let callee = exit_pc.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]) as isize);
        self.code.code(callee).is_some_and(|code| code.kind == CodeKind::Builtin)
    }

    /// Walks from where wasm left for the host. `above` is an address that every frame of it lies above.
    unsafe fn walk_exit(&self, activation: Activation, above: usize, frames: &mut Frames<'_>) -> Result<(), WalkEnd> {
        let Activation { exit_pc, exit_trampoline_fp, entry_fp } = activation;
        // The fields stay behind when a host call returns. If host code runs without having been called from wasm, what
        // they say lies below the stack pointer, or there is no entry.
        let current = exit_pc != 0
            && entry_fp != 0
            && exit_trampoline_fp.is_multiple_of(16)
            && (above..entry_fp).contains(&exit_trampoline_fp);
        if !current {
            return Ok(());
        }
        // SAFETY: the trampoline's frame lies on the thread's stack: above its lowest live address, below the entry.
        let word = |offset: usize| unsafe { ((exit_trampoline_fp + offset) as *const usize).read_volatile() };
        if word(8) != exit_pc {
            return Err(WalkEnd::BrokenChain);
        }
        frames.push(FrameWord::calls_host(exit_pc))?;
        let frame = Frame { fp: word(0), above: exit_trampoline_fp, entry_fp };
        // SAFETY: passed on to the caller.
        let Some(caller) = (unsafe { frame.caller()? }) else { return Ok(()) };
        // SAFETY: passed on to the caller.
        unsafe { self.walk_callers(caller.return_pc, caller.fp, frame.fp, entry_fp, frames) }
    }

    /// Walks frames whose return address is known, up to the entry frame.
    unsafe fn walk_callers(
        &self,
        mut return_pc: usize,
        mut fp: usize,
        mut above: usize,
        entry_fp: usize,
        frames: &mut Frames<'_>,
    ) -> Result<(), WalkEnd> {
        loop {
            let frame = Frame { fp, above, entry_fp };
            // SAFETY: passed on to the caller.
            let Some(caller) = (unsafe { frame.caller()? }) else { return Ok(()) };
            if !self.code.contains(return_pc) {
                return Err(WalkEnd::BrokenChain);
            }
            frames.push(FrameWord::return_address(return_pc))?;
            above = fp;
            (return_pc, fp) = (caller.return_pc, caller.fp);
        }
    }

    unsafe fn walk_outer(&self, innermost: Activation, frames: &mut Frames<'_>) -> Result<(), WalkEnd> {
        let mut inner = innermost;
        if self.outer.overflow() {
            return Err(WalkEnd::TooDeep);
        }
        for activation in self.outer.innermost_first() {
            // Between the hook and the entry itself the outer activation is the store's current one, too.
            if activation.exit_trampoline_fp != inner.exit_trampoline_fp || activation.entry_fp != inner.entry_fp {
                // SAFETY: passed on to the caller. An outer activation lies above the inner one.
                unsafe { self.walk_exit(activation, inner.entry_fp, frames)? };
            }
            inner = activation;
        }
        Ok(())
    }
}

/// A frame whose frame pointer has been read and not been trusted yet.
struct Frame {
    fp: usize,
    /// The frame must lie above this address.
    above: usize,
    entry_fp: usize,
}

impl Frame {
    /// What the frame returns to; `None` if it is the entry frame.
    ///
    /// # Safety
    /// `above..entry_fp` must be mapped memory of one stack.
    unsafe fn caller(&self) -> Result<Option<Caller>, WalkEnd> {
        let Self { fp, above, entry_fp } = *self;
        if fp == entry_fp {
            return Ok(None);
        }
        if fp <= above || fp > entry_fp || !fp.is_multiple_of(16) {
            return Err(WalkEnd::BrokenChain);
        }
        // SAFETY: `fp` lies between two addresses of the stack.
        let word = |offset: usize| unsafe { ((fp + offset) as *const usize).read_volatile() };
        Ok(Some(Caller { return_pc: word(8), fp: word(0) }))
    }
}
