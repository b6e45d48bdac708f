//! The entries into wasm that nested host calls have left open.

use super::vm_context::Activation;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// Entries into wasm that may be nested in each other; deeper ones hide the outermost.
const MAX_NESTED: usize = 64;

/// The activations that a host call has nested another one in, innermost first.
///
/// Written by the call hook and read by the signal handler, both on the guest's thread.
pub(super) struct OuterActivations {
    depth: AtomicUsize,
    stack: UnsafeCell<[Activation; MAX_NESTED]>,
}

// SAFETY: `stack` is touched on the guest's thread alone, by the hook and by the handler that may interrupt it; the
// ticker reads it only while that thread is blocked (`capture_blocked`).
unsafe impl Sync for OuterActivations {}
// SAFETY: as above.
unsafe impl Send for OuterActivations {}

impl OuterActivations {
    pub(super) fn new() -> Self {
        Self { depth: AtomicUsize::new(0), stack: UnsafeCell::new([Activation::default(); MAX_NESTED]) }
    }

    /// Whether wasm runs within a host call of other wasm.
    pub(super) fn any(&self) -> bool {
        self.depth.load(Ordering::Relaxed) > 0
    }

    pub(super) fn push(&self, activation: Activation) {
        let depth = self.depth.load(Ordering::Relaxed);
        // The innermost stands first, so the others move up. Nesting is shallow.
        // SAFETY: this runs on the guest's thread, outside the handler; a handler that interrupts it reads a stack that
        // is well-formed at every moment, at worst with one activation twice.
        let stack = unsafe { &mut *self.stack.get() };
        stack.copy_within(0..depth.min(MAX_NESTED - 1), 1);
        stack[0] = activation;
        compiler_fence(Ordering::SeqCst);
        self.depth.store(depth + 1, Ordering::Release);
    }

    pub(super) fn pop(&self) {
        let depth = self.depth.load(Ordering::Relaxed).saturating_sub(1);
        self.depth.store(depth, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as in `push`.
        let stack = unsafe { &mut *self.stack.get() };
        stack.copy_within(1.., 0);
    }

    /// # Safety
    /// The guest's thread must be this one, or blocked.
    pub(super) unsafe fn innermost_first(&self) -> &[Activation] {
        let depth = self.depth.load(Ordering::Acquire);
        // SAFETY: passed on to the caller.
        unsafe { &(&*self.stack.get())[..depth.min(MAX_NESTED)] }
    }
}
