//! The profiler that programs embed. It samples any number of stores of an engine, on any threads, for as long as they run.
//!
//! ```no_run
//! # fn main() -> wasmtime::Result<()> {
//! use wlprof::{Attach, Profiler};
//!
//! let mut config = wasmtime::Config::new();
//! wlprof::configure(&mut config);
//! let engine = wasmtime::Engine::new(&config)?;
//! let profiler = Profiler::builder().start(&engine)?;
//!
//! let module = profiler.load("guest.wasm", &std::fs::read("guest.wasm")?)?;
//! let mut store = wasmtime::Store::new(&engine, ());
//! let attached = profiler.attach(&mut store, Attach::named("request 42"))?;
//! let instance = wasmtime::Linker::new(&engine).instantiate(&mut store, &module)?;
//! attached.instantiated(&mut store, &instance)?;
//! // Calls into the guest.
//! profiler.snapshot()?.save("profile.json")?;
//! # Ok(())
//! # }
//! ```
//!
//! docs/embedding.md continues from here.

mod attach;
mod builder;
mod naming;
mod open_window;
#[cfg(feature = "push")]
mod push;
mod share;

pub use attach::{Attach, HoldGuard, StoreHandle};
pub use builder::Builder;
pub use open_window::OpenWindow;
pub use wlprof_export::Snapshot;

use crate::heap;
use crate::machine_code::{Compiled, GuestCode, was_compiled_from};
pub use crate::sampler::configure;
use crate::sampler::{Activity, Dump, LoadedModule, Sampling, Session, SessionOutcome};
use naming::Naming;
use share::Share;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wasmtime::component::Component;
use wasmtime::{Engine, Module, Store, error::Context as _};
use wlprof_languages::{Choice, ModuleLanguage, choose, choose_each};
use wlprof_module::{ModuleImage, among, core_modules};
use wlprof_plugin::{Language, ModuleView as _, Program};
use wlprof_recording::{Clock, ModuleId};

/// Profiles guests of an engine.
///
/// Clones are the same profiler. It ends when the last of them, of its [`StoreHandle`] and of its [`OpenWindow`]s is dropped. Stores may
/// outlive it.
///
/// ```no_run
/// # fn main() -> wasmtime::Result<()> {
/// # let mut config = wasmtime::Config::new();
/// # wlprof::configure(&mut config);
/// # let engine = wasmtime::Engine::new(&config)?;
/// let profiler = wlprof::Profiler::builder().rate_hz(250.0).paused().start(&engine)?;
/// profiler.resume();
/// // The stores that are attached run.
/// profiler.pause();
/// profiler.snapshot()?.save("profile.json")?;
/// # Ok(())
/// # }
/// ```
///
/// # Accuracy
/// Wasm is charged to the store that runs it, on whatever thread. Host code counts as a store's while it runs on the stack on which wasm
/// called it, or in a poll of [`StoreHandle::run`].
///
/// # Overhead
/// While nothing is sampled ([`Profiler::pause`]), calls into the guest and out of it cost some nanoseconds more, for the call hook. A
/// sample stops its thread for some microseconds.
///
/// # Security
/// Snapshots show all that the profiler knows, including other stores' guests and names of host functions. [`Snapshot::of_label`] is what
/// the owner of some stores may see. The signal handler reads guests in place: see
/// [`SamplerKind::Signal`](crate::sampler::SamplerKind::Signal).
#[derive(Clone)]
pub struct Profiler(Arc<Inner>);

struct Inner {
    session: Arc<Session>,
    engine: Engine,
    languages: Vec<&'static dyn Language>,
    /// Which stores are sampled.
    share: Share,
    added: Mutex<Vec<AddedCode>>,
    /// Held while one is added.
    adding: Mutex<()>,
    /// Apart from the modules: naming takes its time, and stores come meanwhile.
    naming: Mutex<Naming>,
    /// Somebody wants samples: this profiler's owner.
    sampling: Mutex<Option<Sampling>>,
}

/// Code that was added.
struct AddedCode {
    code: Compiled,
    modules: Vec<Arc<LoadedModule>>,
}

impl AddedCode {
    /// Whether it is what is mapped there. That of a component's module is its component's.
    fn is_of(&self, image: &Range<*const u8>) -> bool {
        self.code.image_range() == *image
    }
}

impl Profiler {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(session: Session, engine: &Engine, languages: Vec<&'static dyn Language>, share: Share) -> Self {
        let (session, engine) = (Arc::new(session), engine.clone());
        let (added, adding) = (Mutex::default(), Mutex::default());
        let (naming, sampling) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { session, engine, languages, share, added, adding, naming, sampling }))
    }

    /// Compiles a module, which profiles call `name`, and adds it.
    ///
    /// `bytes` are the binary or the text format. Where heaps are profiled ([`Builder::heap`]) the module is rewritten before it is
    /// compiled. It then does the same, and reports its allocations.
    ///
    /// # Errors
    /// If the engine does not take the module, or as for [`Profiler::add`].
    pub fn load(&self, name: &str, bytes: &[u8]) -> wasmtime::Result<Module> {
        let binary = wat::parse_bytes(bytes)?;
        let mut image = read(name, &binary)?;
        let own_name = image.name().to_owned();
        let chosen = choose(&Choice::Auto, &self.0.languages, &image)?;
        let rewritten = self.0.session.heap_rate().and_then(|rate| {
            // What the language's runtime counts itself is read, and its functions are left as they are.
            let program = chosen.program.as_deref();
            let counts_itself = program.is_some_and(|program| !program.switch_heap_profiler_on(rate.get()).is_empty());
            (!counts_itself).then(|| heap::compile(&self.0.engine, &mut image, &[], program))
        });
        let module = match rewritten {
            Some(Ok(rewritten)) => self.with_notes(&own_name, rewritten),
            Some(Err(reason)) => self.not_rewritten(&own_name, &reason, Module::from_binary(&self.0.engine, &binary)?),
            None => Module::from_binary(&self.0.engine, &binary)?,
        };
        self.add_chosen(&module, &GuestCode::of_module(module.clone(), Arc::new(image)), chosen);
        Ok(module)
    }

    /// Compiles a component and adds it.
    ///
    /// Profiles call its modules by their own names, by the component's, or else by `name`. `bytes` are the binary or the text format.
    /// Where heaps are profiled ([`Builder::heap`]) one of the modules is rewritten, as for [`Profiler::load`].
    ///
    /// # Errors
    /// If the engine does not take the component, or if it is of another engine.
    pub fn load_component(&self, name: &str, bytes: &[u8]) -> wasmtime::Result<Component> {
        let binary = wat::parse_bytes(bytes)?;
        let mut modules = core_modules(&binary, name).with_context(|| format!("{name} cannot be read"))?;
        let views: Vec<_> = (0..modules.len()).filter_map(|number| among(&modules, number)).collect();
        let chosen = choose_each(&Choice::Auto, &self.0.languages, name, &views)?;
        let is_heap_profiled = self.0.session.heap_rate().is_some();
        let rewritten = is_heap_profiled.then(|| heap::compile_component(&self.0.engine, &binary, &mut modules, &[]));
        let component = match rewritten {
            Some(Ok(rewritten)) => self.with_notes(name, rewritten),
            Some(Err(reason)) => self.not_rewritten(name, &reason, Component::from_binary(&self.0.engine, &binary)?),
            None => Component::from_binary(&self.0.engine, &binary)?,
        };
        let images = modules.into_iter().map(Arc::new).collect();
        self.load_code(&GuestCode { compiled: Compiled::Component(component.clone()), images }, chosen.programs);
        chosen.notes.into_iter().for_each(|note| self.0.session.note(note));
        self.let_go_of_names();
        Ok(component)
    }

    /// Removes a component, as [`Profiler::remove`] does a module.
    pub fn remove_component(&self, component: &Component) {
        self.remove_code(&component.image_range());
    }

    /// What was compiled for its heap to be profiled, with notes of what will be missed.
    fn with_notes<C>(&self, name: &str, (compiled, missed): (C, Vec<String>)) -> C {
        missed.into_iter().for_each(|note| self.0.session.note(format!("{name}: {note}")));
        compiled
    }

    /// What was compiled as it is, with a note why its heap is not profiled.
    fn not_rewritten<C>(&self, name: &str, reason: &str, compiled: C) -> C {
        self.0.session.note(format!("what {name} allocates is not profiled: {reason}"));
        compiled
    }

    /// Adds a module that was compiled or deserialized elsewhere, from `binary`.
    ///
    /// Call this before its code runs. Time in modules and components that are not added counts as their store's host time, without frames.
    ///
    /// # Errors
    /// If `binary` cannot be read, if the module was not compiled from it, or if it is of another engine.
    pub fn add(&self, module: &Module, name: &str, binary: &[u8]) -> wasmtime::Result<()> {
        let code = GuestCode::of_module(module.clone(), Arc::new(read(name, binary)?));
        self.check(&code)?;
        let chosen = choose(&Choice::Auto, &self.0.languages, &*code.images[0])?;
        self.add_chosen(module, &code, chosen);
        Ok(())
    }

    fn add_chosen(&self, module: &Module, code: &GuestCode, chosen: ModuleLanguage) {
        let is_known = self.loaded(module).is_some();
        self.load_code(code, vec![chosen.program]);
        if !is_known {
            chosen.notes.into_iter().for_each(|note| self.0.session.note(note));
        }
        self.let_go_of_names();
    }

    /// Adds a module as [`Profiler::add`] does. Its bytes have been read already, and `program` is what its language knows of it.
    ///
    /// Returns its id in recordings. Another module may get the id when this one has been removed.
    ///
    /// # Errors
    /// If the module was not compiled from `image`, or is of another engine.
    pub fn add_read(
        &self,
        module: &Module,
        image: &Arc<ModuleImage>,
        program: Option<Arc<dyn Program>>,
    ) -> wasmtime::Result<ModuleId> {
        let code = GuestCode::of_module(module.clone(), image.clone());
        self.check(&code)?;
        Ok(self.load_code(&code, vec![program])[0].id)
    }

    /// # Errors
    /// If the code was not compiled from its images, or is of another engine.
    fn check(&self, code: &GuestCode) -> wasmtime::Result<()> {
        let name = code.images.first().map_or("the component", |image| image.name());
        wasmtime::ensure!(
            Engine::same(code.compiled.engine(), &self.0.engine),
            "{name} is of another engine than the one that the profiler was started for"
        );
        wasmtime::ensure!(was_compiled_from(code), "{name}: the module was compiled from other bytes than these");
        Ok(())
    }

    /// Adds code that the caller has just compiled from its images.
    ///
    /// Leaves out the check of [`Profiler::add_read`], which takes 17 ms for CPython. `programs` are what languages know of its modules, in
    /// the order of these.
    pub fn add_compiled(&self, code: &GuestCode, programs: Vec<Option<Arc<dyn Program>>>) {
        self.load_code(code, programs);
    }

    fn load_code(&self, code: &GuestCode, programs: Vec<Option<Arc<dyn Program>>>) -> Vec<Arc<LoadedModule>> {
        // One at a time, so that none is added twice. Whoever looks for another one meanwhile does not wait.
        let _adding = self.0.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let image = code.compiled.image_range();
        let known = self.added().iter().find(|added| added.is_of(&image)).map(|added| added.modules.clone());
        known.unwrap_or_else(|| {
            let modules = self.0.session.load(code, programs);
            self.added().push(AddedCode { code: code.compiled.clone(), modules: modules.clone() });
            modules
        })
    }

    /// Removes a module that was added, however often. A module that was not added is ignored.
    ///
    /// Call this when no store has an instance of it any more. If code of it runs all the same, it has no frames.
    ///
    /// The code goes soon. Its name and debug information go when no kept sample is of it, and no window is open that began before. They go
    /// with the next module that comes or goes, or with the next snapshot.
    pub fn remove(&self, module: &Module) {
        self.remove_code(&module.image_range());
    }

    fn remove_code(&self, image: &Range<*const u8>) {
        let mut added = self.added();
        let found = added.iter().position(|added| added.is_of(image));
        let removed = found.map(|index| added.swap_remove(index));
        drop(added);
        let removed = removed.iter().flat_map(|removed| &removed.modules);
        removed.for_each(|module| self.0.session.unload(module.id));
        self.let_go_of_names();
    }

    /// Drops what was there to name frames of modules that have gone.
    fn let_go_of_names(&self) {
        // Whoever makes a snapshot now does so when it is made.
        if let Ok(mut naming) = self.0.naming.try_lock() {
            naming.follow(&self.0.session);
        }
    }

    /// A module that was added, alone or in a component. Itself and not its id, which may be another's by the time that it is used.
    fn loaded(&self, module: &Module) -> Option<Arc<LoadedModule>> {
        let image = module.image_range();
        let added = self.added();
        let added = added.iter().find(|added| added.is_of(&image))?;
        let number = match &added.code {
            Compiled::Module(_) => 0,
            // One without functions has nothing by which to know its number, and nothing to sample.
            Compiled::Component(_) => module.functions().next()?.module.as_u32(),
        };
        added.modules.get(number as usize).cloned()
    }

    /// Samples `store` from here on, on all threads that it runs on, until it is dropped or gets another call hook.
    ///
    /// Call this before anything is instantiated in the store. An empty instance is made in it, which counts where the embedder limits
    /// instances. A store has one profiler: the last that it was attached to, with the last name and labels.
    ///
    /// # Errors
    /// If the store is of another engine, or has no room for that instance. Also if the store is configured for async already
    /// (`limiter_async`, yields of epochs or fuel). It may be configured so afterwards.
    pub fn attach<T: 'static>(&self, store: &mut Store<T>, attach: Attach<T>) -> wasmtime::Result<StoreHandle> {
        let Attach { name, hook } = attach;
        let is_same = Engine::same(&self.0.engine, store.engine());
        wasmtime::ensure!(is_same, "the store is of another engine than the one that the profiler was started for");
        if !self.0.share.next() {
            if let Some(hook) = hook {
                store.call_hook(hook);
            }
            self.0.session.leave_out(store);
            return Ok(StoreHandle::new(None, store, self.clone()));
        }
        let attached = self.0.session.attach(store, name, hook)?;
        Ok(StoreHandle::new(Some(attached), store, self.clone()))
    }

    /// Takes samples from here on, if it does not already.
    pub fn resume(&self) {
        let mut sampling = self.sampling();
        if sampling.is_none() {
            *sampling = self.0.session.sample();
        }
    }

    /// Takes no samples from here on, except for open windows.
    ///
    /// A profiler that samples from first to last ([`SamplerOptions::on_demand`](crate::sampler::SamplerOptions::on_demand)) goes on.
    pub fn pause(&self) {
        *self.sampling() = None;
    }

    /// Returns all samples that are kept ([`Builder::keep`]), by now.
    ///
    /// # Errors
    /// If no guest has begun, or sampling is over.
    pub fn snapshot(&self) -> wasmtime::Result<Snapshot> {
        self.last(Duration::MAX)
    }

    /// Returns the samples of the time `past` until now, or of somewhat more, as far as they are kept.
    ///
    /// # Errors
    /// As for [`Profiler::snapshot`].
    pub fn last(&self, past: Duration) -> wasmtime::Result<Snapshot> {
        self.open(|session| session.last(past))?.snapshot()
    }

    /// Opens a window, which is sampled even if the profiler is paused.
    ///
    /// # Errors
    /// As for [`Profiler::snapshot`].
    pub fn window(&self) -> wasmtime::Result<OpenWindow> {
        self.open(|session| session.window(session.clock()))
    }

    /// Opens a window as [`Profiler::window`] does, with samples that stand for time of `clock`.
    ///
    /// [`Clock::Wall`] needs a profiler whose own clock is that, or one that samples on demand. Otherwise the recording of the whole run
    /// would have waits that nobody asked for.
    ///
    /// # Errors
    /// As for [`Profiler::snapshot`], or if waits cannot be sampled.
    pub fn window_of(&self, clock: Clock) -> wasmtime::Result<OpenWindow> {
        self.open(|session| session.window(clock))
    }

    /// Returns whether a guest has begun, so that windows can be opened.
    pub fn has_begun(&self) -> bool {
        self.0.session.has_begun()
    }

    fn open(
        &self,
        open: impl FnOnce(&Arc<Session>) -> Result<crate::sampler::Window, String>,
    ) -> wasmtime::Result<OpenWindow> {
        let window = open(&self.0.session).map_err(wasmtime::Error::msg)?;
        Ok(OpenWindow::new(window, self.clone()))
    }

    /// Returns what the guests of the sampled stores ([`Builder::fraction`]) have done so far, in samples or not.
    ///
    /// All is zero before a guest has begun.
    pub fn activity(&self) -> Option<Activity> {
        self.0.session.activity()
    }

    /// Reads all stacks of the running guests: the threads of their languages, or the wasm stacks.
    ///
    /// A guest stands still for about a microsecond per thread, and for one or two milliseconds more.
    ///
    /// # Errors
    /// The reason, in words for the user.
    pub fn dump(&self) -> Result<Dump, String> {
        self.0.session.dump()
    }

    /// Halts all guests where they stand, for good: their threads never return to the embedder.
    ///
    /// This is for programs that are about to end and want no more output from them.
    pub fn halt_guests(&self) {
        self.0.session.halt_guest();
    }

    /// Adds a note for the user to profiles.
    pub fn note(&self, note: impl Into<String>) {
        self.0.session.note(note.into());
    }

    /// Stops sampling and returns what was recorded into the journal ([`Builder::journal`]).
    ///
    /// Call this once. The guests may still be running; their samples end here.
    pub fn finish(&self) -> SessionOutcome {
        self.0.session.finish()
    }

    fn added(&self) -> MutexGuard<'_, Vec<AddedCode>> {
        self.0.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sampling(&self) -> MutexGuard<'_, Option<Sampling>> {
        self.0.sampling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a module called `name`.
fn read(name: &str, binary: &[u8]) -> wasmtime::Result<ModuleImage> {
    ModuleImage::parse(binary.to_vec(), name).with_context(|| format!("{name} cannot be read"))
}

#[cfg(test)]
mod tests;
