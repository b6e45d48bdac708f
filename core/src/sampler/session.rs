//! One profiling session: options in, an unsymbolized recording out.

use super::code_map::{CodeMap, NativePc};
use super::dump::Dump;
use super::store::SampledStore;
use super::{ImportWatch, Report, Sampler, epoch};
use crate::module::ModuleImage;
use crate::recording::{Clock, Journal, Meta, Module, ModuleId, Origin, Recorder, TickCounts};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wasmtime::{Instance, Store};
use wasmtime_environ::wasmparser::Operator;
use wlprof_plugin::{ModuleView, Walker};

/// Which sampler to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SamplerKind {
    /// The signal sampler where it works, else the epoch sampler.
    #[default]
    Auto,
    /// Interrupts the guest's thread and reads it in place.
    ///
    /// # Accuracy
    /// Sees every instruction, host calls included. Lines of optimized code are exact for memory accesses, calls and
    /// branches; arithmetic between them takes the line of the nearest such instruction before it.
    ///
    /// # Overhead
    /// None in the guest's code. Each sample stops the guest for about a microsecond, plus what the machine takes to
    /// deliver a signal, which is next to nothing up to the rate of the kernel's tick; the governor keeps the sum below [`SamplerOptions::max_overhead`].
    ///
    /// # Security
    /// Reads Wasmtime's internal structures of exactly one Wasmtime version, checked at start-up. The guest can make
    /// stacks incomplete but not make a read leave its own stack, code and memory.
    Signal,
    /// The guest calls back at checks compiled into it.
    ///
    /// # Accuracy
    /// Sees only function entries and loop heads: time in straight-line code goes to the next check, often in another
    /// function. Host calls are not seen.
    ///
    /// # Overhead
    /// 15 to 50 % in call-heavy guests before the first sample is taken, then about 3 to 11 µs a sample.
    ///
    /// # Security
    /// Uses Wasmtime's public API alone.
    Epoch,
}

impl SamplerKind {
    /// Which sampler [`SamplerKind::Auto`] is on this machine: signal, or epoch and the reason. To be asked before the
    /// guest is compiled, since the epoch sampler needs its checks.
    ///
    /// # Errors
    /// If the signal sampler is asked for by name and does not work here.
    pub fn resolve(self) -> wasmtime::Result<(Self, Option<String>)> {
        self.resolve_with(signal_works)
    }

    fn resolve_with(
        self,
        signal_works: impl FnOnce() -> wasmtime::Result<()>,
    ) -> wasmtime::Result<(Self, Option<String>)> {
        match self {
            Self::Epoch => Ok((Self::Epoch, None)),
            Self::Signal => signal_works().map(|()| (Self::Signal, None)),
            Self::Auto => Ok(match signal_works() {
                Ok(()) => (Self::Signal, None),
                Err(error) => (Self::Epoch, Some(format!("the signal sampler does not work here: {error:#}"))),
            }),
        }
    }
}

/// Whether the signal sampler works here, by trying what it relies on.
fn signal_works() -> wasmtime::Result<()> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return super::signal::check();
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    wasmtime::bail!("it needs Linux on x86-64")
}

/// How to sample.
#[derive(Clone, Debug)]
pub struct SamplerOptions {
    /// Which sampler.
    pub kind: SamplerKind,
    /// Samples a second.
    pub rate_hz: f64,
    /// Samples in the first second of CPU time, where they are to be more or fewer: short runs have enough then.
    pub first_hz: Option<f64>,
    /// The most that sampling may cost the process, as a fraction of the guest's CPU time; the rate is lowered to keep it.
    pub max_overhead: f64,
    /// What time samples stand for.
    pub clock: Clock,
    /// Keep in mind which wasm functions were on a stack where the language shows its own frames instead:
    /// [`Recorder::functions_seen`](crate::recording::Recorder::functions_seen) knows of them then.
    pub keep_functions: bool,
    /// Calls of imports at which to read the guest's stacks.
    pub import_watch: Option<Arc<ImportWatch>>,
}

impl SamplerOptions {
    /// The usual ones at so many samples a second, from first to last.
    pub fn at_rate(rate_hz: f64) -> Self {
        Self { rate_hz, first_hz: None, ..Self::default() }
    }
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            kind: SamplerKind::Auto,
            rate_hz: 250.0,
            first_hz: Some(1000.0),
            max_overhead: 0.02,
            clock: Clock::Cpu,
            keep_functions: false,
            import_watch: None,
        }
    }
}

/// What a recording calls a run.
#[derive(Clone, Debug, Default)]
pub struct RunName {
    /// The guest, as the user named it.
    pub guest: String,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
}

/// What samplers and the session share.
pub(super) struct Shared {
    pub(super) options: SamplerOptions,
    pub(super) code: CodeMap,
    pub(super) modules: Vec<(wasmtime::Module, Arc<ModuleImage>)>,
    recorder: Mutex<Recorder>,
    /// The walker of each module that has one, when it is not with the guest's thread.
    walkers: Mutex<Vec<Option<Box<dyn Walker>>>>,
}

impl Shared {
    /// The module whose language is walked.
    pub(super) fn language_module(&self) -> ModuleId {
        // One module a guest has a language so far; components will have several.
        0
    }

    /// The first byte of the wasm instruction at `pc`.
    pub(super) fn opcode_at(&self, pc: NativePc) -> Option<u8> {
        let Origin::Wasm { module, function, code_offset } = self.code.origin(pc)? else { return None };
        let (_, image) = self.modules.get(module as usize)?;
        image.code_at(function, code_offset)?.first().copied()
    }

    /// The function that the `call` instruction at `pc` calls; `None` if it is no such instruction.
    pub(super) fn called_at(&self, pc: NativePc) -> Option<(ModuleId, u32)> {
        let Origin::Wasm { module, function, code_offset } = self.code.origin(pc)? else { return None };
        let (_, image) = self.modules.get(module as usize)?;
        match image.operator_at(function, code_offset)? {
            Operator::Call { function_index } => Some((module, function_index)),
            _ => None,
        }
    }

    pub(super) fn set_walker(&self, module: ModuleId, walker: Box<dyn Walker>) {
        self.walkers()[module as usize] = Some(walker);
    }

    fn walkers(&self) -> MutexGuard<'_, Vec<Option<Box<dyn Walker>>>> {
        self.walkers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recorder. A panic of another thread while it held it has lost at most one sample.
    pub(super) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One guest being profiled. Made before it runs, attached on its thread, finished from any thread.
pub struct Session {
    shared: Arc<Shared>,
    sampler: Mutex<Option<Arc<dyn Sampler>>>,
    notes: Mutex<Vec<String>>,
    /// What was known at the beginning.
    meta: Meta,
}

/// Keeps a session attached to the calling thread.
#[derive(Default)]
pub(super) struct Attached {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    signal: Option<super::signal::Attached>,
}

/// What a session leaves: a recording without symbols.
pub struct Finished {
    /// Frames, stacks and samples.
    pub recorder: Recorder,
    /// How they came about.
    pub meta: Meta,
    /// What became of every tick.
    pub ticks: TickCounts,
    /// The walker of each module that has one: who names what it found.
    pub walkers: Vec<Option<Box<dyn Walker>>>,
}

impl Session {
    /// Prepares to sample guests made of `modules`, in memory. `walkers` are their languages', as many as there are
    /// modules.
    pub fn new(
        modules: &[(wasmtime::Module, Arc<ModuleImage>)],
        walkers: Vec<Option<Box<dyn Walker>>>,
        options: SamplerOptions,
    ) -> Self {
        Self::recording_into(Journal::default(), RunName::default(), modules, walkers, options)
    }

    /// As [`Session::new`], and writes what is sampled into `journal` as it comes.
    pub fn recording_into(
        journal: Journal,
        run: RunName,
        modules: &[(wasmtime::Module, Arc<ModuleImage>)],
        walkers: Vec<Option<Box<dyn Walker>>>,
        options: SamplerOptions,
    ) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let meta = Meta {
            wlprof_version: env!("CARGO_PKG_VERSION").to_owned(),
            guest: run.guest,
            arguments: run.arguments,
            start_unix_ms: started.map_or(0, |since| since.as_millis() as u64),
            sampler: if options.kind == SamplerKind::Epoch { "epoch" } else { "signal" }.to_owned(),
            clock: options.clock,
            requested_hz: options.rate_hz,
            allowed_hz: options.rate_hz,
            ..Meta::default()
        };
        let descriptions = modules
            .iter()
            .map(|(_, image)| Module { name: image.name().to_owned(), build_id: image.build_id() })
            .collect();
        let shared = Shared {
            options,
            code: CodeMap::new(modules),
            modules: modules.to_vec(),
            recorder: Mutex::new(Recorder::new(descriptions, meta.clone(), journal)),
            walkers: Mutex::new(walkers),
        };
        if shared.walkers().iter().flatten().any(|walker| walker.reads_guest()) {
            // Walkers are given wasm frames while the guest stands still: the maps must be there then.
            shared.code.prepare_origins();
        }
        Self { shared: Arc::new(shared), sampler: Mutex::new(None), notes: Mutex::new(Vec::new()), meta }
    }

    /// Begins to sample the calling thread, which is about to run a guest in `store`. Takes the store's call hook or its
    /// epoch callback. [`SamplerKind::Auto`] stands for the signal sampler here: see [`SamplerKind::resolve`].
    ///
    /// # Errors
    /// If the sampler does not work here, or the thread it needs cannot be started.
    pub fn attach<T: 'static>(&self, mut store: Store<T>) -> wasmtime::Result<SampledStore<T>> {
        let attached = match self.shared.options.kind {
            SamplerKind::Epoch => {
                self.set_sampler(epoch::attach(&self.shared, &mut store)?);
                Attached::default()
            }
            #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
            SamplerKind::Auto | SamplerKind::Signal => {
                let (sampler, signal) = super::signal::attach(&self.shared, &mut store)?;
                self.set_sampler(sampler);
                Attached { signal: Some(signal) }
            }
            #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
            SamplerKind::Auto | SamplerKind::Signal => wasmtime::bail!("{}", signal_works().unwrap_err()),
        };
        Ok(SampledStore::new(attached, store))
    }

    /// Lets the walker of `module` read the stacks of `instance`, its instance. Call it between instantiating and
    /// calling the guest. A walker that cannot is left out, with a note; the profile has wasm frames then.
    pub(super) fn instantiated<T: 'static>(
        &self,
        attached: &Attached,
        store: &mut Store<T>,
        instance: &Instance,
        module: ModuleId,
    ) {
        let walker = self.shared.walkers().get_mut(module as usize).and_then(Option::take);
        let Some(walker) = walker else { return };
        if !walker.reads_guest() {
            self.shared.set_walker(module, walker);
            return;
        }
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        if let Some(signal) = &attached.signal {
            if let Err((walker, error)) = signal.walk_language(store, instance, module, walker) {
                self.shared.set_walker(module, walker);
                self.note(format!("the language's own stacks cannot be read ({error:#}); frames are wasm's"));
            }
            return;
        }
        let _ = (attached, store, instance);
        self.shared.set_walker(module, walker);
        self.note("only the signal sampler reads the language's own stacks; frames are wasm's".to_owned());
    }

    fn set_sampler(&self, sampler: Arc<dyn Sampler>) {
        *self.sampler.lock().unwrap_or_else(PoisonError::into_inner) = Some(sampler);
    }

    /// Adds a note for the user.
    pub fn note(&self, note: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Halts the guest where it stands, for good: its thread never returns to the embedder. For a program that is about
    /// to end and wants no more of the guest's output meanwhile.
    pub fn halt_guest(&self) {
        let sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sampler) = sampler {
            sampler.halt_guest();
        }
    }

    /// Reads all stacks of the running guest: those of its language's threads, or wasm's. The guest stops for it,
    /// about a microsecond for each thread and a millisecond or two besides.
    ///
    /// # Errors
    /// Why it cannot be done, in words for the user.
    pub fn dump(&self) -> Result<Dump, String> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let since = Instant::now();
        loop {
            let sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match sampler {
                Some(sampler) => return sampler.dump(),
                None if since.elapsed() > PATIENCE => return Err("the guest has not started".to_owned()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Stops sampling and gives what was recorded. The guest may still be running: its samples end here.
    pub fn finish(&self) -> Finished {
        let sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (name, report) = match &sampler {
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
        Finished {
            recorder: std::mem::take(&mut *self.shared.recorder()),
            meta,
            ticks: report.ticks,
            walkers: std::mem::take(&mut *self.shared.walkers()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_falls_back_with_the_reason_and_a_named_sampler_fails_with_it() {
        let broken = || Err(wasmtime::format_err!("memory is elsewhere"));
        let (kind, note) = SamplerKind::Auto.resolve_with(broken).unwrap();
        assert_eq!(kind, SamplerKind::Epoch);
        assert!(note.unwrap().contains("memory is elsewhere"));
        assert!(SamplerKind::Signal.resolve_with(broken).is_err());
        assert_eq!(SamplerKind::Auto.resolve_with(|| Ok(())).unwrap(), (SamplerKind::Signal, None));
    }
}
