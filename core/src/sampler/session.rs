//! One profiling session: options in, an unsymbolized recording out.

use super::Report;
use super::at_work::Sampler;
use super::options::{SamplerKind, SamplerOptions};
use super::running::{Attachment, EmbeddersHook, StoreName};
use super::shared::{HeldIds, LoadedModule, Shared};
use super::store::AttachedStore;
use crate::heap::Rate;
use crate::machine_code::GuestCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wasmtime::{Engine, Instance, Store};
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, Program};
use wlprof_recording::{Journal, Meta, ModuleId, Recorder, TickCounts};
use wlprof_walk::Dump;

/// What languages know of modules, by their ids.
type Programs = Vec<Option<Arc<dyn Program>>>;

/// What a recording calls a run.
#[derive(Clone, Debug, Default)]
pub struct RunName {
    /// The guest, as the user named it.
    pub guest: String,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
}

/// Guests being profiled: what a [`Profiler`](crate::Profiler) works with. Made before they run, attached to their stores, finished
/// from any thread.
pub(crate) struct Session {
    pub(super) shared: Arc<Shared>,
    /// `None` until the first store is attached.
    sampler: Mutex<Option<Arc<Sampler>>>,
    notes: Mutex<Vec<String>>,
    /// What was known at the beginning.
    meta: Meta,
}

/// A session that is not finished stops sampling when it goes.
impl Drop for Session {
    fn drop(&mut self) {
        if let Some(sampler) = self.started().take() {
            sampler.stop();
        }
    }
}

/// What a session leaves: a recording without symbols.
pub struct SessionOutcome {
    /// Frames, stacks and samples.
    pub recorder: Recorder,
    /// How they came about.
    pub meta: Meta,
    /// What became of every tick.
    pub ticks: TickCounts,
    /// What the language of each module that has one knows of it.
    pub programs: Vec<Option<Arc<dyn Program>>>,
}

impl Session {
    /// Prepares to sample guests, and to write what is sampled into `journal` as it comes.
    pub(crate) fn new(journal: Journal, run: RunName, options: SamplerOptions) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let meta = Meta {
            wlprof_version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            guest: run.guest,
            arguments: run.arguments,
            start_unix_ms: started.map_or(0, |since| since.as_millis() as u64),
            sampler: if options.kind == SamplerKind::Epoch { "epoch" } else { "signal" }.to_owned(),
            clock: options.clock,
            requested_hz: options.rate_hz,
            allowed_hz: options.rate_hz,
            ..Meta::default()
        };
        let shared = Shared::new(options, Recorder::new(Vec::new(), meta.clone(), journal));
        Self::with(shared, meta)
    }

    /// A session of what is loaded already.
    #[cfg(test)]
    pub(super) fn of(shared: Shared) -> Self {
        Self::with(shared, Meta::default())
    }

    fn with(shared: Shared, meta: Meta) -> Self {
        Self { shared: Arc::new(shared), sampler: Mutex::default(), notes: Mutex::default(), meta }
    }

    /// Adds code, to be called before it runs, and gives its modules. `programs` are what their languages know of them, in their order.
    pub(crate) fn load(&self, guest: &GuestCode, programs: Programs) -> Vec<Arc<LoadedModule>> {
        self.shared.load(guest, programs)
    }

    /// How often what guests allocate is sampled, if it is.
    pub(crate) fn heap_rate(&self) -> Option<Rate> {
        self.shared.options.heap
    }

    /// Lets go of a module that nothing runs any more, once what was sampled of it has been recorded: of its code then, and of its
    /// names when no sample that is kept is of it. Another module may have its id then.
    pub(crate) fn unload(&self, module: ModuleId) {
        if !self.shared.unloading.ask(module) {
            return self.shared.remove_unnamed(&[module]);
        }
        if let Some(sampler) = &*self.started() {
            sampler.threads().wake_drain();
        }
    }

    /// Has all modules keep their ids until what this gives is dropped: see [`Shared::hold_ids`].
    pub(crate) fn hold_ids(&self) -> HeldIds<'_> {
        self.shared.hold_ids()
    }

    /// What was loaded, by the modules' ids, and what languages know of it. In place of a module that has gone there is one with nothing in
    /// it.
    pub(crate) fn images_and_programs(&self) -> (Vec<Arc<ModuleImage>>, Programs) {
        self.shared.modules().iter().map(|module| (module.image.clone(), module.program.clone())).unzip()
    }

    /// The ids of the modules that work on the memory of the one of that id.
    pub(crate) fn siblings(&self, id: usize) -> Vec<usize> {
        let siblings = self.shared.modules().get(id).map(|module| module.siblings()).unwrap_or_default();
        siblings.into_iter().map(|sibling| sibling.id as usize).collect()
    }

    /// Samples `store`, on whatever threads run it: an async store, or one of several that threads run. To be called before
    /// anything is instantiated in it. Replaces the store's call hook by one that calls `hook` as well, and with the epoch sampler its epoch
    /// callback. [`SamplerKind::Auto`] stands for the signal sampler here: see [`SamplerKind::resolve`].
    ///
    /// # Errors
    /// If the sampler does not work here.
    pub(crate) fn attach<T: 'static>(
        &self,
        store: &mut Store<T>,
        name: StoreName,
        hook: Option<EmbeddersHook<T>>,
    ) -> wasmtime::Result<AttachedStore> {
        Ok(AttachedStore(self.sampler(store.engine())?.attach(store, name, hook)?))
    }

    /// Readies the session for stores of `engine`, which attaching the first one does otherwise.
    ///
    /// # Errors
    /// If the sampler does not work here.
    pub(crate) fn start(&self, engine: &Engine) -> wasmtime::Result<()> {
        self.sampler(engine).map(|_| ())
    }

    /// The sampler. Started for `engine`, the only one that it samples stores of, when the first store comes.
    fn sampler(&self, engine: &Engine) -> wasmtime::Result<Arc<Sampler>> {
        let mut started = self.started();
        if let Some(sampler) = &*started {
            return Ok(sampler.clone());
        }
        let sampler = Arc::new(Sampler::start(&self.shared, engine)?);
        *started = Some(sampler.clone());
        Ok(sampler)
    }

    /// `store` is not sampled, but may be of an engine whose guests have checks for the sampler.
    pub(crate) fn leave_out<T: 'static>(&self, store: &mut Store<T>) {
        if self.shared.options.kind == SamplerKind::Epoch {
            super::transport::epoch::let_run(store);
        }
    }

    /// Lets a walker of `module` read the stacks of `instance`, its instance in `store`. Call it between instantiating and calling the guest.
    /// A walker that cannot is left out, with a note; the profile has wasm frames then.
    pub(crate) fn instantiated<T: 'static>(
        &self,
        AttachedStore(attachment): &AttachedStore,
        store: &mut Store<T>,
        instance: &Instance,
        module: Arc<LoadedModule>,
    ) {
        attachment.see_memory(store, instance, &module.image);
        self.heap_rate().into_iter().for_each(|rate| attachment.profile_heap(rate));
        self.listen_to_heap(attachment, store, instance, &module);
        if module.has_language {
            self.walk_language(attachment, store, instance, module);
        }
    }

    /// Hears what an instance allocates, if its module was rewritten to tell.
    fn listen_to_heap<T: 'static>(
        &self,
        attachment: &Attachment,
        store: &mut Store<T>,
        instance: &Instance,
        module: &LoadedModule,
    ) {
        if let Some(rate) = self.heap_rate()
            && module.image.is_rewritten()
            && let Err(error) = attachment.listen_to_heap(store, instance, &module.image, rate)
        {
            self.note(format!("what {} allocates is not profiled: {error:#}", module.image.name()));
        }
    }

    fn walk_language<T: 'static>(
        &self,
        attachment: &Attachment,
        store: &mut Store<T>,
        instance: &Instance,
        module: Arc<LoadedModule>,
    ) {
        let Some(program) = module.program.clone() else { return };
        let patches = self.heap_rate().map_or_else(Vec::new, |rate| program.switch_heap_profiler_on(rate.get()));
        if let Err(error) = attachment.walk_language(store, instance, module.clone(), program) {
            return self.note(format!("the language's own stacks cannot be read ({error:#}); frames are wasm's"));
        }
        if let Some(rate) = self.heap_rate().filter(|_| !patches.is_empty())
            && let Err(error) = attachment.have_runtime_count(store, instance, &module.image, rate, &patches)
        {
            self.note(format!("what {} allocates is not profiled: {error:#}", module.image.name()));
        }
    }

    /// As [`Session::instantiated`], of a component that has been instantiated in the store. The memory whose size is seen is the first of its
    /// core instances' that has one. `loaded` gives what was loaded of their modules.
    pub(crate) fn component_instantiated<T: 'static>(
        &self,
        AttachedStore(attachment): &AttachedStore,
        store: &mut Store<T>,
        loaded: impl Fn(&wasmtime::Module) -> Option<Arc<LoadedModule>>,
    ) {
        self.heap_rate().into_iter().for_each(|rate| attachment.profile_heap(rate));
        let instances = match attachment.new_instances(store) {
            Ok(instances) => instances,
            Err(error) => return self.note(format!("the component's instances cannot be found ({error:#})")),
        };
        let loaded = |instance: &Instance| loaded(instance.module(&*store));
        let instances: Vec<_> = instances.iter().filter_map(|instance| Some((*instance, loaded(instance)?))).collect();
        for (instance, module) in &instances {
            attachment.see_memory(store, instance, &module.image);
            self.listen_to_heap(attachment, store, instance, module);
            if !module.has_language {
                continue;
            }
            let name = module.image.name();
            let is_of = |(_, other): &&(Instance, Arc<LoadedModule>)| Arc::ptr_eq(other, module);
            if instances.iter().filter(is_of).count() > 1 {
                self.note(format!(
                    "the component has several instances of {name}, whose functions do not tell which they run in: its language's \
                     own stacks are not read"
                ));
            } else if attachment.has_language() {
                self.note(format!(
                    "a store has one language whose own stacks are read, in the first instance of its module: those of {name} are \
                     not, or as if they were the first's"
                ));
            } else {
                self.walk_language(attachment, store, instance, module.clone());
            }
        }
    }

    /// What records.
    #[cfg(test)]
    pub(crate) fn shared_recorder(&self) -> MutexGuard<'_, Recorder> {
        self.shared.recorder()
    }

    /// What was known at the beginning, with the notes so far.
    pub(super) fn meta_so_far(&self) -> Meta {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Meta { notes, ..self.meta.clone() }
    }

    pub(super) fn started(&self) -> MutexGuard<'_, Option<Arc<Sampler>>> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a note for the user, if it has not been added before, and there are not too many: each module that comes may have its own.
    pub(crate) fn note(&self, note: String) {
        const MAX_NOTES: usize = 100;
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.contains(&note) || notes.len() > MAX_NOTES {
            return;
        }
        let is_last = notes.len() == MAX_NOTES;
        notes.push(if is_last { "there is more to be said, which is left out".to_owned() } else { note });
    }

    /// Halts all guests where they stand, for good: their threads never return to the embedder. For a program that is about to end
    /// and wants no more output from them.
    pub(crate) fn halt_guest(&self) {
        let started = self.started().clone();
        if let Some(started) = started {
            started.halt_guest();
        }
    }

    /// Reads all stacks of the running guests: their languages' threads, or the wasm stacks. A guest stands still for about a
    /// microsecond a thread, and for one or two milliseconds more.
    ///
    /// # Errors
    /// Why it cannot be done, in words for the user.
    pub(crate) fn dump(&self) -> Result<Dump, String> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let since = Instant::now();
        loop {
            let started = self.started().clone();
            match started {
                Some(started) => return started.dump(),
                None if since.elapsed() > PATIENCE => return Err("the guest has not started".to_owned()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Stops sampling and gives what was recorded. The guest may still be running: its samples end here.
    pub(crate) fn finish(&self) -> SessionOutcome {
        let started = self.started().clone();
        let (name, report) = match &started {
            Some(sampler) => (sampler.name(), sampler.stop()),
            None => ("none", Report::default()),
        };
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        notes.extend(report.notes);
        let meta = Meta {
            duration_ns: report.duration_ns,
            cpu_ns: report.cpu_ns,
            sampling_ns: report.sampling_ns,
            unsampled_ns: report.unsampled_ns,
            sampler: name.to_owned(),
            allowed_hz: report.allowed_hz,
            pause: report.pause,
            notes,
            ..self.meta.clone()
        };
        let (_, programs) = self.images_and_programs();
        self.shared.remove_unnamed(&self.shared.unloading.take_last());
        SessionOutcome { recorder: std::mem::take(&mut *self.shared.recorder()), meta, ticks: report.ticks, programs }
    }
}
