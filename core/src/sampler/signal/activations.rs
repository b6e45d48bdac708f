//! The entries into wasm that nested host calls have left open.

use super::vm_context::Activation;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries into wasm that may be nested in each other.
const MAX_NESTED: usize = 64;

/// The activations that a host call has nested another one in.
///
/// Written by the call hook, and read by the signal handler that may interrupt it at any instruction, or by the drain
/// while the thread is blocked: so a place is filled before the depth counts it.
pub(super) struct OuterActivations {
    depth: AtomicUsize,
    /// Outermost first.
    places: [Place; MAX_NESTED],
}

#[derive(Default)]
struct Place {
    exit_pc: AtomicUsize,
    exit_trampoline_fp: AtomicUsize,
    entry_fp: AtomicUsize,
}

impl OuterActivations {
    pub(super) fn new() -> Self {
        Self { depth: AtomicUsize::new(0), places: std::array::from_fn(|_| Place::default()) }
    }

    /// Whether wasm runs within a host call of other wasm.
    pub(super) fn any(&self) -> bool {
        self.depth.load(Ordering::Relaxed) > 0
    }

    /// Whether more are open than are kept; the innermost are missing then.
    pub(super) fn overflow(&self) -> bool {
        self.depth.load(Ordering::Relaxed) > MAX_NESTED
    }

    pub(super) fn push(&self, activation: Activation) {
        let depth = self.depth.load(Ordering::Relaxed);
        if let Some(place) = self.places.get(depth) {
            place.exit_pc.store(activation.exit_pc, Ordering::Relaxed);
            place.exit_trampoline_fp.store(activation.exit_trampoline_fp, Ordering::Relaxed);
            place.entry_fp.store(activation.entry_fp, Ordering::Relaxed);
        }
        self.depth.store(depth + 1, Ordering::Release);
    }

    pub(super) fn pop(&self) {
        self.depth.store(self.depth.load(Ordering::Relaxed).saturating_sub(1), Ordering::Release);
    }

    pub(super) fn innermost_first(&self) -> impl Iterator<Item = Activation> + '_ {
        let depth = self.depth.load(Ordering::Acquire).min(MAX_NESTED);
        self.places[..depth].iter().rev().map(|place| Activation {
            exit_pc: place.exit_pc.load(Ordering::Relaxed),
            exit_trampoline_fp: place.exit_trampoline_fp.load(Ordering::Relaxed),
            entry_fp: place.entry_fp.load(Ordering::Relaxed),
        })
    }
}
