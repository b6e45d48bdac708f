//! Walks the wasm frames of a thread's stack along its frame pointers.
//!
//! Cranelift keeps frame pointers in all code it compiles for Wasmtime: `[fp]` is the caller's frame pointer and `[fp + 8]` the return
//! address. A walk begins at the interrupted registers, or, where host code was interrupted, at the place where wasm last left for the
//! host, and ends at the frame through which the host entered wasm.
//!
//! # Security
//! A frame is read only if what returns to it is compiled code: then its address is a frame pointer that compiled code has pushed. So no
//! bound of any stack is asked for.

use crate::arch::{self, Caller, DIRECT_CALL, Registers, caller_of_interrupted};
use crate::code_map::{Code, CodeKind, CodeReader};
use crate::frames::{FrameWord, Frames, WalkTruncation};
use crate::stack_memory::StackMemory;

/// The frames of one entry into wasm, as they stand while the host runs.
///
/// ```
/// // No wasm has been entered.
/// assert_eq!(wlprof_walk::Activation::default().entry_fp, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// Return address in the wasm code that called the host.
    pub exit_pc: usize,
    /// Frame pointer of the trampoline that it called through.
    pub exit_trampoline_fp: usize,
    /// Frame pointer of the trampoline that the host entered wasm through: the chain's end.
    pub entry_fp: usize,
}

/// Where the frames of one entry into wasm end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the trampoline that has this frame pointer.
    Frame(usize),
    /// At the first trampoline through which the host enters wasm. No frame lies at this address or above.
    Trampoline {
        /// The end of the stack.
        top: usize,
    },
}

impl End {
    /// No frame has a higher frame pointer.
    fn limit(self) -> usize {
        match self {
            Self::Frame(fp) => fp,
            Self::Trampoline { top } => top,
        }
    }
}

/// A walk of a stopped thread's stack: what it needs.
///
/// ```
/// use wlprof_walk::{Activation, CodeMap, Frames, StackMemory, Walk};
///
/// struct Nothing;
///
/// impl StackMemory for Nothing {
///     unsafe fn word(&self, _: usize) -> Option<usize> {
///         None
///     }
/// }
///
/// let code = CodeMap::default();
/// let walk = Walk { code: code.read(), memory: Nothing };
/// let mut words = [0; 8];
/// let mut frames = Frames::new(&mut words);
/// // SAFETY: no entry is open, and this memory can read any address.
/// let walked = unsafe { walk.exit(Activation::default(), 0, &mut frames) };
/// assert!(walked.is_ok() && frames.len() == 0);
/// ```
pub struct Walk<'a, M> {
    /// The code that frames are of.
    pub code: CodeReader<'a>,
    /// The stacks.
    pub memory: M,
}

impl<M: StackMemory> Walk<'_, M> {
    /// Walks from interrupted registers in `code`, compiled code of the guest. Returns the frame pointer at which the frames ended; `None` if
    /// there are none.
    ///
    /// # Errors
    /// The reason why frames are missing at the root.
    ///
    /// # Safety
    /// If the memory is read in place:
    /// * `registers` must be those of a thread that stands still for the whole walk.
    /// * The memory from the stack pointer to `end` must be a stack that the memory of this walk can read.
    pub unsafe fn interrupted(
        &self,
        registers: Registers,
        code: Code,
        end: End,
        frames: &mut Frames<'_>,
    ) -> Result<Option<usize>, WalkTruncation> {
        match code.kind {
            // The host has just entered wasm or is about to leave it: this activation has no frames.
            CodeKind::Entry => return Ok(None),
            CodeKind::Function { .. } | CodeKind::Adapter => frames.push(FrameWord::exact(registers.pc))?,
            CodeKind::Builtin | CodeKind::Stub => {}
        }
        let bytes = self.code.bytes(code.start..code.end).ok_or(WalkTruncation::BrokenChain)?;
        // SAFETY: the thread stands still at `registers.pc`, inside this code.
        let caller = unsafe { caller_of_interrupted(&self.memory, registers, code.start, bytes, end.limit()) };
        let caller = caller.ok_or(WalkTruncation::BrokenChain)?;
        // The caller's frame may stand at the stack pointer itself: on aarch64, where the callee has given back what arguments took.
        let above = registers.sp.saturating_sub(1);
        // SAFETY: the thread stands still on this stack (see # Safety), and `callers` reads no frame that compiled code does not return to.
        unsafe { self.callers(caller, above, end, frames).map(Some) }
    }

    /// Walks from where wasm left for the host, if that is where it still is. `sp` is the stack pointer, if that is known.
    ///
    /// The store says only where wasm last left. Inside an imported function that is the call of it. Else host code may
    /// be one of Wasmtime's builtins, which wasm calls directly, or the few instructions around the call of an import in
    /// which the call hook has not been told yet, or not any more. Or no wasm is left: Wasmtime turns a trap into an error
    /// after it has taken the guest's frames down, and what the store says of them is stale. So there the frames must be
    /// whole, and near. `in_host_call` says that the host is known to be in an imported function.
    ///
    /// # Errors
    /// The reason why frames are missing at the root.
    ///
    /// # Safety
    /// * `activation` must be what the store says now, or what it said when a task that is suspended left for the host.
    /// * The stacks of the store must stand still, or be read through the kernel.
    pub unsafe fn innermost_exit(
        &self,
        activation: Activation,
        sp: Option<usize>,
        in_host_call: bool,
        frames: &mut Frames<'_>,
    ) -> Result<(), WalkTruncation> {
        /// What Wasmtime's frames between wasm and the call hook take at most; some 1 KiB was seen.
        const NEAR: usize = 4096;
        let is_near = sp.is_some_and(|sp| activation.exit_trampoline_fp.wrapping_sub(sp) < NEAR);
        if !in_host_call && !is_near && !self.returns_from_builtin(activation.exit_pc) {
            return Ok(());
        }
        // SAFETY: the stack stands still or is read through the kernel, see # Safety.
        let walked = unsafe { self.exit(activation, sp.unwrap_or(0), frames) };
        if walked == Err(WalkTruncation::BrokenChain) && !in_host_call {
            // Frames of the guest's last host call, found in what Wasmtime's own frames leave unwritten, after the stack
            // overflowed.
            frames.truncate(0);
            return Ok(());
        }
        walked
    }

    /// Whether the instruction before `exit_pc` calls a builtin.
    fn returns_from_builtin(&self, exit_pc: usize) -> bool {
        let call = exit_pc.checked_sub(DIRECT_CALL).and_then(|call| self.code.bytes(call..exit_pc)?.try_into().ok());
        let Some(callee) = call.and_then(|call| arch::directly_called(call, exit_pc)) else { return false };
        self.code.code(callee).is_some_and(|code| code.kind == CodeKind::Builtin)
    }

    /// Walks from where wasm left for the host. `above` is an address that every frame of it lies above.
    ///
    /// # Errors
    /// The reason why frames are missing at the root.
    ///
    /// # Safety
    /// * `activation` must be that of an open entry of the store. Its exit may be stale only if `above` is the stack pointer: what does
    ///   not lie between that and the entry frame is not read.
    /// * The stacks of the store must stand still, or be read through the kernel.
    pub unsafe fn exit(
        &self,
        activation: Activation,
        above: usize,
        frames: &mut Frames<'_>,
    ) -> Result<(), WalkTruncation> {
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
        unsafe { self.call(exit_trampoline_fp, Some(exit_pc), End::Frame(entry_fp), frames).map(drop) }
    }

    /// Walks from a call of the host, through the trampoline whose frame pointer is `trampoline_fp`. `exit_pc` is the address that the
    /// trampoline returns to, if that is known. Returns the frame pointer at which the frames ended.
    ///
    /// # Errors
    /// The reason why frames are missing at the root.
    ///
    /// # Safety
    /// If the memory is read in place, `trampoline_fp` must be a frame pointer that compiled code has pushed, of a stack that stands still.
    pub unsafe fn call(
        &self,
        trampoline_fp: usize,
        exit_pc: Option<usize>,
        end: End,
        frames: &mut Frames<'_>,
    ) -> Result<usize, WalkTruncation> {
        // SAFETY: it is the frame pointer of compiled code (see # Safety).
        let caller = unsafe { self.caller_of(trampoline_fp)? };
        if exit_pc.is_some_and(|exit_pc| caller.return_pc != exit_pc) {
            return Err(WalkTruncation::BrokenChain);
        }
        if self.is_end(caller, end) {
            // The entry itself called the host: an import that the outermost function ended with.
            frames.push(FrameWord::calls_host(caller.return_pc))?;
            return Ok(caller.fp);
        }
        if !self.is_frame(caller, trampoline_fp, end) {
            return Err(WalkTruncation::BrokenChain);
        }
        frames.push(FrameWord::calls_host(caller.return_pc))?;
        // SAFETY: compiled code returns to `caller` (`is_frame` has checked it), so it has pushed this frame pointer. The stack stands
        // still or is read through the kernel.
        let next = unsafe { self.caller_of(caller.fp)? };
        // SAFETY: the stack stands still or is read through the kernel, and `callers` reads no frame that compiled code does not
        // return to.
        unsafe { self.callers(next, caller.fp, end, frames) }
    }

    /// Whether this caller is no frame, but where the frames end.
    fn is_end(&self, Caller { return_pc, fp }: Caller, end: End) -> bool {
        match end {
            End::Frame(end) => fp == end,
            End::Trampoline { .. } => self.code.code(return_pc).is_some_and(|code| code.kind == CodeKind::Entry),
        }
    }

    /// Whether a frame that stands above `above` and not behind `end` returns to `caller`.
    fn is_frame(&self, Caller { return_pc, fp }: Caller, above: usize, end: End) -> bool {
        self.code.contains(return_pc) && fp > above && fp <= end.limit() && fp.is_multiple_of(16)
    }

    /// Walks frames that return to `caller`, up to the end. Every frame must lie above `above`.
    ///
    /// # Safety
    /// `caller` must have been read from a frame of compiled code, on a stack that stands still or is read through the kernel.
    unsafe fn callers(
        &self,
        mut caller: Caller,
        mut above: usize,
        end: End,
        frames: &mut Frames<'_>,
    ) -> Result<usize, WalkTruncation> {
        while !self.is_end(caller, end) {
            let Caller { return_pc, fp } = caller;
            if !self.is_frame(caller, above, end) {
                return Err(WalkTruncation::BrokenChain);
            }
            frames.push(FrameWord::return_address(return_pc))?;
            if self.memory.is_slow() && frames.is_cut() {
                // Each frame costs a system call, and the guest may wait for the reader.
                return Err(WalkTruncation::TooManyEntries);
            }
            // SAFETY: compiled code returns there, so this is a frame pointer that compiled code has pushed, of a stack that
            // stands still or is read through the kernel.
            caller = unsafe { self.caller_of(fp)? };
            above = fp;
        }
        Ok(caller.fp)
    }

    /// The caller that a frame leads to.
    ///
    /// # Safety
    /// `fp` must be a frame pointer that compiled code has pushed, of a stack that stands still or is read through the kernel.
    unsafe fn caller_of(&self, fp: usize) -> Result<Caller, WalkTruncation> {
        // SAFETY: `fp` is a frame pointer that compiled code has pushed, so two words stand there; the stack stands still or is read
        // through the kernel (see # Safety).
        let word = |offset: usize| unsafe { self.memory.word(fp.wrapping_add(offset)) };
        let (Some(fp), Some(saved)) = (word(0), word(8)) else { return Err(WalkTruncation::BrokenChain) };
        Ok(Caller { return_pc: arch::return_address(saved), fp })
    }
}
