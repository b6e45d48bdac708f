//! Stores that are being sampled, on whatever thread they run.

use super::running::{Attachment, Hold};
use std::marker::PhantomData;

/// A store that a [`Session`](super::Session) samples on whatever thread it runs. Sampling ends when the store is dropped or is
/// given another call hook.
#[derive(Clone)]
pub(crate) struct AttachedStore(pub(super) Attachment);

impl AttachedStore {
    /// Readies the calling thread for being sampled, which the first store that runs on it does otherwise: some milliseconds.
    pub(crate) fn ready_thread(&self) {
        self.0.ready_thread();
    }

    /// Says something else of the store, in place of what was said by that name: of samples that have been taken, too.
    pub(crate) fn set_label(&self, name: &str, value: &str) {
        self.0.set_label(name, value);
    }

    /// This thread runs the store until what this gives is dropped: host code is the store's, too.
    ///
    /// # Errors
    /// If this process may not do what sampling a thread takes.
    pub(crate) fn hold(&self) -> wasmtime::Result<HeldStore> {
        Ok(HeldStore { _hold: self.0.hold()?, stays_on_its_thread: PhantomData })
    }

    /// Linear memory is about to grow by so many bytes, by an instruction of the store's wasm that runs.
    pub(crate) fn memory_grows(&self, bytes: u64) {
        self.0.memory_grows(bytes);
    }

    /// Reads what the language's runtime has counted so far of what the guest allocates, if it counts.
    pub(crate) fn read_heap(&self) {
        self.0.read_heap();
    }

    /// The store's wasm is at a check compiled into it, in a callback that is not the sampler's own.
    pub(crate) fn reaches_check(&self) {
        self.0.reaches_check();
    }

    /// The store is about to be suspended in the host call that this thread is in.
    pub(crate) fn suspends(&self) {
        self.0.suspends();
    }

    /// Wraps `future`: each poll says which thread runs the store. `future` must run guests of this store only.
    ///
    /// Without it wasm is still sampled, but host code only while it runs on the stack that wasm called it on.
    pub(crate) fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        self.0.run(future)
    }
}

/// Keeps a store the one that a thread runs.
pub(crate) struct HeldStore {
    _hold: Hold,
    stays_on_its_thread: PhantomData<*const ()>,
}
