//! Runs a guest once and measures it.
//!
//! The same steps as [`wlprof_run::profile::Run`], taken here one by one so that every mode, those without wlprof included,
//! is measured between the same two points: before the guest is instantiated and after its call has returned. What
//! wlprof does before and after is no part of it; see [`startup`](super::startup) for the former.

use super::clocks::Stopwatch;
use super::floor::Floor;
use super::mode::Mode;
use super::perf_record::PerfRecord;
use anyhow::{Context, Result, anyhow, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wasmtime::{Engine, GuestProfiler, Store, UpdateDeadline};
use wlprof::languages::{self, Choice};
use wlprof::module::ModuleImage;
use wlprof::recording::{Journal, PauseStats};
use wlprof::{Attach, HoldGuard, StoreHandle};
use wlprof_run::guest::Guest;
use wlprof_wasi::{Directory, Exit, GuestState, Stdio, WasiOptions, call, linker};

/// The stack that `wlprof` gives its guests.
const STACK_SIZE: usize = 8 << 20;

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// CPU time of the guest's thread.
    pub(crate) guest_cpu: Duration,
    /// CPU time of the process until sampling had ended, with that of a profiler outside.
    pub(crate) process_cpu: Duration,
    /// Time.
    pub(crate) wall: Duration,
    /// The part of it in which the guest's thread had no processor, because others or the host had it.
    pub(crate) without_processor: f64,
    /// Samples taken.
    pub(crate) samples: u64,
    /// Ticks that should have been samples and were not.
    pub(crate) lost: u64,
    /// CPU time in the handler, in all.
    pub(crate) in_handler: Duration,
    /// How long the guest stood still for them; zero if not measured.
    pub(crate) pause: PauseStats,
}

/// A run is disturbed if its thread had no processor for more than this part of the time: what others do meanwhile to the
/// processor's caches and clock is in its CPU time.
const DISTURBED: f64 = 0.05;

/// A run and its neighbours, plain ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Between {
    pub(crate) before: Measured,
    pub(crate) run: Measured,
    pub(crate) after: Measured,
}

impl Between {
    /// The most of the time that one of the three had no processor.
    pub(crate) fn without_processor(&self) -> f64 {
        [self.before, self.run, self.after].iter().map(|run| run.without_processor).fold(0.0, f64::max)
    }

    /// Whether others disturbed one of the three.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.without_processor() > DISTURBED
    }
}

/// What a guest is run with.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// Its arguments, without its name.
    pub(crate) arguments: Vec<String>,
    /// Folders it may use.
    pub(crate) directories: Vec<Directory>,
}

/// Runs `guest` in `world` and `mode`, on a thread of its own.
pub(crate) fn run(guest: &Guest, world: &World, mode: Mode) -> Result<Measured> {
    let (guest, world) = (guest.clone(), world.clone());
    let thread = std::thread::Builder::new().name("guest".into()).stack_size(STACK_SIZE);
    let running = thread.spawn(move || run_here(&guest, world, mode)).context("cannot start a thread")?;
    running.join().map_err(|_| anyhow!("the guest's thread panicked"))?
}

fn run_here(guest: &Guest, world: World, mode: Mode) -> Result<Measured> {
    let arguments = std::iter::once(guest.name.clone()).chain(world.arguments).collect();
    let directories = world.directories;
    let wasi = WasiOptions { arguments, directories, stdio: Stdio::Null, ..WasiOptions::default() };
    let mut store = wasi.store(&guest.engine)?;
    let linker = linker(&guest.engine, &wasi.flags)?;
    let mut profiler = Profiler::attach(guest, mode, &mut store)?;
    let module = guest.code.compiled.module().context("it is a component")?;

    let watch = Stopwatch::start();
    let exit = match linker.instantiate(&mut store, module) {
        Ok(instance) => {
            if let Profiler::Wlprof(_, attached, _) = &profiler {
                attached.instantiated(&mut store, &instance)?;
            }
            call(&mut store, &instance, None, &[])
        }
        Err(error) => Exit::from_error(error),
    };
    let times = watch.elapsed();

    // A run without a profiler gives its memory back as well: what that takes is no cost of one.
    let before_drop = watch.process_cpu_elapsed();
    if let Profiler::Wlprof(_, _, held) = &mut profiler {
        *held = None;
    }
    drop(store);
    let dropping = watch.process_cpu_elapsed() - before_drop;
    let Stopped { samples, lost, in_handler, pause, outside_cpu } = profiler.stop()?;
    let until_stopped = watch.process_cpu_elapsed() - dropping;
    let process_cpu = if samples > 0 && outside_cpu.is_zero() { until_stopped } else { times.process_cpu };
    match exit {
        Exit::Returned(_) | Exit::Code(0) => {}
        other => bail!("{}: the guest failed: {other:?}", guest.name),
    }
    Ok(Measured {
        guest_cpu: times.thread_cpu,
        process_cpu: process_cpu + outside_cpu,
        wall: times.wall,
        without_processor: times.without_processor.as_secs_f64() / times.wall.as_secs_f64(),
        samples,
        lost,
        in_handler,
        pause,
    })
}

/// What watches the guest.
enum Profiler {
    None,
    Floor(Floor),
    Perf(PerfRecord),
    Wlprof(wlprof::Profiler, StoreHandle, Option<HoldGuard>),
    Wasmtime { samples: Arc<AtomicU64>, ticker: Ticker },
}

impl Profiler {
    fn attach(guest: &Guest, mode: Mode, store: &mut Store<GuestState>) -> Result<Self> {
        if let Some(options) = mode.sampler() {
            let chosen = |image: &Arc<ModuleImage>| languages::choose(&Choice::Auto, languages::BUILT_IN, &**image);
            let builder = wlprof::Profiler::builder().journal(Journal::default()).sampler_options(options);
            let profiler = builder.start(&guest.engine)?;
            let (module, image) = (guest.code.compiled.module().context("it is a component")?, &guest.code.images[0]);
            profiler.add_read(module, image, chosen(image)?.program)?;
            let attached = profiler.attach(store, Attach::named(&guest.name))?;
            let held = attached.hold()?;
            return Ok(Self::Wlprof(profiler, attached, Some(held)));
        }
        let hz = match mode {
            Mode::GuestProfiler { hz } => hz,
            Mode::Floor { hz } => return Ok(Self::Floor(Floor::start(hz)?)),
            Mode::Perf { hz } => return Ok(Self::Perf(PerfRecord::start(hz)?)),
            _ => return Ok(Self::None),
        };
        let interval = Duration::from_secs_f64(1.0 / hz);
        let modules = guest.code.compiled.module().map(|module| (guest.name.clone(), module.clone()));
        let mut profiler = GuestProfiler::new(&guest.engine, &guest.name, interval, modules)?;
        let samples = Arc::new(AtomicU64::new(0));
        let count = samples.clone();
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |context| {
            profiler.sample(&context, Duration::ZERO);
            count.fetch_add(1, Ordering::Relaxed);
            Ok(UpdateDeadline::Continue(1))
        });
        let ticker = Ticker::start(&guest.engine, interval)?;
        Ok(Self::Wasmtime { samples, ticker })
    }

    /// Stops it.
    fn stop(self) -> Result<Stopped> {
        Ok(match self {
            Self::None => Stopped::default(),
            Self::Floor(floor) => {
                drop(floor);
                Stopped::default()
            }
            Self::Perf(perf) => {
                let (samples, outside_cpu) = perf.stop()?;
                Stopped { samples, outside_cpu, ..Stopped::default() }
            }
            Self::Wlprof(profiler, ..) => {
                let finished = profiler.finish();
                let (samples, lost) = (finished.ticks.sampled, finished.ticks.lost());
                let in_handler = Duration::from_nanos(finished.meta.sampling_ns);
                Stopped { samples, lost, in_handler, pause: finished.meta.pause, ..Stopped::default() }
            }
            Self::Wasmtime { samples, ticker } => {
                ticker.stop();
                Stopped { samples: samples.load(Ordering::Relaxed), ..Stopped::default() }
            }
        })
    }
}

/// What a profiler that has been stopped says.
#[derive(Default)]
struct Stopped {
    /// Samples taken.
    samples: u64,
    /// Ticks that were none.
    lost: u64,
    in_handler: Duration,
    pause: PauseStats,
    /// CPU time of another process than this one.
    outside_cpu: Duration,
}

/// Moves an engine's epoch on.
struct Ticker {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Ticker {
    fn start(engine: &Engine, interval: Duration) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (engine, stopped) = (engine.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("ticker".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(interval);
                engine.increment_epoch();
            }
        })?;
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // It does nothing that could panic.
        let _ = self.thread.join();
    }
}
