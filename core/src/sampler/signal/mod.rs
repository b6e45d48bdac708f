//! The signal sampler: a ticker thread signals the guest's thread, and the handler reads the stopped guest in place.
//!
//! ```text
//! ticker ──tgkill──► handler on the guest's thread ──ring──► drain ──► recorder
//! ```
//!
//! # Accuracy
//! Unbiased: a tick hits whatever instruction is running. Every stack is walked from the registers or from where wasm
//! called the host, and a chain that does not hold is labelled, not guessed.
//!
//! # Overhead
//! Nothing in the guest's code. See [`calibrate`] and [`governor`] for what a tick costs and how that is bounded.
//!
//! # Security
//! The handler follows frame pointers only between the interrupted stack pointer and the entry frame.

mod activations;
#[cfg(test)]
mod backtrace_tests;
mod calibrate;
mod drain;
mod dump;
#[cfg(test)]
mod go_tests;
mod governor;
mod language;
mod naming;
mod own_thread;
#[cfg(test)]
mod python_tests;
mod record;
mod ring;
mod self_check;
#[cfg(test)]
mod self_reports;
#[cfg(test)]
mod step_tests;
mod thread;
mod ticker;
mod vm_context;
mod walk;
mod x86_64;

use super::clock::ThreadWatch;
use super::dump::Dump;
use super::session::Shared;
use super::{Report, Sampler};
use crate::guest::{EngineOptions, ModuleImage};
use crate::recording::{ModuleId, PauseStats};
use drain::{Drain, Drained};
use language::LanguageWalk;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thread::GuestThread;
use ticker::Ticked;
use vm_context::InstanceContext;
use wasmtime::{CallHook, Engine, Func, Instance, Store, error::Context as _};
use wlprof_plugin::Walker;

/// How long to wait for the last signal and the last walk when sampling ends while the guest runs on.
const LAST_WALK: Duration = Duration::from_millis(100);

/// Keeps the calling thread sampled.
pub(super) struct Attached(Arc<GuestThread>);

impl Attached {
    /// Lets `walker` read the language's stacks of `instance`, an instance of module `module`.
    ///
    /// # Errors
    /// If the instance cannot be found or looks otherwise than Wasmtime's API says; the walker comes back.
    pub(super) fn walk_language<T: 'static>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        module: ModuleId,
        walker: Box<dyn Walker>,
    ) -> Result<(), (Box<dyn Walker>, wasmtime::Error)> {
        let image = &self.0.shared.modules[module as usize].1;
        match find_instance(store, instance, image) {
            Ok(context) => {
                self.0.set_language(LanguageWalk::new(module, walker, context, image));
                Ok(())
            }
            Err(error) => Err((walker, error)),
        }
    }
}

/// Finds an instance through one of its functions, and checks that its memory is where Wasmtime says.
fn find_instance<T: 'static>(
    store: &mut Store<T>,
    instance: &Instance,
    image: &ModuleImage,
) -> wasmtime::Result<InstanceContext> {
    let functions: Vec<Func> = instance.exports(&mut *store).filter_map(|export| export.into_func()).collect();
    let memory = instance.exports(&mut *store).find_map(|export| export.into_memory());
    let context = functions
        .iter()
        .find_map(|function| InstanceContext::of(&mut *store, function))
        .ok_or_else(|| wasmtime::format_err!("the module exports no function of its own"))?;
    if let (Some(memory), Some(definition)) = (memory, context.memory(image.index_spaces(), 0)) {
        // SAFETY: the store is alive, and this thread runs it.
        let read = unsafe { definition.read() };
        let said = (memory.data_ptr(&*store) as usize, memory.data_size(&*store));
        if read != said && image.index_spaces().memories + image.index_spaces().imported_memories == 1 {
            wasmtime::bail!("memory is {read:x?} by Wasmtime's internals and {said:x?} by its API");
        }
    }
    Ok(context)
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Tries what the sampler relies on: Wasmtime's internals, and looking at a thread from outside.
///
/// # Errors
/// What does not work.
pub(super) fn check() -> wasmtime::Result<()> {
    let engine = crate::guest::engine(EngineOptions { epoch_interruption: false, cache: false })?;
    self_check::run(&mut Store::new(&engine, ())).context("the self-check of Wasmtime's internals failed")?;
    ThreadWatch::new(super::clock::own_tid()).context("a thread cannot be watched through /proc")?;
    Ok(())
}

/// Begins to sample the calling thread, which is about to run a guest in `store`.
///
/// # Errors
/// If this process may not do what that takes, or if Wasmtime's internals are not as expected.
pub(super) fn attach<T: 'static>(
    shared: &Arc<Shared>,
    store: &mut Store<T>,
) -> wasmtime::Result<(Arc<dyn Sampler>, Attached)> {
    // Gives this thread Wasmtime's large alternate signal stack now: a sample taken before the first wasm call would
    // run on Rust's, and overflow it.
    Engine::tls_eager_initialize();
    let context = self_check::run(store).context("the self-check of Wasmtime's internals failed")?;
    let thread = Arc::new(GuestThread::new(shared.clone(), context)?);
    let name = std::thread::current().name().unwrap_or("guest").to_owned();
    shared.recorder().set_thread(&name, thread.tid as u64);
    let hooked = thread.clone();
    store.call_hook(move |_, hook| {
        match hook {
            CallHook::CallingHost => {
                hooked.calling_host();
                hooked.stay_if_halted();
            }
            CallHook::ReturningFromHost => {
                hooked.returning_from_host();
                hooked.stay_if_halted();
            }
            CallHook::CallingWasm => hooked.calling_wasm(),
            CallHook::ReturningFromWasm => hooked.returning_from_wasm(),
        }
        Ok(())
    });
    thread.enter()?;
    let attached = Attached(thread.clone());
    let tick_ns = calibrate::tick_cost_ns(&thread);
    thread.start();
    Ok((Arc::new(SignalSampler::start(thread, tick_ns)?), attached))
}

/// A running signal sampler.
struct SignalSampler {
    thread: Arc<GuestThread>,
    tick_ns: u64,
    stop_ticker: Arc<AtomicBool>,
    stop_drain: Arc<AtomicBool>,
    running: Mutex<Running>,
}

enum Running {
    Yes { ticker: JoinHandle<Ticked>, drain: JoinHandle<Drained> },
    No(Report),
}

impl SignalSampler {
    fn start(thread: Arc<GuestThread>, tick_ns: u64) -> std::io::Result<Self> {
        let watch = ThreadWatch::new(thread.tid)?;
        let (stop_ticker, stop_drain) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let drain = std::thread::Builder::new().name("wlprof drain".into()).spawn({
            let (thread, stop, stop_ticker) = (thread.clone(), stop_drain.clone(), stop_ticker.clone());
            move || Drain::run(thread, &stop, &stop_ticker)
        })?;
        let wake = drain.thread().clone();
        let ticker = ticker::spawn(thread.clone(), watch, tick_ns, stop_ticker.clone(), move || wake.unpark())?;
        Ok(Self { thread, tick_ns, stop_ticker, stop_drain, running: Mutex::new(Running::Yes { ticker, drain }) })
    }

    fn report(&self, ticked: Ticked, handled: u64, drained: Drained) -> Report {
        let thread = &self.thread;
        let mut ticks = ticked.ticks;
        ticks.sampled = drained.sampled;
        ticks.unrecorded = drained.unrecorded;
        ticks.ring_full += thread.ring_full.load(Ordering::Relaxed);
        ticks.at_end = ticked.sent - handled;
        let detached = thread.detached.load(Ordering::Acquire);
        let (ended_ns, ended_cpu_ns) = if detached {
            (thread.ended_ns.load(Ordering::Relaxed), thread.ended_cpu_ns.load(Ordering::Relaxed))
        } else {
            (super::clock::monotonic_ns(), ticked.cpu_ns)
        };
        let percentile = |percent| drained.pauses.percentile(percent);
        let mut notes = ticked.notes;
        notes.extend(
            drained.failure.map(|failure| format!("{failure}: what the guest did after that is not in the profile")),
        );
        Report {
            ticks,
            pause: PauseStats { handler_p50_ns: percentile(50), handler_p99_ns: percentile(99), tick_ns: self.tick_ns },
            allowed_hz: if ticks.fired == 0 {
                thread.shared.options.rate_hz
            } else {
                1e9 * ticks.fired as f64 / ticked.intervals_ns as f64
            },
            duration_ns: ended_ns.saturating_sub(thread.started_ns.load(Ordering::Relaxed)),
            cpu_ns: ended_cpu_ns.saturating_sub(thread.started_cpu_ns.load(Ordering::Relaxed)),
            notes,
        }
    }

    /// Signals handled since the ticker began, and whether the walker is nobody's any more, after giving the last signal and
    /// the walk of a host call that returns time to end.
    fn wait_for_last_walk(&self, calibration: u64, sent: u64) -> (u64, bool) {
        let patience = Instant::now() + LAST_WALK;
        loop {
            let handled = self.thread.handled.load(Ordering::Acquire) - calibration;
            let is_over = self.thread.detached.load(Ordering::Acquire);
            let at_rest = is_over || (handled >= sent && !self.thread.is_locked());
            if at_rest || Instant::now() > patience {
                return (handled.min(sent), at_rest);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Sampler for SignalSampler {
    fn name(&self) -> &'static str {
        "signal"
    }

    fn halt_guest(&self) {
        self.thread.halt();
        // The next tick or the next host call stops it; a moment for that to happen, so that it does not write into
        // what is said after it.
        std::thread::sleep(Duration::from_millis(20));
    }

    fn dump(&self) -> Result<Dump, String> {
        // Held meanwhile: `stop` takes the walker away.
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Running::Yes { .. } => self.thread.dump(),
            Running::No(_) => Err("the run is over".to_owned()),
        }
    }

    fn stop(&self) -> Report {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let report = match std::mem::replace(&mut *running, Running::No(Report::default())) {
            Running::No(report) => report,
            Running::Yes { ticker, drain } => {
                self.stop_ticker.store(true, Ordering::Relaxed);
                let ticked = ticker.join().unwrap_or_default();
                let (handled, at_rest) = self.wait_for_last_walk(ticked.handled_before, ticked.sent);
                if at_rest && !self.thread.detached.load(Ordering::Acquire) {
                    // SAFETY: the ticker has ended and its last signal has been handled.
                    unsafe { self.thread.collect_awaited_beside() };
                }
                self.stop_drain.store(true, Ordering::Release);
                drain.thread().unpark();
                let drained = drain.join().unwrap_or_default();
                if at_rest || self.thread.detached.load(Ordering::Acquire) {
                    // SAFETY: the ticker has ended and its last signal has been handled or never will be; the call hook
                    // is in no walk and finds no sample that awaits the language. One that is stuck in it keeps it.
                    if let Some(language) = unsafe { self.thread.take_language() } {
                        self.thread.shared.set_walker(language.module, language.walker);
                    }
                }
                self.report(ticked, handled, drained)
            }
        };
        *running = Running::No(report.clone());
        report
    }
}
