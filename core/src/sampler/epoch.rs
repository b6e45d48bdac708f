//! The epoch sampler: the guest calls back at checks compiled into it, and Wasmtime's own backtrace is taken there.
//!
//! # Accuracy
//! Checks stand at function entries and loop heads only, so time in straight-line code is charged to whatever check
//! comes next, often in another function: a function without loops may show 0 % of the 75 % it uses. Host calls are not
//! seen: a tick in a busy one is taken at the next check after it, and waiting is counted as idle with either clock.
//!
//! # Overhead
//! The checks slow a guest before any sample is taken: hardly where loops are long, by 15 to 50 % where calls are many.
//!
//! # Security
//! Public API alone.

use super::dump::Dump;
use super::os::clock::{monotonic_ns, own_cpu_ns};
use super::pauses::Pauses;
use super::shared::Shared;
use super::{Report, Sampler};
use crate::recording::{ModuleId, Origin, PauseStats, Sample, State, TickCounts, TrackId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{Module, Store, StoreContextMut, UpdateDeadline, WasmBacktrace};

/// What the callback and the ticker share.
struct EpochThread {
    shared: Arc<Shared>,
    track: TrackId,
    started_ns: u64,
    started_cpu_ns: u64,
    cpu_ns: AtomicU64,
    sampled: AtomicU64,
    pauses: Mutex<Pauses>,
    stop: AtomicBool,
    halted: AtomicBool,
}

struct EpochSampler {
    thread: Arc<EpochThread>,
    /// Gives the number of ticks and how many of them found the guest waiting.
    ticker: Mutex<Option<JoinHandle<(u64, u64)>>>,
    report: Mutex<Option<Report>>,
}

/// Begins to sample the calling thread, which is about to run a guest in `store`.
///
/// # Errors
/// If no thread can be started.
pub(super) fn attach<T: 'static>(shared: &Arc<Shared>, store: &mut Store<T>) -> wasmtime::Result<Arc<dyn Sampler>> {
    let name = std::thread::current().name().unwrap_or("guest").to_owned();
    let track = {
        let mut recorder = shared.recorder();
        let store = recorder.store(&name);
        recorder.track(store, &name, own_thread_id())
    };
    let thread = Arc::new(EpochThread {
        shared: shared.clone(),
        track,
        started_ns: monotonic_ns(),
        started_cpu_ns: own_cpu_ns(),
        cpu_ns: AtomicU64::new(0),
        sampled: AtomicU64::new(0),
        pauses: Mutex::default(),
        stop: AtomicBool::new(false),
        halted: AtomicBool::new(false),
    });
    store.set_epoch_deadline(1);
    let called_back = thread.clone();
    store.epoch_deadline_callback(move |context| {
        called_back.sample(&context);
        while called_back.halted.load(Ordering::Relaxed) {
            std::thread::park();
        }
        Ok(UpdateDeadline::Continue(1))
    });
    let engine = store.engine().clone();
    let period = Duration::from_secs_f64(1.0 / shared.options.rate_hz);
    let ticking = thread.clone();
    let waits = waits_now();
    let ticker = std::thread::Builder::new().name("wlprof ticker".into()).spawn(move || {
        let (mut ticks, mut idle) = (0, 0);
        while !ticking.stop.load(Ordering::Relaxed) {
            std::thread::sleep(period);
            ticks += 1;
            if waits() {
                // Not an epoch: the first check after the wait would be charged with it.
                idle += 1;
            } else {
                engine.increment_epoch();
            }
        }
        (ticks, idle)
    })?;
    Ok(Arc::new(EpochSampler { thread, ticker: Mutex::new(Some(ticker)), report: Mutex::new(None) }))
}

/// The operating system's id of the calling thread, or 0 where it has none that we know of.
fn own_thread_id() -> u64 {
    #[cfg(target_os = "linux")]
    return super::os::linux::thread_watch::own_tid() as u64;
    #[cfg(not(target_os = "linux"))]
    0
}

/// Asks whether the calling thread waits, from another one. Where that cannot be told it never does.
fn waits_now() -> impl Fn() -> bool + Send + 'static {
    #[cfg(target_os = "linux")]
    let watch = super::os::linux::thread_watch::ThreadWatch::new(super::os::linux::thread_watch::own_tid()).ok();
    move || {
        #[cfg(target_os = "linux")]
        return watch.as_ref().is_some_and(|watch| watch.look().0 == super::os::linux::thread_watch::Activity::Blocked);
        #[cfg(not(target_os = "linux"))]
        false
    }
}

impl EpochThread {
    fn sample<T: 'static>(&self, context: &StoreContextMut<'_, T>) {
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        let began = monotonic_ns();
        let cpu_ns = own_cpu_ns();
        self.cpu_ns.store(cpu_ns, Ordering::Relaxed);
        let backtrace = WasmBacktrace::force_capture(context);
        let mut recorder = self.shared.recorder();
        let mut frames = Vec::with_capacity(backtrace.frames().len());
        for frame in backtrace.frames().iter().rev() {
            let Some((id, code_start)) = self.module(frame.module()) else { continue };
            let code_offset = frame.module_offset().map_or(0, |offset| offset as u32 - code_start);
            frames.push(recorder.frame(Origin::Wasm { module: id, function: frame.func_index(), code_offset }));
        }
        let Some(stack) = recorder.stack(frames) else { return };
        let period_ns = (1e9 / self.shared.options.rate_hz) as u64;
        let sample = Sample {
            time_ns: began - self.started_ns,
            cpu_delta_ns: 0,
            period_ns,
            stack,
            state: State::Guest,
            labels: None,
        };
        recorder.sample(self.track, cpu_ns, sample);
        drop(recorder);
        self.sampled.fetch_add(1, Ordering::Relaxed);
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).add(monotonic_ns() - began);
    }

    fn module(&self, module: &Module) -> Option<(ModuleId, u32)> {
        let id = self.shared.code.id_of(module)?;
        Some((id, self.shared.module(id)?.image.code_start()))
    }
}

impl Sampler for EpochSampler {
    fn name(&self) -> &'static str {
        "epoch"
    }

    fn halt_guest(&self) {
        self.thread.halted.store(true, Ordering::Relaxed);
    }

    fn dump(&self) -> Result<Dump, String> {
        Err("only the signal sampler can read all stacks of a running guest".to_owned())
    }

    fn stop(&self) -> Report {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = &*report {
            return report.clone();
        }
        let thread = &self.thread;
        thread.stop.store(true, Ordering::Relaxed);
        let ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (fired, idle) = ticker.and_then(|ticker| ticker.join().ok()).unwrap_or_default();
        let sampled = thread.sampled.load(Ordering::Relaxed);
        let pauses = thread.pauses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let finished = Report {
            // Any other tick without a callback found no check to stop at before the next: the guest was busy in a host
            // call or in straight-line code.
            ticks: TickCounts {
                fired: fired.max(sampled + idle),
                sampled,
                idle,
                coalesced: fired.saturating_sub(sampled + idle),
                ..TickCounts::default()
            },
            pause: PauseStats {
                handler_p50_ns: pauses.percentile(50),
                handler_p99_ns: pauses.percentile(99),
                tick_ns: 0,
            },
            allowed_hz: thread.shared.options.rate_hz,
            duration_ns: monotonic_ns() - thread.started_ns,
            cpu_ns: thread.cpu_ns.load(Ordering::Relaxed).saturating_sub(thread.started_cpu_ns),
            sampling_ns: 0,
            unsampled_ns: 0,
            notes: vec![
                "taken with the epoch sampler: time in straight-line code is charged to the next loop head or \
                 function entry, and host calls are not seen"
                    .to_owned(),
            ],
        };
        *report = Some(finished.clone());
        finished
    }
}
