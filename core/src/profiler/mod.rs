//! The profiler that programs embed: any number of stores of an engine, on any threads, for as long as they run.
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
//! docs/embedding.md goes on from there.

mod attach;
mod builder;
mod naming;
mod share;
mod snapshot;

pub use attach::{Attach, Attached, Held};
pub use builder::Builder;
pub use snapshot::{OpenWindow, Snapshot};

use crate::heap;
use crate::languages::{Choice, Chosen, choose, choose_each};
use crate::machine_code::{Compiled, GuestCode, was_compiled_from};
pub use crate::sampler::configure;
use crate::sampler::{Activity, Dump, Finished, LoadedModule, Sampling, Session};
use naming::Naming;
use share::Share;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wasmtime::component::Component;
use wasmtime::{Engine, Module, Store, error::Context as _};
use wlprof_module::{ModuleImage, among, core_modules};
use wlprof_plugin::{Language, ModuleView as _, Walker};
use wlprof_recording::{Clock, ModuleId};

/// Profiles guests of an engine. Clones are the same profiler: it ends when the last of them, of its [`Attached`] and of its
/// [`OpenWindow`]s goes, and stores may outlive it.
///
/// # Accuracy
/// Wasm is charged to the store that runs it, on whatever thread. Host code counts as a store's while it runs on the stack that wasm
/// called it on, or in a poll of [`Attached::run`].
///
/// # Overhead
/// While nothing is sampled ([`Profiler::pause`]) a store's calls of the host and into the guest cost some nanoseconds more, for the
/// call hook. A sample stops its thread for some microseconds.
///
/// # Security
/// Snapshots show all that the profiler knows: other stores' guests, names of host functions. [`Snapshot::of_label`] is what the owner of
/// some stores may see. The signal handler reads guests where
/// they stand: see [`SamplerKind::Signal`](crate::sampler::SamplerKind::Signal).
#[derive(Clone)]
pub struct Profiler(Arc<Inner>);

struct Inner {
    session: Arc<Session>,
    engine: Engine,
    languages: Vec<&'static dyn Language>,
    /// Which stores are sampled.
    share: Share,
    added: Mutex<Vec<Added>>,
    /// Held while one is added.
    adding: Mutex<()>,
    /// Apart from the modules: naming takes its time, and stores come meanwhile.
    naming: Mutex<Naming>,
    /// Somebody wants samples: this profiler's owner.
    sampling: Mutex<Option<Sampling>>,
}

/// Code that was added.
struct Added {
    code: Compiled,
    modules: Vec<Arc<LoadedModule>>,
}

impl Added {
    /// Whether it is what is mapped there. That of a component's module is its component's.
    fn is_of(&self, image: &Range<*const u8>) -> bool {
        self.code.image_range() == *image
    }
}

impl Profiler {
    /// What a profiler is to be like.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(session: Session, engine: &Engine, languages: Vec<&'static dyn Language>, share: Share) -> Self {
        let (session, engine) = (Arc::new(session), engine.clone());
        let (added, adding) = (Mutex::default(), Mutex::default());
        let (naming, sampling) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { session, engine, languages, share, added, adding, naming, sampling }))
    }

    /// Compiles a module, called `name` in profiles, and adds it. `bytes` are the binary or the text format. Where heaps are profiled
    /// ([`Builder::heap`]) what is compiled is another module, which does the same and tells of what it allocates.
    ///
    /// # Errors
    /// If it is no module that the engine takes, or as for [`Profiler::add`].
    pub fn load(&self, name: &str, bytes: &[u8]) -> wasmtime::Result<Module> {
        let binary = wat::parse_bytes(bytes)?;
        let mut image = read(name, &binary)?;
        let own_name = image.name().to_owned();
        let chosen = choose(&Choice::Auto, &self.0.languages, &image)?;
        let rewritten = self.0.session.heap_rate().and_then(|rate| {
            // What the language's runtime counts itself is read, and its functions are left as they are.
            let walker = chosen.walker.as_ref();
            let counts_itself = walker.is_some_and(|walker| !walker.switch_heap_profiler_on(rate.get()).is_empty());
            (!counts_itself).then(|| heap::compile(&self.0.engine, &mut image, &[], chosen.walker.as_deref()))
        });
        let module = match rewritten {
            Some(Ok(rewritten)) => self.with_notes(&own_name, rewritten),
            Some(Err(reason)) => self.not_rewritten(&own_name, &reason, Module::from_binary(&self.0.engine, &binary)?),
            None => Module::from_binary(&self.0.engine, &binary)?,
        };
        self.add_chosen(&module, &GuestCode::of_module(module.clone(), Arc::new(image)), chosen);
        Ok(module)
    }

    /// Compiles a component, whose modules profiles call as they, or it, calls them, or else by `name`, and adds it. `bytes` are the binary or
    /// the text format. Where heaps are profiled ([`Builder::heap`]) one of its modules is another, as for [`Profiler::load`].
    ///
    /// # Errors
    /// If it is no component that the engine takes, or is of another engine.
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
        self.load_code(&GuestCode { compiled: Compiled::Component(component.clone()), images }, chosen.walkers);
        chosen.notes.into_iter().for_each(|note| self.0.session.note(note));
        self.let_go_of_names();
        Ok(component)
    }

    /// As [`Profiler::remove`], of a component.
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

    /// Adds a module that was compiled, or deserialized, elsewhere: `binary` is what it was compiled from. To be called before its
    /// code runs. Time in modules and components that are not added counts as their store's host time, without frames.
    ///
    /// # Errors
    /// If `binary` cannot be read, or the module was not compiled from it, or is of another engine.
    pub fn add(&self, module: &Module, name: &str, binary: &[u8]) -> wasmtime::Result<()> {
        let code = GuestCode::of_module(module.clone(), Arc::new(read(name, binary)?));
        self.check(&code)?;
        let chosen = choose(&Choice::Auto, &self.0.languages, &*code.images[0])?;
        self.add_chosen(module, &code, chosen);
        Ok(())
    }

    fn add_chosen(&self, module: &Module, code: &GuestCode, chosen: Chosen) {
        let is_known = self.loaded(module).is_some();
        self.load_code(code, vec![chosen.walker]);
        if !is_known {
            chosen.notes.into_iter().for_each(|note| self.0.session.note(note));
        }
        self.let_go_of_names();
    }

    /// As [`Profiler::add`], of a module whose bytes have been read already, and whose language `walker` knows. Gives its id in
    /// recordings, which another may have when it has been removed.
    ///
    /// # Errors
    /// If the module was not compiled from `image`, or is of another engine.
    pub fn add_read(
        &self,
        module: &Module,
        image: &Arc<ModuleImage>,
        walker: Option<Box<dyn Walker>>,
    ) -> wasmtime::Result<ModuleId> {
        let code = GuestCode::of_module(module.clone(), image.clone());
        self.check(&code)?;
        Ok(self.load_code(&code, vec![walker])[0].id)
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

    /// Adds code that the caller has just compiled from its images, without the check of [`Profiler::add_read`], which takes 17 ms for a
    /// CPython. `walkers` are those of its modules' languages, in their order.
    pub fn add_compiled(&self, code: &GuestCode, walkers: Vec<Option<Box<dyn Walker>>>) {
        self.load_code(code, walkers);
    }

    fn load_code(&self, code: &GuestCode, walkers: Vec<Option<Box<dyn Walker>>>) -> Vec<Arc<LoadedModule>> {
        // One at a time, so that none is added twice. Whoever looks for another one meanwhile does not wait.
        let _adding = self.0.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let image = code.compiled.image_range();
        let known = self.added().iter().find(|added| added.is_of(&image)).map(|added| added.modules.clone());
        known.unwrap_or_else(|| {
            let modules = self.0.session.load(code, walkers);
            self.added().push(Added { code: code.compiled.clone(), modules: modules.clone() });
            modules
        })
    }

    /// Lets go of a module that was added, however often: of its code soon, and of its name and debug information once no sample that
    /// is kept is of it and no window is open that began before, with the next module that comes or goes or the next snapshot. To be
    /// called when no store has an instance of it any more: what runs of it all the same has no frames. One that was not added is left
    /// alone.
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

    /// Samples `store` from here on, on whatever threads it runs, until it is dropped or is given another call hook. To be called
    /// before anything is instantiated in it: an instance of nothing is made in it, which counts where the embedder limits instances. A
    /// store has one profiler: attached again, it is the last one's, and the last name and labels are its own.
    ///
    /// # Errors
    /// If the store is of another engine, or has no room for that instance; or if it is configured for async already
    /// (`limiter_async`, yields of epochs or fuel), which it may be afterwards.
    pub fn attach<T: 'static>(&self, store: &mut Store<T>, attach: Attach<T>) -> wasmtime::Result<Attached> {
        let Attach { name, hook } = attach;
        let is_same = Engine::same(&self.0.engine, store.engine());
        wasmtime::ensure!(is_same, "the store is of another engine than the one that the profiler was started for");
        if !self.0.share.next() {
            if let Some(hook) = hook {
                store.call_hook(hook);
            }
            self.0.session.leave_out(store);
            return Ok(Attached::new(None, store, self.clone()));
        }
        let attached = self.0.session.attach(store, name, hook)?;
        Ok(Attached::new(Some(attached), store, self.clone()))
    }

    /// Takes samples, if it does not already.
    pub fn resume(&self) {
        let mut sampling = self.sampling();
        if sampling.is_none() {
            *sampling = self.0.session.sample();
        }
    }

    /// Takes no samples from here on, but for windows that are open, and for one that samples from first to last
    /// ([`SamplerOptions::on_demand`](crate::sampler::SamplerOptions::on_demand)).
    pub fn pause(&self) {
        *self.sampling() = None;
    }

    /// All samples that are kept ([`Builder::keep`]), by now.
    ///
    /// # Errors
    /// If no guest has begun, or sampling is over.
    pub fn snapshot(&self) -> wasmtime::Result<Snapshot> {
        self.last(Duration::MAX)
    }

    /// The samples of the last so long, or of somewhat more, as far as they are kept.
    ///
    /// # Errors
    /// As for [`Profiler::snapshot`].
    pub fn last(&self, past: Duration) -> wasmtime::Result<Snapshot> {
        self.open(|session| session.last(past))?.snapshot()
    }

    /// Begins a window, which is sampled even if the profiler is paused.
    ///
    /// # Errors
    /// As for [`Profiler::snapshot`].
    pub fn window(&self) -> wasmtime::Result<OpenWindow> {
        self.open(|session| session.window(session.clock()))
    }

    /// As [`Profiler::window`], of samples that stand for time of `clock`. [`Clock::Wall`] is to be had where the profiler's own clock is
    /// that, or where it samples on demand: what is recorded of a whole run would have waits otherwise that nobody asked for.
    ///
    /// # Errors
    /// As for [`Profiler::snapshot`], or if waits are not to be had.
    pub fn window_of(&self, clock: Clock) -> wasmtime::Result<OpenWindow> {
        self.open(|session| session.window(clock))
    }

    /// Whether a guest has begun, so that there are windows to be had.
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

    /// What the guests of the stores that are sampled ([`Builder::fraction`]) have done so far, in samples or not: zeros before one has
    /// begun.
    pub fn activity(&self) -> Option<Activity> {
        self.0.session.activity()
    }

    /// Reads all stacks of the running guests: their languages' threads, or the wasm stacks. A guest stands still for about a
    /// microsecond a thread, and for one or two milliseconds more.
    ///
    /// # Errors
    /// Why it cannot be done, in words for the user.
    pub fn dump(&self) -> Result<Dump, String> {
        self.0.session.dump()
    }

    /// Halts all guests where they stand, for good: their threads never return to the embedder. For a program that is about to end
    /// and wants no more output from them.
    pub fn halt_guests(&self) {
        self.0.session.halt_guest();
    }

    /// Adds a note for the user to profiles.
    pub fn note(&self, note: impl Into<String>) {
        self.0.session.note(note.into());
    }

    /// Stops sampling and gives what was recorded into the journal ([`Builder::journal`]), once: the guests may still be running, their
    /// samples end here.
    pub fn finish(&self) -> Finished {
        self.0.session.finish()
    }

    fn added(&self) -> MutexGuard<'_, Vec<Added>> {
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
