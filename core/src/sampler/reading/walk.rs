//! Walks the wasm frames of a store: those of the entry that runs, and of the entries that host calls have made it inside, perhaps on other
//! stacks.

use super::super::os::memory;
use super::activations::Activations;
use super::vm_context::StoreContext;
use wlprof_walk::{Activation, End, Frames, Registers, StackMemory, Walk, WalkTruncation};

/// What a walk reads.
pub(in crate::sampler) struct Stack<'a> {
    pub(in crate::sampler) walk: Walk<'a, Reads>,
    pub(in crate::sampler) store: StoreContext,
    /// The store's open entries.
    pub(in crate::sampler) activations: &'a Activations,
}

/// How a walk reads frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Reads {
    /// As any memory: the stack stands still.
    InPlace,
    /// Through the kernel, which refuses what is not there: the stack is another thread's, and may go while it is read.
    ThroughKernel,
}

impl StackMemory for Reads {
    unsafe fn word(&self, address: usize) -> Option<usize> {
        match self {
            // SAFETY: the word at `address` is mapped and aligned (see # Safety of the trait's method). Volatile: the frame is not this code's.
            Self::InPlace => Some(unsafe { (address as *const usize).read_volatile() }),
            Self::ThroughKernel => {
                let mut word = [0; size_of::<usize>()];
                memory::read(address as *const u8, &mut word).then(|| usize::from_ne_bytes(word))
            }
        }
    }

    fn is_slow(&self) -> bool {
        *self == Self::ThroughKernel
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
    ) -> Result<(), WalkTruncation> {
        // SAFETY: the store is alive while its thread runs in it.
        let activation = unsafe { self.store.activation() };
        match self.walk.code.code(registers.pc) {
            // SAFETY: the thread that runs the store stands still in this code, with these registers (see # Safety).
            Some(code) => unsafe {
                self.walk.interrupted(registers, code, End::Frame(activation.entry_fp), frames)?;
            },
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
    pub(in crate::sampler) unsafe fn walk_blocked(&self, frames: &mut Frames<'_>) -> Result<(), WalkTruncation> {
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

    /// Walks from where wasm left for the host, if that is where it still is.
    ///
    /// # Safety
    /// As for [`Walk::innermost_exit`].
    unsafe fn walk_innermost_exit(
        &self,
        activation: Activation,
        sp: Option<usize>,
        frames: &mut Frames<'_>,
    ) -> Result<(), WalkTruncation> {
        let in_host_call = self.activations.current(activation).is_some_and(|entry| entry.host_call() != 0);
        // SAFETY: `activation` and the stacks are as `Walk::innermost_exit` demands (see # Safety).
        unsafe { self.walk.innermost_exit(activation, sp, in_host_call, frames) }
    }

    /// Walks the entries that the one that runs, in `activation`, was made inside.
    ///
    /// # Safety
    /// The stacks of the store must stand still, or be read through the kernel.
    unsafe fn walk_outer(&self, activation: Activation, frames: &mut Frames<'_>) -> Result<(), WalkTruncation> {
        if self.activations.overflow() {
            return Err(WalkTruncation::TooManyEntries);
        }
        let mut entry = self.activations.current(activation);
        while let Some(inner) = entry {
            entry = inner.outer_entry();
            if entry.is_some() {
                // SAFETY: the outer entry is open, and its frames stand where they were in the host call that made the inner one. Its stack
                // stands still or is read through the kernel.
                unsafe { self.walk.exit(inner.outer(), 0, frames)? };
            }
        }
        Ok(())
    }
}
