//! Stores that are profiled.

use super::Profiler;
use crate::sampler::{AttachedStore, EmbeddersHook, StoreName};
use wasmtime::{CallHook, Instance, Store, StoreContextMut};

/// How a store is profiled.
pub struct Attach<T: 'static> {
    pub(super) name: StoreName,
    pub(super) hook: Option<EmbeddersHook<T>>,
}

impl<T: 'static> Attach<T> {
    /// A store that profiles call `name`.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: StoreName { name: name.into(), labels: Vec::new() }, hook: None }
    }

    /// What else there is to be said of it, as in `label("tenant", "a")`: its samples have it among their labels, and
    /// [`Snapshot::of_label`](super::Snapshot::of_label) picks them by it.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.name.labels.push((name.into(), value.into()));
        self
    }

    /// The embedder's own call hook: a store has one, which is the profiler's, and that calls this. What it refuses does not happen, as
    /// in [`Store::call_hook`].
    #[must_use]
    pub fn call_hook(
        self,
        hook: impl FnMut(StoreContextMut<'_, T>, CallHook) -> wasmtime::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { hook: Some(Box::new(hook)), ..self }
    }
}

/// A store that is profiled. Letting go of this changes nothing: the store stays attached until it is dropped.
#[derive(Clone)]
pub struct Attached {
    /// `None` of a store that is not among those that are sampled.
    store: Option<AttachedStore>,
    profiler: Profiler,
}

impl Attached {
    pub(super) fn new(store: Option<AttachedStore>, profiler: Profiler) -> Self {
        Self { store, profiler }
    }

    /// Has the stacks of the instance's language be read, and the size of its memory. To be called between instantiating and calling
    /// the guest; without it samples are of wasm's functions alone.
    ///
    /// # Errors
    /// If the module was not added to the profiler.
    pub fn instantiated<T: 'static>(&self, store: &mut Store<T>, instance: &Instance) -> wasmtime::Result<()> {
        let module = self.profiler.module_id(instance.module(&*store));
        let module = module.ok_or_else(|| {
            wasmtime::format_err!("the profiler does not know the instance's module: give it to `Profiler::add` first")
        })?;
        let Some(attached) = &self.store else { return Ok(()) };
        self.profiler.0.session.instantiated_in(attached, store, instance, module);
        Ok(())
    }

    /// Wraps `future`, which runs guests of this store and no other: each poll says which thread runs it. Host code of the store is
    /// then told from its executor's; what another store's host code does in it counts as this one's. Without it wasm is sampled just as well.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let attached = self.store.clone();
        async move {
            match attached {
                Some(attached) => attached.run(future).await,
                None => future.await,
            }
        }
    }

    /// Whether the store is sampled: see [`Builder::fraction`](super::Builder::fraction).
    pub fn is_sampled(&self) -> bool {
        self.store.is_some()
    }
}
