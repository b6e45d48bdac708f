//! A store that is sampled: how it says what it does, and which thread runs it.

use super::super::heap::{CountedHeap, listen, patch};
use super::super::os::clock::own_cpu_ns;
use super::super::os::own_thread::SignalBlocked;
use super::super::reading::{InstanceContext, LanguageWalk, Moment, Probe};
use super::super::shared::LoadedModule;
use super::slot::{RunningStore, ThreadSlot};
use super::store_name::NamedStore;
use super::store_state::StoreState;
use super::threads::Threads;
use crate::heap::Rate;
use std::borrow::Borrow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use wasmtime::{AsContextMut, CallHook, ExternType, Instance, Store, StoreContextMut};
use wlprof_module::ModuleImage;
use wlprof_plugin::{MemoryPatch, Program};
use wlprof_walk::{CodeMap, NativePc};

/// A call hook of the embedder's own.
pub(crate) type EmbeddersHook<T> =
    Box<dyn FnMut(StoreContextMut<'_, T>, CallHook) -> wasmtime::Result<()> + Send + Sync>;

/// A store that is sampled. That ends when the store goes, or another call hook takes the place of its own.
#[derive(Clone)]
pub(in crate::sampler) struct Attachment {
    threads: Arc<Threads>,
    store: Arc<StoreState>,
    name: Arc<NamedStore>,
    /// What says what has been instantiated, and until when that is known.
    seen: Arc<(Probe, Mutex<Moment>)>,
}

/// Belongs to the call hook, and so to the store.
struct Detach {
    threads: Arc<Threads>,
    store: Arc<StoreState>,
}

impl Detach {
    fn tell(&self, hook: CallHook, context: impl AsContextMut) {
        match hook {
            CallHook::CallingHost => self.store.calling_host(),
            CallHook::ReturningFromHost => self.store.returning_from_host(),
            CallHook::CallingWasm => self.store.calling_wasm(),
            CallHook::ReturningFromWasm => {
                self.store.returning_from_wasm();
                self.store.ends_allocator(context);
            }
        }
    }
}

impl Drop for Detach {
    fn drop(&mut self) {
        self.threads.detach(&self.store);
    }
}

impl Attachment {
    /// Has `store` tell `state` what it does, through its call hook, which calls `embedders` as well.
    pub(in crate::sampler) fn new<T: 'static>(
        threads: Arc<Threads>,
        state: Arc<StoreState>,
        name: Arc<NamedStore>,
        (probe, attached): (Probe, Moment),
        store: &mut Store<T>,
        embedders: Option<EmbeddersHook<T>>,
    ) -> Self {
        let hooked = Detach { threads: threads.clone(), store: state.clone() };
        match embedders {
            None => store.call_hook(move |context, hook| {
                hooked.tell(hook, context);
                Ok(())
            }),
            // It is the host's code: it runs outside of wasm, or within a call of the host. Where it refuses, what it was asked for
            // does not happen, and Wasmtime says nothing of its end either.
            Some(mut embedders) => store.call_hook(move |mut context, hook| match hook {
                CallHook::CallingWasm => {
                    embedders(context.as_context_mut(), hook)?;
                    hooked.tell(hook, context);
                    Ok(())
                }
                CallHook::CallingHost => {
                    hooked.tell(hook, &mut context);
                    let answer = embedders(context.as_context_mut(), hook);
                    answer.inspect_err(|_| hooked.tell(CallHook::ReturningFromHost, context))
                }
                CallHook::ReturningFromHost => {
                    let answer = embedders(context.as_context_mut(), hook);
                    hooked.tell(hook, context);
                    answer
                }
                CallHook::ReturningFromWasm => {
                    hooked.tell(hook, &mut context);
                    embedders(context, hook)
                }
            }),
        }
        Self { threads, store: state, name, seen: Arc::new((probe, Mutex::new(attached))) }
    }

    /// This thread runs the store until what this gives is dropped, on the same thread: host code is the store's, too. Its CPU time is
    /// counted though nobody may want samples.
    ///
    /// # Errors
    /// If this process may not do what sampling a thread takes.
    pub(in crate::sampler) fn hold(&self) -> wasmtime::Result<Hold> {
        let slot = self.threads.of_this_thread().ok_or_else(|| {
            let why = self.threads.failure().unwrap_or_else(|| "sampling is over".to_owned());
            wasmtime::format_err!("this thread cannot be sampled: {why}")
        })?;
        let hold = Hold::new(self.clone(), slot);
        let _no_signal = SignalBlocked::new();
        hold.slot.count_time_always(own_cpu_ns());
        Ok(hold)
    }

    /// Says something else of the store, in place of what was said by that name.
    pub(in crate::sampler) fn set_label(&self, name: &str, value: &str) {
        self.name.set_label(name, value);
    }

    /// Makes the slot of the calling thread, if it has none.
    pub(in crate::sampler) fn ready_thread(&self) {
        // A thread that cannot be sampled runs guests all the same.
        let _ = self.threads.of_this_thread();
    }

    /// A future that says at each poll which thread runs the store: `future` is to run nothing but this store's guests.
    pub(in crate::sampler) fn run<F: Future>(&self, future: F) -> SampledFuture<F> {
        SampledFuture { attachment: self.clone(), future: Box::pin(future) }
    }

    fn find<T: 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        image: &ModuleImage,
    ) -> wasmtime::Result<InstanceContext> {
        find_instance(store, instance, image, &self.threads.shared.code)
    }

    /// The core instances that were made in the store since this was asked, or since it was attached: those of components among them. What
    /// exports no function is left out.
    ///
    /// # Errors
    /// As for [`Probe::instances_since`].
    pub(in crate::sampler) fn new_instances<T: 'static>(
        &self,
        store: &mut Store<T>,
    ) -> wasmtime::Result<Vec<Instance>> {
        let (probe, until) = &*self.seen;
        let mut until = until.lock().unwrap_or_else(PoisonError::into_inner);
        let (instances, now) = probe.instances_since(store, *until)?;
        *until = now;
        Ok(instances)
    }

    /// Has the size of the first memory of `instance`, an instance of the module of `image`, be what the store is asked for, if it has
    /// none yet. An instance that exports no function is not found.
    pub(in crate::sampler) fn see_memory<T: 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        image: &ModuleImage,
    ) {
        if self.store.has_memory() {
            return;
        }
        let context = self.find(store, instance, image).ok();
        let memory = context.and_then(|context| context.memory(image.compiled_index_spaces(), 0));
        memory.into_iter().for_each(|memory| self.store.set_memory(memory));
    }

    /// Has `instance`, of the module of `image`, tell of a sample of what it allocates, if that was rewritten to do so.
    ///
    /// # Errors
    /// If it cannot be listened to.
    pub(in crate::sampler) fn listen_to_heap<T: 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        image: &ModuleImage,
        rate: Rate,
    ) -> wasmtime::Result<()> {
        let context = self.find(store, instance, image)?;
        let memory = context.memory(image.compiled_index_spaces(), 0);
        let memory = memory.ok_or_else(|| wasmtime::format_err!("it has no memory"))?;
        let mark = listen(&self.store, store, instance, memory, self.store.heap(rate).clone())?;
        self.store.set_allocator_mark(mark);
        Ok(())
    }

    /// Has the runtime of the guest's language count what the guest allocates, for which `patches` are to be written into the memory of
    /// `instance`, and read that from here on.
    ///
    /// # Errors
    /// If that cannot be.
    pub(in crate::sampler) fn have_runtime_count<T: 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        image: &ModuleImage,
        rate: Rate,
        patches: &[MemoryPatch],
    ) -> wasmtime::Result<()> {
        let context = self.find(store, instance, image)?;
        let memory = context.memory(image.compiled_index_spaces(), 0);
        let memory = memory.ok_or_else(|| wasmtime::format_err!("it has no memory"))?;
        // SAFETY: `store` is borrowed mutably for the whole call, so the store and its instances are alive.
        let (base, _) = unsafe { memory.read() };
        let heap = self.store.heap(rate);
        wasmtime::ensure!(heap.claim_for_runtime(), "another instance of its store is profiled already");
        patch(store, instance, base, patches)?;
        self.store.set_counted_heap(CountedHeap::new(heap.clone()));
        Ok(())
    }

    /// Has the growth of linear memory be profiled, and whatever else tells of the heap.
    pub(in crate::sampler) fn profile_heap(&self, rate: Rate) {
        self.store.heap(rate);
    }

    /// Linear memory is about to grow by so many bytes, by an instruction of the store's wasm that runs.
    pub(in crate::sampler) fn memory_grows(&self, bytes: u64) {
        self.store.memory_grows(bytes);
    }

    /// The store's wasm is at a check compiled into it, in a callback that is not the sampler's own.
    pub(in crate::sampler) fn reaches_check(&self) {
        self.store.calls_back();
    }

    /// The store is about to be suspended in the host call that this thread is in.
    pub(in crate::sampler) fn suspends(&self) {
        self.store.suspends();
    }

    /// Reads what the language's runtime has counted so far. To be called on the store's thread while none of its wasm runs.
    pub(in crate::sampler) fn read_heap(&self) {
        self.store.read_counted_heap();
    }

    /// Whether the stacks of a language are read.
    pub(in crate::sampler) fn has_language(&self) -> bool {
        self.store.has_language()
    }

    /// Lets a walker of `program` read the language's stacks of `instance`, an instance of `module`.
    ///
    /// # Errors
    /// If the instance cannot be found or looks otherwise than Wasmtime's API says.
    pub(in crate::sampler) fn walk_language<T: 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        module: Arc<LoadedModule>,
        program: Arc<dyn Program>,
    ) -> wasmtime::Result<()> {
        let context = self.find(store, instance, &module.image)?;
        // If the plugin has failed by now, its warnings say so.
        if let Some(walker) = program.walker() {
            self.store.set_language(LanguageWalk::new(module, program, walker, context));
        }
        Ok(())
    }
}

/// Keeps a store the one that a thread runs.
pub(in crate::sampler) struct Hold<A: Borrow<Attachment> = Attachment> {
    attachment: A,
    slot: Arc<ThreadSlot>,
    before: RunningStore,
}

impl<A: Borrow<Attachment>> Hold<A> {
    fn new(attachment: A, slot: Arc<ThreadSlot>) -> Self {
        let Attachment { threads, store, .. } = attachment.borrow();
        let before = threads.enter(&slot, Some(store.number), true);
        Self { attachment, slot, before }
    }
}

impl<A: Borrow<Attachment>> Drop for Hold<A> {
    fn drop(&mut self) {
        let Self { attachment, slot, before } = self;
        let Attachment { threads, store, .. } = (*attachment).borrow();
        let runs_it = std::ptr::eq(slot.current(), Arc::as_ptr(store));
        if runs_it || slot.current().is_null() {
            match before.store {
                // It may have gone meanwhile.
                Some(store) => threads.enter(slot, Some(store), before.is_told),
                None => slot.enter(std::ptr::null(), before.is_told),
            };
        }
    }
}

/// A future that runs guests of a store, on whatever thread polls it.
pub(in crate::sampler) struct SampledFuture<F> {
    attachment: Attachment,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for SampledFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { attachment, future } = &mut *self;
        // A thread that cannot be sampled runs guests all the same.
        let slot = attachment.threads.of_this_thread();
        let _hold = slot.map(|slot| Hold::new(&*attachment, slot));
        future.as_mut().poll(context)
    }
}

/// Finds an instance of the module of `image`, whose code is mapped, through one of its functions, and checks that its memory is where
/// Wasmtime says.
pub(in crate::sampler) fn find_instance<T: 'static>(
    store: &mut Store<T>,
    instance: &Instance,
    image: &ModuleImage,
    code: &CodeMap,
) -> wasmtime::Result<InstanceContext> {
    // An interpreter exports thousands of functions, of which the first will do.
    let module = instance.module(&*store).clone();
    let functions = module.exports().filter(|export| matches!(export.ty(), ExternType::Func(_)));
    let memory = image.first_memory_export().and_then(|name| instance.get_memory(&mut *store, name));
    // Of what it exports, some may be other instances'.
    let is_own = |start: usize| code.read().image(NativePc::Exact(start)).is_some_and(|of| std::ptr::eq(of, image));
    let mut contexts = functions.filter_map(|export| {
        let function = instance.get_func(&mut *store, export.name())?;
        InstanceContext::and_code_of(&mut *store, &function)
    });
    let context = contexts.find_map(|(context, start)| is_own(start).then_some(context));
    let context = context.ok_or_else(|| wasmtime::format_err!("the module exports no function of its own"))?;
    if let (Some(memory), Some(definition)) = (memory, context.memory(image.compiled_index_spaces(), 0)) {
        // SAFETY: `store` is borrowed mutably for the whole call, so the store and its instances are alive.
        let read = unsafe { definition.read() };
        let said = (memory.data_ptr(&*store) as usize, memory.data_size(&*store));
        if read != said {
            wasmtime::bail!("memory is {read:x?} by Wasmtime's internals and {said:x?} by its API");
        }
    }
    Ok(context)
}
