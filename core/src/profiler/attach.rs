//! Stores that are profiled.

use super::Profiler;
use crate::sampler::{AttachedStore, EmbeddersHook, HeldStore, LoadedModule, StoreName};
use wasmtime::{CallHook, Instance, Module, Store, StoreContextMut};
use wlprof_plugin::Walker;

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
    /// [`Snapshot::of_label`](super::Snapshot::of_label) picks them by it. Stores that have `request` and `status` are shown as one store where
    /// these are the same, as `wlprof serve` has it: there may be thousands.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.name.labels.push((name.into(), value.into()));
        self
    }

    /// The embedder's own call hook: a store has one, which is the profiler's, and that calls this. What it refuses does not happen, as
    /// in [`Store::call_hook`]. With the epoch sampler it is told of checks as well, which to Wasmtime are calls of the host: one that
    /// counts or refuses calls would count and refuse these.
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
    /// Where the store's data is, which is where nobody else's is as long as it lives.
    data: usize,
    profiler: Profiler,
}

impl Attached {
    pub(super) fn new<T>(attached: Option<AttachedStore>, store: &Store<T>, profiler: Profiler) -> Self {
        Self { store: attached, data: data_address(store), profiler }
    }

    /// Says something else of the store, as [`Attach::label`] does, in place of what was said by that name: what a request came to when it is
    /// answered, say. It holds for samples that have been taken, too, and may be said when the store has gone.
    pub fn set_label(&self, name: &str, value: &str) {
        self.store.iter().for_each(|store| store.set_label(name, value));
    }

    /// Has the stacks of the instance's language be read, and the size of its memory. To be called between instantiating and calling
    /// the guest; without it samples are of wasm's functions alone.
    ///
    /// # Errors
    /// If the module was not added to the profiler, or the store is another one than was attached.
    pub fn instantiated<T: 'static>(&self, store: &mut Store<T>, instance: &Instance) -> wasmtime::Result<()> {
        self.instance(store, instance, LoadedModule::walker_for_instance)
    }

    /// As [`Attached::instantiated`], of the only instance that its module has: the language's plugin need not be able to walk
    /// several at once. Of others, as long as this one is there, the language is not read.
    ///
    /// # Errors
    /// As for [`Attached::instantiated`].
    pub fn instantiated_alone<T: 'static>(&self, store: &mut Store<T>, instance: &Instance) -> wasmtime::Result<()> {
        self.instance(store, instance, LoadedModule::take_walker)
    }

    /// As [`Attached::instantiated`], of a component that has been instantiated in the store. An instance of nothing is made in the store, as
    /// when it was attached.
    ///
    /// # Errors
    /// If the store is another one than was attached.
    pub fn component_instantiated<T: 'static>(&self, store: &mut Store<T>) -> wasmtime::Result<()> {
        self.check(store)?;
        let Some(attached) = &self.store else { return Ok(()) };
        let loaded = |module: &Module| self.profiler.loaded(module);
        self.profiler.0.session.component_instantiated(attached, store, loaded);
        Ok(())
    }

    /// # Errors
    /// If the store is another one than was attached.
    fn check<T>(&self, store: &Store<T>) -> wasmtime::Result<()> {
        let is_same = data_address(store) == self.data;
        wasmtime::ensure!(is_same, "the instance is in another store than the one that was attached");
        Ok(())
    }

    fn instance<T: 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        walker: impl FnOnce(&LoadedModule) -> Option<Box<dyn Walker>>,
    ) -> wasmtime::Result<()> {
        self.check(store)?;
        let module = self.profiler.loaded(instance.module(&*store));
        let module = module.ok_or_else(|| {
            wasmtime::format_err!("the profiler does not know the instance's module: give it to `Profiler::add` first")
        })?;
        let Some(attached) = &self.store else { return Ok(()) };
        self.profiler.0.session.instantiated(attached, store, instance, module, walker);
        Ok(())
    }

    /// Counts linear memory as growing by so many bytes at the stack of the instruction that runs: to be called by the embedder's own
    /// [`ResourceLimiter::memory_growing`](wasmtime::ResourceLimiter::memory_growing), which Wasmtime asks first, where
    /// that allows it and `current` is not 0, for it is asked of new memories as well. Called elsewhere than on the thread that runs the store it counts bytes without
    /// a stack; where heaps are not profiled it does nothing.
    pub fn memory_grows(&self, bytes: u64) {
        self.store.iter().for_each(|store| store.memory_grows(bytes));
    }

    /// Reads what the guest has allocated so far where its language's runtime counts that itself (Go's), and is read now and then
    /// otherwise. To be called when none of the store's wasm runs, on the thread that ran it: before a store goes, say.
    pub fn read_heap<T: 'static>(&self, store: &mut Store<T>) {
        if data_address(store) == self.data {
            self.store.iter().for_each(AttachedStore::read_heap);
        }
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

    /// The calling thread runs the store until what this gives is dropped: host code on that thread counts as the store's, between its
    /// calls as well. Without it host code counts while it runs on the stack that wasm called it on.
    ///
    /// # Errors
    /// If the thread cannot be sampled.
    pub fn hold(&self) -> wasmtime::Result<Held> {
        Ok(Held { _store: self.store.as_ref().map(AttachedStore::hold).transpose()? })
    }

    /// Readies the calling thread for being sampled, which the first store that runs on it does otherwise: some milliseconds.
    pub fn ready_thread(&self) {
        self.store.iter().for_each(AttachedStore::ready_thread);
    }

    /// Samples the store at a check compiled into its wasm, if it is sampled at checks. Call this in an epoch callback of your own.
    pub fn reaches_check(&self) {
        self.store.iter().for_each(AttachedStore::reaches_check);
    }

    /// Reports that the store is about to be suspended in the host call that this thread is in.
    pub fn suspends(&self) {
        self.store.iter().for_each(AttachedStore::suspends);
    }

    /// Whether the store is sampled: see [`Builder::fraction`](super::Builder::fraction).
    pub fn is_sampled(&self) -> bool {
        self.store.is_some()
    }
}

fn data_address<T>(store: &Store<T>) -> usize {
    std::ptr::from_ref(store.data()).addr()
}

/// Keeps a store the one that a thread runs: see [`Attached::hold`].
pub struct Held {
    _store: Option<HeldStore>,
}
