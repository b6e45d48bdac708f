//! Runs a guest under a sampler: the one thing that joins `guest` and `sampler`.

use crate::guest::{Guest, LinkedComponent, Preload};
use crate::queue::QueueTime;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use wasmtime::{Module, Store, Trap};
use wlprof::machine_code::Compiled;
use wlprof::profiler::{Attach, Profiler, StoreHandle};
use wlprof::sampler::{SamplerOptions, SessionOutcome};
use wlprof_module::ModuleImage;
use wlprof_plugin::Program;
use wlprof_recording::file::ReadError;
use wlprof_recording::{Journal, RawRecording, Recording};
use wlprof_symbols::{ProgramNames, name};
use wlprof_wasi::{
    CallableComponent, Exit, GuestState, WasiOptions, call, instantiate, linker, make_room_for_profiler, watch_memory,
};

/// Stack of the guest's thread, as large as a main thread's usually is. Wasmtime limits wasm to 512 KiB of it, so a
/// guest overflows at the same depth as under `wasmtime run`.
const STACK_SIZE: usize = 8 << 20;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The guest's world.
    pub wasi: WasiOptions,
    /// Function to call instead of the main function; the arguments after the first are its parameters then.
    pub invoke: Option<String>,
    /// How to sample; `None` runs the guest as `wasmtime run` would.
    pub sampler: Option<SamplerOptions>,
}

/// How a run ended.
#[derive(Debug)]
pub enum RunEnd {
    /// The guest ended.
    Exit(Exit),
    /// Something else ended it; the number is what was given to [`Interrupter::interrupt`].
    Interrupted(i32),
}

/// A guest that is running.
pub struct Run {
    profiler: Option<Profiler>,
    events: Receiver<RunEnd>,
    interrupter: Interrupter,
    /// Of the guest's thread.
    queue: Arc<QueueTime>,
    /// When it has run long enough, and how long that is.
    until: Option<(Instant, Duration)>,
}

/// Ends the wait for a run from elsewhere.
#[derive(Clone)]
pub struct Interrupter(Sender<RunEnd>);

impl Interrupter {
    /// One whose interruptions go to `events`.
    pub fn of(events: Sender<RunEnd>) -> Self {
        Self(events)
    }

    /// Makes [`Run::wait`] return [`RunEnd::Interrupted`]. Does nothing if the guest has ended.
    pub fn interrupt(&self, reason: i32) {
        // The receiver is gone when the run is: nothing is left to interrupt.
        let _ = self.0.send(RunEnd::Interrupted(reason));
    }
}

impl Run {
    /// Starts `guest` on a thread of its own. `programs` are what languages know of its modules: see [`languages`].
    ///
    /// [`languages`]: wlprof::languages
    ///
    /// # Errors
    /// If no thread can be started, or the sampler does not work here.
    pub fn start(
        guest: &Guest,
        programs: Vec<Option<Arc<dyn Program>>>,
        options: RunOptions,
    ) -> wasmtime::Result<Self> {
        Self::start_recording(Journal::default(), guest, programs, options)
    }

    /// As [`Run::start`], and writes what is sampled into `journal` as it comes.
    ///
    /// # Errors
    /// If no thread can be started, or the sampler does not work here.
    pub fn start_recording(
        journal: Journal,
        guest: &Guest,
        programs: Vec<Option<Arc<dyn Program>>>,
        options: RunOptions,
    ) -> wasmtime::Result<Self> {
        let profiler =
            options.sampler.clone().map(|sampler| profiler(guest, journal, programs, &options.wasi, sampler));
        let profiler = profiler.transpose()?;
        let (sender, events) = channel();
        let interrupter = Interrupter(sender.clone());
        let timeout = options.wasi.flags.wasm.timeout;
        let until = timeout.and_then(|timeout| Some((Instant::now().checked_add(timeout)?, timeout)));
        let (guest, shared) = (guest.clone(), profiler.clone());
        let queue = Arc::new(QueueTime::default());
        let queued = queue.clone();
        std::thread::Builder::new().name("guest".into()).stack_size(STACK_SIZE).spawn(move || {
            let run = || run(&guest, &options, shared.as_ref());
            let exit = queued.of_this_thread(|| catch_unwind(AssertUnwindSafe(run)));
            let panicked = |_| Exit::NotCallable(wasmtime::format_err!("the guest's thread panicked"));
            let exit = exit.unwrap_or_else(panicked);
            // Whoever waits may want plugins to end what they have made.
            drop(shared);
            // Nobody waits any more if the run was interrupted.
            let _ = sender.send(RunEnd::Exit(exit));
        })?;
        Ok(Self { profiler, events, interrupter, queue, until })
    }

    /// Something to end the wait with.
    pub fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// Waits until the guest ends, the run is interrupted or its time is over (`-W timeout`). A guest that has not ended by itself is
    /// halted where it stands, if it is sampled: it runs no further and writes no more, and its thread ends with the process. Without a
    /// sampler it runs on until then.
    pub fn wait(&self) -> RunEnd {
        let received = match self.until {
            Some((until, _)) => self.events.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let (ended, runs_on) = match (received, self.until) {
            (Ok(ended), _) => {
                let runs_on = matches!(ended, RunEnd::Interrupted(_));
                (ended, runs_on)
            }
            (Err(RecvTimeoutError::Timeout), Some((_, timeout))) => {
                let error = wasmtime::Error::from(Trap::Interrupt);
                let error = error.context(format!("it ran for {timeout:?}, the longest that -W timeout allows"));
                (RunEnd::Exit(Exit::Trapped(error)), true)
            }
            (Err(_), _) => (RunEnd::Exit(Exit::NotCallable(wasmtime::format_err!("nobody says how it ended"))), false),
        };
        if let (true, Some(profiler)) = (runs_on, &self.profiler) {
            profiler.halt_guests();
        }
        ended
    }

    /// What wanted to end the wait when that was over already.
    pub fn late_interruption(&self) -> Option<i32> {
        self.events.try_iter().find_map(|ended| match ended {
            RunEnd::Interrupted(reason) => Some(reason),
            RunEnd::Exit(_) => None,
        })
    }

    /// What samples the guest, if anything does.
    pub fn profiler(&self) -> Option<Profiler> {
        self.profiler.clone()
    }

    /// Returns how long the guest's thread has stood in the queue for a processor, in nanoseconds; 0 where that is not known.
    pub fn queued_ns(&self) -> u64 {
        self.queue.ns()
    }

    /// Stops sampling and gives what was recorded; `None` if nothing was to be sampled.
    pub fn finish(&self) -> Option<SessionOutcome> {
        self.profiler.as_ref().map(Profiler::finish)
    }
}

/// What samples a run of `guest`. `programs` are what languages know of its modules.
///
/// # Errors
/// If the sampler does not work here.
pub fn profiler(
    guest: &Guest,
    journal: Journal,
    programs: Vec<Option<Arc<dyn Program>>>,
    wasi: &WasiOptions,
    sampler: SamplerOptions,
) -> wasmtime::Result<Profiler> {
    let builder = Profiler::builder().name(&guest.name).arguments(wasi.arguments.get(1..).unwrap_or_default());
    let profiler = builder.journal(journal).sampler_options(sampler).paused().start(&guest.engine)?;
    profiler.add_compiled(&guest.code, programs);
    guest.preloads.iter().for_each(|preload| profiler.add_compiled(&preload.code, vec![None]));
    guest.notes.iter().for_each(|note| profiler.note(note));
    Ok(profiler)
}

/// Closes what a profiler left and symbolizes it. `progress` is called with the number of frames done.
///
/// # Errors
/// If the file that it recorded into cannot be read back.
pub fn symbolize(
    finished: SessionOutcome,
    modules: &[Arc<ModuleImage>],
    progress: impl FnMut(usize),
) -> Result<Recording, ReadError> {
    let SessionOutcome { recorder, meta, ticks, programs } = finished;
    let journal = recorder.close(meta, ticks, &mut ProgramNames::new(&programs, modules));
    let raw = RawRecording::read(&mut *journal.into_reader().map_err(ReadError::Io)?)?;
    Ok(name(raw, modules, programs, progress))
}

fn run(guest: &Guest, options: &RunOptions, profiler: Option<&Profiler>) -> Exit {
    let started = options.wasi.store(&guest.engine).and_then(|mut store| {
        let attach = |profiler: &Profiler| {
            make_room_for_profiler(&mut store);
            profiler.attach(&mut store, Attach::named(&guest.name))
        };
        let attached = profiler.map(attach).transpose()?;
        Ok((store, attached))
    });
    let (mut store, attached) = match started {
        Ok(started) => started,
        Err(error) => return Exit::NotCallable(error),
    };
    // Dropped before the store is: that is no time of the guest's.
    let _held = match attached.as_ref().map(StoreHandle::hold).transpose() {
        Ok(held) => held,
        Err(error) => return Exit::NotCallable(error),
    };
    let running = RunningGuest { options, attached: attached.as_ref(), store: &mut store };
    let exit = match (&guest.code.compiled, &guest.component) {
        (Compiled::Module(module), _) => running.module(module, &guest.preloads),
        (Compiled::Component(_), Some(LinkedComponent::Callable(component))) => match runtime() {
            Ok(runtime) => runtime.block_on(running.component(component)),
            Err(error) => Err(Exit::NotCallable(error.into())),
        },
        (Compiled::Component(_), Some(LinkedComponent::Handler(_)) | None) => {
            Err(Exit::NotCallable(wasmtime::format_err!("nobody has said what is to be called of the component")))
        }
    };
    attached.iter().for_each(|attached| attached.read_heap(&mut store));
    exit.unwrap_or_else(|exit| exit)
}

/// What polls a component's tasks: this thread, and others for what the host does meanwhile, as under `wasmtime run`.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_time().enable_io().build()
}

/// A guest that runs on this thread.
struct RunningGuest<'a> {
    options: &'a RunOptions,
    attached: Option<&'a StoreHandle>,
    store: &'a mut Store<GuestState>,
}

impl RunningGuest<'_> {
    /// Instantiates and calls a module. Either result is how it ended.
    fn module(mut self, module: &Module, preloads: &[Preload]) -> Result<Exit, Exit> {
        let wasi = &self.options.wasi;
        let mut linker = linker(module.engine(), &wasi.flags).map_err(Exit::NotCallable)?;
        for Preload { name, code } in preloads {
            if let Some(module) = code.compiled.module() {
                linker.module(&mut *self.store, name, module).map_err(of_instantiation)?;
            }
        }
        let instance = instantiate(linker, self.store, module, &wasi.flags).map_err(of_instantiation)?;
        self.watch_memory();
        let told = self.attached.map(|attached| attached.instantiated(self.store, &instance)).transpose();
        told.map_err(Exit::NotCallable)?;
        let parameters = wasi.arguments.get(1..).unwrap_or_default();
        Ok(call(self.store, &instance, self.options.invoke.as_deref(), parameters))
    }

    /// As [`RunningGuest::module`], of a component.
    async fn component(mut self, component: &CallableComponent) -> Result<Exit, Exit> {
        let instance = component.instantiate(self.store).await.map_err(of_instantiation)?;
        self.watch_memory();
        if let Some(attached) = self.attached {
            make_room_for_profiler(self.store);
            attached.component_instantiated(self.store).map_err(Exit::NotCallable)?;
        }
        Ok(component.call(self.store, &instance).await)
    }

    fn watch_memory(&mut self) {
        let profiles_heap = self.options.sampler.as_ref().is_some_and(|sampler| sampler.heap.is_some());
        if let Some(attached) = self.attached.cloned().filter(|_| profiles_heap) {
            watch_memory(self.store, move |bytes| attached.memory_grows(bytes));
        }
    }
}

/// How a guest ended that was not instantiated. A start function runs while that is done; errors that come out of wasm bring its backtrace.
fn of_instantiation(error: wasmtime::Error) -> Exit {
    if ran(&error) { Exit::from_error(error) } else { Exit::NotCallable(error) }
}

/// Whether an error of instantiation comes from the guest's own doing: a trap, an exit, a failed host call.
fn ran(error: &wasmtime::Error) -> bool {
    error.is::<wasmtime::Trap>() || error.is::<wasmtime_wasi::I32Exit>() || error.is::<wasmtime::WasmBacktrace>()
}
