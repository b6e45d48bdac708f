//! Walks the wasm frames of a stopped thread along its frame pointers.
//!
//! Cranelift keeps frame pointers in all code it compiles for Wasmtime: `[fp]` is the caller's frame pointer and
//! `[fp + 8]` the return address. A walk begins at the interrupted registers, or, where host code was interrupted, at
//! the place where wasm last left for the host, and ends at the frame through which the host entered wasm. Entries that
//! host calls have made inside others, perhaps on other stacks, are walked one after the other.
//!
//! # Security
//! A frame is read only if what returns to it is compiled code: then its address is a frame pointer that compiled code has
//! pushed. So no bound of any stack is asked for.

use super::super::arch::{self, Caller, DIRECT_CALL, Registers, caller_of_interrupted};
use super::super::code_map::{Code, CodeKind, CodeReader, NativePc};
use super::super::os::memory;
use super::activations::Activations;
use super::vm_context::{Activation, StoreContext};

/// Words that a walk gives at most. Of deeper stacks it gives both ends: [`MAX_ROOTS`] frames at the root, the others at the leaf, and
/// [`FrameWord::ELIDED`] between them.
pub(in crate::sampler) const MAX_FRAMES: usize = 2048;

/// Frames of the root end that are given of a stack that is too deep.
pub(in crate::sampler) const MAX_ROOTS: usize = 128;

/// A frame as it goes into the ring: the pc, and what is known of it in the bits that no address uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::sampler) struct FrameWord(pub(in crate::sampler) u64);

impl FrameWord {
    /// The interrupted instruction itself; without it, the pc is a return address.
    const EXACT: u64 = 1 << 63;
    /// Host code that this frame called was running.
    const CALLS_HOST: u64 = 1 << 62;
    /// The guest called back there, at a check.
    const AT_CHECK: u64 = 1 << 61;
    const PC: u64 = (1 << 48) - 1;
    /// No frame: those that stood here are left out.
    pub(in crate::sampler) const ELIDED: Self = Self(1 << 60 | 1);

    fn exact(pc: usize) -> Self {
        Self(pc as u64 | Self::EXACT)
    }

    pub(in crate::sampler) fn return_address(pc: usize) -> Self {
        Self(pc as u64)
    }

    /// A frame that calls the host, by its return address.
    pub(in crate::sampler) fn calls_host(pc: usize) -> Self {
        Self(pc as u64 | Self::CALLS_HOST)
    }

    pub(in crate::sampler) fn pc(self) -> usize {
        (self.0 & Self::PC) as usize
    }

    pub(in crate::sampler) fn native_pc(self) -> NativePc {
        if self.is_exact() { NativePc::Exact(self.pc()) } else { NativePc::Return(self.pc()) }
    }

    pub(in crate::sampler) fn is_exact(self) -> bool {
        self.0 & Self::EXACT != 0
    }

    pub(in crate::sampler) fn is_at_check(self) -> bool {
        self.0 & Self::AT_CHECK != 0
    }

    pub(in crate::sampler) fn is_host_call(self) -> bool {
        self.0 & Self::CALLS_HOST != 0
    }
}

/// Why a walk did not come to the frame through which the host entered wasm first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Truncated {
    /// There are more than [`MAX_FRAMES`] frames: some in the middle are left out.
    Elided,
    /// There are more entries than are kept, or more frames than are read of another thread: frames at the root are missing.
    TooManyEntries,
    /// A frame pointer led off the stack, or a return address out of the guest's code.
    BrokenChain,
}

/// Where frames go, leaf first.
pub(in crate::sampler) struct Frames<'a> {
    words: &'a mut [u64],
    /// Frames at the leaf end.
    leaves: usize,
    /// Frames beyond those, of which the last [`MAX_ROOTS`] are kept, in a ring behind a place for [`FrameWord::ELIDED`].
    others: usize,
}

impl<'a> Frames<'a> {
    /// Collects up to [`MAX_FRAMES`] frames, or as many as there is room for.
    pub(in crate::sampler) fn new(words: &'a mut [u64]) -> Self {
        let room = words.len().min(MAX_FRAMES);
        Self { words: &mut words[..room], leaves: 0, others: 0 }
    }

    fn push(&mut self, frame: FrameWord) -> Result<(), Truncated> {
        if self.others == 0 {
            if let Some(place) = self.words.get_mut(self.leaves) {
                *place = frame.0;
                self.leaves += 1;
                return Ok(());
            }
            if self.words.len() < MAX_FRAMES {
                // The leaf end is all that is wanted.
                return Err(Truncated::Elided);
            }
            // The last of them are the first of the root end, and one makes room.
            self.leaves -= MAX_ROOTS + 1;
            self.words[self.leaves] = FrameWord::ELIDED.0;
            self.others = MAX_ROOTS;
        }
        self.words[self.leaves + 1..][self.others % MAX_ROOTS] = frame.0;
        self.others += 1;
        Ok(())
    }

    /// Puts the root end in order when all frames are there. Gives an error if some are left out.
    pub(in crate::sampler) fn finish(&mut self) -> Result<(), Truncated> {
        if self.others == 0 {
            return Ok(());
        }
        self.words[self.leaves + 1..].rotate_left(self.others % MAX_ROOTS);
        Err(Truncated::Elided)
    }

    /// The leaf is at a check: what it has called there is no host code of anybody's.
    pub(in crate::sampler) fn leaf_is_at_check(&mut self) {
        if let Some(leaf) = self.words[..self.leaves].first_mut() {
            *leaf = *leaf & !FrameWord::CALLS_HOST | FrameWord::AT_CHECK;
        }
    }

    /// The leaf is about to call the host.
    pub(in crate::sampler) fn leaf_calls_later(&mut self) {
        if let Some(leaf) = self.words[..self.leaves].first_mut() {
            *leaf &= !FrameWord::CALLS_HOST;
        }
    }

    /// Number of words collected.
    pub(in crate::sampler) fn len(&self) -> usize {
        match self.others {
            0 => self.leaves,
            _ => self.words.len(),
        }
    }

    /// Number of frames from the leaf on of which none is left out.
    pub(in crate::sampler) fn leaves(&self) -> usize {
        self.leaves
    }
}

/// What a walk reads.
pub(in crate::sampler) struct Stack<'a> {
    pub(in crate::sampler) code: CodeReader<'a>,
    pub(in crate::sampler) store: StoreContext,
    /// The store's open entries.
    pub(in crate::sampler) activations: &'a Activations,
    pub(in crate::sampler) reads: Reads,
}

/// How a walk reads frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Reads {
    /// As any memory: the stack stands still.
    InPlace,
    /// Through the kernel, which refuses what is not there: the stack is another thread's, and may go while it is read.
    ThroughKernel,
}

impl Reads {
    /// The word at `address`; `None` if it cannot be read.
    ///
    /// # Safety
    /// With [`Reads::InPlace`], `address` must be that of an aligned word that is mapped.
    unsafe fn word(self, address: usize) -> Option<usize> {
        match self {
            // SAFETY: the word at `address` is mapped and aligned (see # Safety). Volatile: the frame is not this code's.
            Self::InPlace => Some(unsafe { (address as *const usize).read_volatile() }),
            Self::ThroughKernel => {
                let mut word = [0; size_of::<usize>()];
                memory::read(address as *const u8, &mut word).then(|| usize::from_ne_bytes(word))
            }
        }
    }
}

impl Stack<'_> {
    /// Walks from interrupted registers.
    ///
    /// # Errors
    /// Why frames are missing at the root.
    ///
    /// # Safety
    /// * `registers` must be those of the thread that runs the store, which stands still for the whole walk.
    /// * If they are not in compiled code, the thread must be on the stack that the store says it runs on.
    pub(in crate::sampler) unsafe fn walk(
        &self,
        registers: Registers,
        frames: &mut Frames<'_>,
    ) -> Result<(), Truncated> {
        // SAFETY: the store is alive while its thread runs in it.
        let activation = unsafe { self.store.activation() };
        match self.code.code(registers.pc) {
            // SAFETY: the thread that runs the store stands still in this code, with these registers (see # Safety).
            Some(code) => unsafe { self.walk_interrupted(registers, code, activation, frames)? },
            // On another stack than wasm's: in Wasmtime's own signal handler, which turns a fault into a trap. What the
            // store says of the last exit is stale then.
            None if registers.is_on_signal_stack || registers.sp > activation.entry_fp => {}
            // SAFETY: the thread stands still, on the stack that the store says it runs on (see # Safety).
            None => unsafe { self.walk_innermost_exit(activation, Some(registers.sp), frames)? },
        }
        // SAFETY: outer entries wait in host calls that this thread has not left, so their stacks stand still as it does (see # Safety).
        unsafe { self.walk_outer(activation, frames) }
    }

    /// Walks the stack of a store whose wasm waits for the host: on its own thread, in a host call, or from another one.
    ///
    /// # Errors
    /// As for [`Stack::walk`].
    ///
    /// # Safety
    /// * The store must be alive until this returns.
    /// * With [`Reads::InPlace`], call this on the store's thread, in a host call: its stacks stay as they are then.
    /// * Read through the kernel the stacks may change or go, and the result means nothing if they do.
    pub(in crate::sampler) unsafe fn walk_blocked(&self, frames: &mut Frames<'_>) -> Result<(), Truncated> {
        // SAFETY: the store is alive until this returns (see # Safety).
        let activation = unsafe { self.store.activation() };
        // The frames of a task that is suspended are where they were when it called the host.
        let suspended = self.activations.suspended().filter(|_| activation.entry_fp == 0);
        let activation = suspended.map_or(activation, |entry| entry.exit());
        // SAFETY: the stacks of the store stay as they are, or are read through the kernel (see # Safety).
        unsafe {
            self.walk_innermost_exit(activation, None, frames)?;
            self.walk_outer(activation, frames)
        }
    }

    /// Walks from interrupted registers in `code`, compiled code of the guest.
    ///
    /// # Safety
    /// As for [`Stack::walk`]. `activation` must be what the store says now.
    unsafe fn walk_interrupted(
        &self,
        registers: Registers,
        code: Code,
        activation: Activation,
        frames: &mut Frames<'_>,
    ) -> Result<(), Truncated> {
        match code.kind {
            // The host has just entered wasm or is about to leave it: this activation has no frames.
            CodeKind::Entry => return Ok(()),
            CodeKind::Function { .. } | CodeKind::Adapter => frames.push(FrameWord::exact(registers.pc))?,
            CodeKind::Builtin | CodeKind::Stub => {}
        }
        // SAFETY: nobody writes compiled code while this reads it, and it stays mapped for as long as `self.code`.
        let bytes = unsafe { std::slice::from_raw_parts(code.start as *const u8, code.end - code.start) };
        // SAFETY: the thread stands still at `registers.pc`, inside this code.
        let caller = unsafe { caller_of_interrupted(registers, code.start, bytes, activation.entry_fp) };
        let caller = caller.ok_or(Truncated::BrokenChain)?;
        // The caller's frame may stand at the stack pointer itself: on aarch64, where the callee has given back what arguments took.
        let above = registers.sp.saturating_sub(1);
        // SAFETY: the thread stands still on this stack, as `walk` demands. `walk_callers` reads no frame that compiled code does not
        // return to.
        unsafe { self.walk_callers(caller, above, activation.entry_fp, frames) }
    }

    /// Walks from where wasm left for the host, if that is where it still is. `sp` is the stack pointer, if that is known.
    ///
    /// The store says only where wasm last left. Inside an imported function that is the call of it. Else host code may
    /// be one of Wasmtime's builtins, which wasm calls directly, or the few instructions around the call of an import in
    /// which the call hook has not been told yet, or not any more. Or no wasm is left: Wasmtime turns a trap into an error
    /// after it has taken the guest's frames down, and what the store says of them is stale. So there the frames must be
    /// whole, and near.
    ///
    /// # Safety
    /// * `activation` must be what the store says now, or what it said when a task that is suspended left for the host.
    /// * The stacks of the store must stand still, or be read through the kernel.
    unsafe fn walk_innermost_exit(
        &self,
        activation: Activation,
        sp: Option<usize>,
        frames: &mut Frames<'_>,
    ) -> Result<(), Truncated> {
        /// What Wasmtime's frames between wasm and the call hook take at most; some 1 KiB was seen.
        const NEAR: usize = 4096;
        let in_host_call = self.activations.current(activation).is_some_and(|entry| entry.host_call() != 0);
        let is_near = sp.is_some_and(|sp| activation.exit_trampoline_fp.wrapping_sub(sp) < NEAR);
        if !in_host_call && !is_near && !self.returns_from_builtin(activation.exit_pc) {
            return Ok(());
        }
        // SAFETY: the stack stands still or is read through the kernel, as `walk` and `walk_blocked` demand.
        let walked = unsafe { self.walk_exit(activation, sp.unwrap_or(0), frames) };
        if walked == Err(Truncated::BrokenChain) && !in_host_call {
            // Frames of the guest's last host call, found in what Wasmtime's own frames leave unwritten, after the stack
            // overflowed.
            (frames.leaves, frames.others) = (0, 0);
            return Ok(());
        }
        walked
    }

    /// Whether the instruction before `exit_pc` calls a builtin.
    fn returns_from_builtin(&self, exit_pc: usize) -> bool {
        let Some(call) = exit_pc.checked_sub(DIRECT_CALL).filter(|call| self.code.contains(*call)) else {
            return false;
        };
        // SAFETY: the instruction lies in compiled code, which stays mapped and is never written.
        let bytes = unsafe { (call as *const [u8; DIRECT_CALL]).read_unaligned() };
        let Some(callee) = arch::directly_called(bytes, exit_pc) else { return false };
        self.code.code(callee).is_some_and(|code| code.kind == CodeKind::Builtin)
    }

    /// Walks from where wasm left for the host. `above` is an address that every frame of it lies above.
    ///
    /// # Safety
    /// * `activation` must be that of an open entry of the store. Its exit may be stale only if `above` is the stack pointer: what does
    ///   not lie between that and the entry frame is not read.
    /// * The stacks of the store must stand still, or be read through the kernel.
    unsafe fn walk_exit(&self, activation: Activation, above: usize, frames: &mut Frames<'_>) -> Result<(), Truncated> {
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
        // SAFETY: the trampoline's frame is one of compiled code's, on a stack of the store's: that of this thread, or one that
        // lives as long as the entry that the store has noted it for.
        let caller = unsafe { self.caller_of(exit_trampoline_fp)? };
        if caller.return_pc != exit_pc {
            return Err(Truncated::BrokenChain);
        }
        if caller.fp == entry_fp {
            // The entry itself called the host: an import that the outermost function ended with.
            return frames.push(FrameWord::calls_host(exit_pc));
        }
        let is_frame = self.is_frame(caller, exit_trampoline_fp, entry_fp);
        if !is_frame {
            return Err(Truncated::BrokenChain);
        }
        frames.push(FrameWord::calls_host(exit_pc))?;
        // SAFETY: compiled code returns to `caller` (`is_frame` has checked it), so it has pushed this frame pointer. The stack stands
        // still or is read through the kernel.
        let next = unsafe { self.caller_of(caller.fp)? };
        // SAFETY: the stack stands still or is read through the kernel, and `walk_callers` reads no frame that compiled code does not
        // return to.
        unsafe { self.walk_callers(next, caller.fp, entry_fp, frames) }
    }

    /// Whether a frame that stands below `entry_fp` and above `above` returns to `caller`.
    fn is_frame(&self, Caller { return_pc, fp }: Caller, above: usize, entry_fp: usize) -> bool {
        self.code.contains(return_pc) && fp > above && fp <= entry_fp && fp.is_multiple_of(16)
    }

    /// Walks frames that return to `caller`, up to the entry frame. Every frame must lie above `above`.
    ///
    /// # Safety
    /// `caller` must have been read from a frame of compiled code, on a stack that stands still or is read through the kernel.
    unsafe fn walk_callers(
        &self,
        mut caller: Caller,
        mut above: usize,
        entry_fp: usize,
        frames: &mut Frames<'_>,
    ) -> Result<(), Truncated> {
        while caller.fp != entry_fp {
            let Caller { return_pc, fp } = caller;
            if !self.is_frame(caller, above, entry_fp) {
                return Err(Truncated::BrokenChain);
            }
            frames.push(FrameWord::return_address(return_pc))?;
            if self.reads == Reads::ThroughKernel && frames.others > 0 {
                // Each frame costs a system call, and the guest may wait for the reader.
                return Err(Truncated::TooManyEntries);
            }
            // SAFETY: compiled code returns there, so this is a frame pointer that compiled code has pushed, of a stack that
            // stands still or is read through the kernel.
            caller = unsafe { self.caller_of(fp)? };
            above = fp;
        }
        Ok(())
    }

    /// The caller that a frame leads to.
    ///
    /// # Safety
    /// `fp` must be a frame pointer that compiled code has pushed, of a stack that stands still or is read through the kernel.
    unsafe fn caller_of(&self, fp: usize) -> Result<Caller, Truncated> {
        // SAFETY: `fp` is a frame pointer that compiled code has pushed, so two words stand there; the stack stands still or is read
        // through the kernel (see # Safety).
        let word = |offset: usize| unsafe { self.reads.word(fp + offset) };
        let (Some(fp), Some(saved)) = (word(0), word(8)) else { return Err(Truncated::BrokenChain) };
        Ok(Caller { return_pc: arch::return_address(saved), fp })
    }

    /// Walks the entries that the one that runs, in `activation`, was made inside.
    ///
    /// # Safety
    /// The stacks of the store must stand still, or be read through the kernel.
    unsafe fn walk_outer(&self, activation: Activation, frames: &mut Frames<'_>) -> Result<(), Truncated> {
        if self.activations.overflow() {
            return Err(Truncated::TooManyEntries);
        }
        let mut entry = self.activations.current(activation);
        while let Some(inner) = entry {
            entry = inner.outer_entry();
            if entry.is_some() {
                // SAFETY: the outer entry is open, and its frames stand where they were in the host call that made the inner one. Its stack
                // stands still or is read through the kernel.
                unsafe { self.walk_exit(inner.outer(), 0, frames)? };
            }
        }
        Ok(())
    }
}
