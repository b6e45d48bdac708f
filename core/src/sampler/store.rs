//! Stores that are being sampled: one that stays on its thread, and one that runs wherever it is polled or called.

use super::running::{Attachment, Hold};
use std::marker::PhantomData;
use wasmtime::{AsContext, AsContextMut, Store, StoreContext, StoreContextMut};

/// A store that a [`Session`](super::Session) samples on this thread, or one that nobody does.
///
/// It stays on its thread, all of whose time is the store's; sampling ends when this is dropped, before the store does.
pub struct SampledStore<T: 'static> {
    /// Before the store, so that it is dropped first.
    pub(super) attached: Option<(Hold, Attachment)>,
    pub(super) store: Store<T>,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl<T: 'static> SampledStore<T> {
    /// A store that is not sampled.
    pub fn unsampled(store: Store<T>) -> Self {
        Self::new(None, store)
    }

    pub(super) fn new(attached: Option<(Hold, Attachment)>, store: Store<T>) -> Self {
        Self { attached, store, stays_on_its_thread: PhantomData }
    }
}

/// A store that a [`Session`](super::Session) samples on whatever thread it runs. That ends when the store goes, or another call
/// hook takes the place of the session's.
#[derive(Clone)]
pub struct AttachedStore(pub(super) Attachment);

impl AttachedStore {
    /// A future that says at each poll which thread runs the store. `future` is to run guests of no other store.
    ///
    /// Without it wasm is sampled all the same, and host code only while it is on the stack that wasm called it on.
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
