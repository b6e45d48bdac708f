//! A store whose thread is being sampled.

use super::session::{Attached, Session};
use crate::recording::ModuleId;
use std::marker::PhantomData;
use wasmtime::{AsContext, AsContextMut, Instance, Store, StoreContext, StoreContextMut};

/// A store that a [`Session`] samples, or one that nobody does.
///
/// It owns the store and stays on its thread, because the sampler reads both for as long as it is attached; sampling ends
/// when this is dropped, before the store does.
pub struct SampledStore<T: 'static> {
    /// Before the store, so that it is dropped first.
    attached: Option<Attached>,
    store: Store<T>,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl<T: 'static> SampledStore<T> {
    /// A store that is not sampled.
    pub fn unsampled(store: Store<T>) -> Self {
        Self { attached: None, store, stays_on_its_thread: PhantomData }
    }

    pub(super) fn new(attached: Attached, store: Store<T>) -> Self {
        Self { attached: Some(attached), store, stays_on_its_thread: PhantomData }
    }

    /// Lets the walker that `session` has for `module` read the stacks of `instance`, its instance. To be called between
    /// instantiating and calling the guest. A walker that cannot is left out, with a note; the profile has wasm frames
    /// then.
    pub fn instantiated(&mut self, session: &Session, instance: &Instance, module: ModuleId) {
        if let Some(attached) = &self.attached {
            session.instantiated(attached, &mut self.store, instance, module);
        }
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
