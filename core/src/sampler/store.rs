//! Stores that are being sampled: one that stays on its thread, and one that runs wherever it is polled or called.

use super::running::{Attachment, Hold};
use std::marker::PhantomData;
use wasmtime::{AsContext, AsContextMut, Store, StoreContext, StoreContextMut};

/// A store that stays on one thread. A [`Session`](super::Session) samples it, or nobody does.
///
/// All time of that thread counts as the store's. Sampling ends when this is dropped, just before the store is.
pub struct SampledStore<T: 'static> {
    /// Before the store, so that it is dropped first.
    pub(super) attached: Option<Held>,
    pub(super) store: Store<T>,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl<T: 'static> SampledStore<T> {
    /// A store that is not sampled.
    pub fn unsampled(store: Store<T>) -> Self {
        Self::new(None, store)
    }

    pub(super) fn new(attached: Option<Held>, store: Store<T>) -> Self {
        Self { attached, store, stays_on_its_thread: PhantomData }
    }
}

/// Keeps a store sampled on one thread.
pub(super) struct Held {
    /// `None` while it is dropped.
    hold: Option<Hold>,
    pub(super) attachment: Attachment,
}

impl Held {
    pub(super) fn new(attachment: Attachment) -> wasmtime::Result<Self> {
        Ok(Self { hold: Some(attachment.hold()?), attachment })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hold = None;
        self.attachment.detach();
    }
}

/// A store that a [`Session`](super::Session) samples on whatever thread it runs. Sampling ends when the store is dropped or is
/// given another call hook.
#[derive(Clone)]
pub struct AttachedStore(pub(super) Attachment);

impl AttachedStore {
    /// Readies the calling thread for being sampled, which the first store that runs on it does otherwise: some milliseconds.
    pub fn ready_thread(&self) {
        self.0.ready_thread();
    }

    /// Wraps `future`: each poll says which thread runs the store. `future` must run guests of this store only.
    ///
    /// Without it wasm is still sampled, but host code only while it runs on the stack that wasm called it on.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        self.0.run(future)
    }
}

impl<T: 'static> AsContext for SampledStore<T> {
    type Data = T;

    fn as_context(&self) -> StoreContext<'_, T> {
        self.store.as_context()
    }
}

impl<T: 'static> AsContextMut for SampledStore<T> {
    fn as_context_mut(&mut self) -> StoreContextMut<'_, T> {
        self.store.as_context_mut()
    }
}
