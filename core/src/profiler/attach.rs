//! Stores that are profiled.

use super::Profiler;
use crate::sampler::{AttachedStore, EmbeddersHook, HeldStore, StoreName};
use wasmtime::{CallHook, Instance, Module, Store, StoreContextMut};

/// The name, the labels and the call hook of a store that is to be profiled.
///
/// ```no_run
/// use wlprof::{Attach, Profiler};
///
/// # fn attach(profiler: &Profiler, store: &mut wasmtime::Store<()>) -> wasmtime::Result<()> {
/// let attached = profiler.attach(store, Attach::named("request 42").label("tenant", "a"))?;
/// # Ok(())
/// # }
/// ```
pub struct Attach<T: 'static> {
    pub(super) name: StoreName,
    pub(super) hook: Option<EmbeddersHook<T>>,
}

impl<T: 'static> Attach<T> {
    /// Describes a store that profiles call `name`.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: StoreName { name: name.into(), labels: Vec::new() }, hook: None }
    }

    /// Adds a label, as in `label("tenant", "a")`.
    ///
    /// The store's samples have it among their labels, and [`Snapshot::of_label`](super::Snapshot::of_label) selects them by it. Stores
    /// with labels `request` and `status` are shown as one store where both are the same, as in `wlprof serve`: there may be thousands.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.name.labels.push((name.into(), value.into()));
        self
    }

    /// Sets the embedder's own call hook. A store has one hook, which is the profiler's, and that calls this one.
    ///
    /// What it refuses does not happen, as in [`Store::call_hook`]. With the epoch sampler it is also called for checks, which are host
    /// calls to Wasmtime. A hook that counts or refuses calls would count or refuse these.
    #[must_use]
    pub fn call_hook(
        self,
        hook: impl FnMut(StoreContextMut<'_, T>, CallHook) -> wasmtime::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { hook: Some(Box::new(hook)), ..self }
    }
}

/// A store that is profiled. Dropping this changes nothing: the store stays attached until it is dropped itself.
///
/// ```no_run
/// # fn attached(attached: &wlprof::StoreHandle, store: &mut wasmtime::Store<()>, instance: &wasmtime::Instance) -> wasmtime::Result<()> {
/// attached.instantiated(store, instance)?;
/// // The guest answers.
/// attached.set_label("status", "200");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StoreHandle {
    /// `None` of a store that is not among those that are sampled.
    store: Option<AttachedStore>,
    /// Where the store's data is, which is where nobody else's is as long as it lives.
    data: usize,
    profiler: Profiler,
}

impl StoreHandle {
    pub(super) fn new<T>(attached: Option<AttachedStore>, store: &Store<T>, profiler: Profiler) -> Self {
        Self { store: attached, data: data_address(store), profiler }
    }

    /// Sets a label of the store, in place of the one of that name: see [`Attach::label`].
    ///
    /// For example, a request gets its status when it is answered. The label holds also for samples that have been taken. It may be set
    /// when the store has gone.
    pub fn set_label(&self, name: &str, value: &str) {
        self.store.iter().for_each(|store| store.set_label(name, value));
    }

    /// Reads the stacks of the instance's language and the size of its memory from here on.
    ///
    /// Call this between instantiating and calling the guest. Without it, samples have only wasm's functions.
    ///
    /// # Errors
    /// If the module was not added to the profiler, or if the store is not the attached one.
    pub fn instantiated<T: 'static>(&self, store: &mut Store<T>, instance: &Instance) -> wasmtime::Result<()> {
        self.check(store)?;
        let module = self.profiler.loaded(instance.module(&*store));
        let module = module.ok_or_else(|| {
            wasmtime::format_err!("the profiler does not know the instance's module: give it to `Profiler::add` first")
        })?;
        let Some(attached) = &self.store else { return Ok(()) };
        self.profiler.0.session.instantiated(attached, store, instance, module);
        Ok(())
    }

    /// Does as [`StoreHandle::instantiated`], for a component that has been instantiated in the store.
    ///
    /// An empty instance is made in the store, as when it was attached.
    ///
    /// # Errors
    /// If the store is not the attached one.
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

    /// Counts linear memory as growing by `bytes`, at the stack of the instruction that runs.
    ///
    /// Call this in the embedder's own [`ResourceLimiter::memory_growing`](wasmtime::ResourceLimiter::memory_growing), which Wasmtime calls
    /// first. Call it only if that allows the growth and `current` is not 0, since Wasmtime asks for new memories as well.
    ///
    /// On another thread than the one that runs the store, it counts bytes without a stack. Where heaps are not profiled, it does nothing.
    pub fn memory_grows(&self, bytes: u64) {
        self.store.iter().for_each(|store| store.memory_grows(bytes));
    }

    /// Reads what the guest has allocated so far, where its language's runtime counts that itself (Go's).
    ///
    /// Otherwise it is read now and then. Call this when none of the store's wasm runs, on the thread that ran it: for example before the
    /// store is dropped.
    pub fn read_heap<T: 'static>(&self, store: &mut Store<T>) {
        if data_address(store) == self.data {
            self.store.iter().for_each(AttachedStore::read_heap);
        }
    }

    /// Wraps `future`, which runs guests only of this store. Each poll reports which thread runs it.
    ///
    /// Host code of the store can then be distinguished from its executor's. In this future, host code of other stores counts as this
    /// one's. Without the wrapper, wasm is sampled just as well.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let attached = self.store.clone();
        async move {
            match attached {
                Some(attached) => attached.run(future).await,
                None => future.await,
            }
        }
    }

    /// Makes the calling thread the one that runs the store, until the result is dropped.
    ///
    /// Host code on that thread counts as the store's, also between its calls. Without this, host code counts only while it runs on the
    /// stack on which wasm called it.
    ///
    /// # Errors
    /// If the thread cannot be sampled.
    pub fn hold(&self) -> wasmtime::Result<HoldGuard> {
        Ok(HoldGuard { _store: self.store.as_ref().map(AttachedStore::hold).transpose()? })
    }

    /// Readies the calling thread for sampling, which takes some milliseconds. Otherwise the first store that runs on it does so.
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

    /// Returns whether the store is sampled: see [`Builder::fraction`](super::Builder::fraction).
    pub fn is_sampled(&self) -> bool {
        self.store.is_some()
    }
}

fn data_address<T>(store: &Store<T>) -> usize {
    std::ptr::from_ref(store.data()).addr()
}

/// A guard that keeps a store the one that a thread runs: see [`StoreHandle::hold`].
///
/// ```no_run
/// # fn held(attached: &wlprof::StoreHandle) -> wasmtime::Result<()> {
/// let held = attached.hold()?;
/// // Host code here counts as the store's.
/// drop(held);
/// # Ok(())
/// # }
/// ```
pub struct HoldGuard {
    _store: Option<HeldStore>,
}
