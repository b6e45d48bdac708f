//! The signal sampler: timers signal the guest's thread, and the handler reads the stopped guest in place.
//!
//! ```text
//! the thread's own timers ──► handler on that thread ──ring──► drain ──► recorder
//! ```
//!
//! # Accuracy
//! A timer hits whatever instruction is running; up to the rate of the kernel's ticks it does so at these. Every stack is walked from the registers or from where wasm
//! called the host, and a chain that does not hold is labelled, not guessed. What a sample stands for: [`pace`].
//!
//! # Overhead
//! Nothing in the guest's code. See [`calibrate`] and [`governor`] for what a signal costs and how that is bounded.
//!
//! # Security
//! The handler follows frame pointers only between the interrupted stack pointer and the entry frame.

mod activations;
#[cfg(test)]
mod backtrace_tests;
mod calibrate;
mod collect;
mod drain;
mod dump;
#[cfg(test)]
mod go_tests;
mod governor;
mod handler;
mod language;
mod naming;
mod pace;
#[cfg(test)]
mod python_tests;
mod record;
mod ring;
mod self_check;
#[cfg(test)]
mod self_reports;
mod slot;
#[cfg(test)]
mod step_tests;
mod store_state;
mod vm_context;
mod waits;
mod walk;

use super::dump::Dump;
use super::os::clock::monotonic_ns;
use super::os::linux::thread_watch::{Activity, ThreadWatch, own_tid};
use super::session::Shared;
use super::{Report, Sampler};
use crate::guest::EngineOptions;
use crate::module::ModuleImage;
use crate::recording::{Clock, ModuleId, PauseStats, TickCounts};
use drain::{Drain, Drained};
use language::LanguageWalk;
use pace::Pace;
use slot::ThreadSlot;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store_state::StoreState;
use vm_context::InstanceContext;
use waits::Waits;
use wasmtime::{CallHook, Engine, Func, Instance, Store, error::Context as _};
use wlprof_plugin::Walker;

/// How long to wait for the last signal and the last walk when sampling ends while the guest runs on.
const LAST_WALK: Duration = Duration::from_millis(100);

/// How long to wait for a guest that is halted.
const HALT: Duration = Duration::from_millis(20);

/// Keeps the calling thread sampled.
pub(super) struct Attached {
    thread: Arc<ThreadSlot>,
    store: Arc<StoreState>,
}

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
        let image = &self.store.shared.modules[module as usize].1;
        match find_instance(store, instance, image) {
            Ok(context) => {
                self.store.set_language(LanguageWalk::new(module, walker, context, image));
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
        self.thread.leave(&self.store);
    }
}

/// Tries what the sampler relies on: Wasmtime's internals, and looking at a thread from outside.
///
/// # Errors
/// What does not work.
pub(super) fn check() -> wasmtime::Result<()> {
    let engine = crate::guest::engine(EngineOptions { epoch_interruption: false, cache: false })?;
    self_check::run(&mut Store::new(&engine, ())).context("the self-check of Wasmtime's internals failed")?;
    ThreadWatch::new(own_tid()).context("a thread cannot be watched through /proc")?;
    Pace::new().context("a thread has no timers here")?;
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
    let thread = Arc::new(ThreadSlot::new(shared.options.clock)?);
    let state = Arc::new(StoreState::new(shared.clone(), context)?);
    let name = std::thread::current().name().unwrap_or("guest").to_owned();
    shared.recorder().set_thread(&name, thread.tid as u64);
    let (hooked, slot) = (state.clone(), thread.clone());
    store.call_hook(move |_, hook| {
        match hook {
            CallHook::CallingHost => {
                hooked.calling_host(&slot);
                slot.stay_if_halted();
            }
            CallHook::ReturningFromHost => {
                hooked.returning_from_host(&slot);
                slot.stay_if_halted();
            }
            CallHook::CallingWasm => {
                hooked.calling_wasm();
                slot.pace.goes_on();
            }
            CallHook::ReturningFromWasm => hooked.returning_from_wasm(),
        }
        Ok(())
    });
    thread.enter(&state)?;
    let attached = Attached { thread: thread.clone(), store: state.clone() };
    let interrupt_ns = calibrate::interrupt_cost_ns(&thread);
    thread.start(&shared.options, interrupt_ns);
    Ok((Arc::new(SignalSampler::start(thread, state, interrupt_ns)?), attached))
}

/// A running signal sampler.
struct SignalSampler {
    thread: Arc<ThreadSlot>,
    store: Arc<StoreState>,
    interrupt_ns: u64,
    stop_drain: Arc<AtomicBool>,
    running: Mutex<Running>,
}

enum Running {
    Yes(JoinHandle<Drained>),
    No(Report),
}

impl SignalSampler {
    fn start(thread: Arc<ThreadSlot>, store: Arc<StoreState>, interrupt_ns: u64) -> std::io::Result<Self> {
        let waits = Waits::new(ThreadWatch::new(thread.tid)?, store.shared.options.clock);
        let stop_drain = Arc::new(AtomicBool::new(false));
        let drain = std::thread::Builder::new().name("wlprof drain".into()).spawn({
            let (thread, store, stop) = (thread.clone(), store.clone(), stop_drain.clone());
            move || Drain::run(thread, store, waits, &stop)
        })?;
        Ok(Self { thread, store, interrupt_ns, stop_drain, running: Mutex::new(Running::Yes(drain)) })
    }

    fn report(&self, drained: Drained, ended: Ended, at_rest: bool, rate_note: Option<String>) -> Report {
        let thread = &self.thread;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let fired = count(&thread.counts.fired) + drained.waits.found + drained.split;
        let intervals = count(&thread.counts.fired) - count(&thread.counts.preempted) - count(&thread.counts.waited);
        let periods_ns = count(&thread.counts.periods_ns);
        let percentile = |percent| drained.pauses.percentile(percent);
        let cpu_ns = ended.cpu_ns.saturating_sub(count(&thread.started_cpu_ns));
        let duration_ns = ended.time_ns.saturating_sub(count(&thread.started_ns));
        let clock = self.store.shared.options.clock;
        let sampling_ns = count(&thread.handler_ns);
        let mut notes: Vec<String> = rate_note.into_iter().collect();
        notes.extend(
            drained.failure.map(|failure| format!("{failure}: what the guest did after that is not in the profile")),
        );
        let mut ticks = TickCounts {
            fired,
            sampled: drained.sampled,
            idle: count(&thread.counts.waited) + if clock == Clock::Cpu { drained.waits.found } else { 0 },
            preempted: count(&thread.counts.preempted),
            ring_full: count(&thread.counts.ring_full),
            unrecorded: drained.unrecorded,
            woke: drained.waits.woke,
            late: drained.waits.late,
            ..TickCounts::default()
        };
        if !at_rest {
            // A signal may still be being answered.
            ticks.at_end = fired.saturating_sub(ticks.accounted());
        }
        Report {
            ticks,
            pause: PauseStats {
                handler_p50_ns: percentile(50),
                handler_p99_ns: percentile(99),
                tick_ns: self.interrupt_ns,
            },
            allowed_hz: if periods_ns == 0 {
                self.store.shared.options.rate_hz
            } else {
                1e9 * intervals as f64 / periods_ns as f64
            },
            duration_ns,
            cpu_ns,
            sampling_ns,
            unsampled_ns: match clock {
                Clock::Cpu => cpu_ns.saturating_sub(sampling_ns + drained.weight_ns),
                Clock::Wall => duration_ns.saturating_sub(sampling_ns + drained.weight_ns),
            },
            notes,
        }
    }

    /// Waits until nobody samples any more, and gives whether the walker is nobody's: a call hook may be stuck in a plugin.
    fn is_at_rest(&self) -> bool {
        let patience = Instant::now() + LAST_WALK;
        loop {
            let is_over = self.thread.detached.load(Ordering::Acquire);
            let at_rest = is_over || !(self.thread.is_in_handler() || self.store.is_locked());
            if at_rest || Instant::now() > patience {
                return at_rest;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// When the guest's thread left its store, or now.
    fn ended(&self) -> Ended {
        let thread = &self.thread;
        if thread.detached.load(Ordering::Acquire) {
            Ended {
                time_ns: thread.ended_ns.load(Ordering::Relaxed),
                cpu_ns: thread.ended_cpu_ns.load(Ordering::Relaxed),
            }
        } else {
            let cpu_ns = ThreadWatch::new(thread.tid).ok().and_then(|watch| watch.cpu_ns());
            Ended { time_ns: monotonic_ns(), cpu_ns: cpu_ns.unwrap_or(0) }
        }
    }
}

/// When sampling ended.
struct Ended {
    time_ns: u64,
    /// The guest's thread's CPU time.
    cpu_ns: u64,
}

impl Sampler for SignalSampler {
    fn name(&self) -> &'static str {
        "signal"
    }

    fn halt_guest(&self) {
        self.thread.halt();
        // A moment for it to stop, so that it does not write into what is said after it: in wasm it does at a signal, in host
        // code when that returns.
        let Ok(watch) = ThreadWatch::new(self.thread.tid) else { return };
        let patience = Instant::now() + HALT;
        while !self.thread.is_over() && Instant::now() < patience {
            if matches!(watch.look().0, Activity::Running | Activity::Queued) {
                self.thread.interrupt();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn dump(&self) -> Result<Dump, String> {
        // Held meanwhile: `stop` takes the walker away.
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Running::Yes(_) => self.store.dump(&self.thread),
            Running::No(_) => Err("the run is over".to_owned()),
        }
    }

    fn stop(&self) -> Report {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let report = match std::mem::replace(&mut *running, Running::No(Report::default())) {
            Running::No(report) => report,
            Running::Yes(drain) => {
                let ended = self.ended();
                self.thread.stop();
                let at_rest = self.is_at_rest();
                let is_over = || self.thread.detached.load(Ordering::Acquire);
                if at_rest && !is_over() {
                    // SAFETY: no signal is answered any more, and the handler is not at work.
                    unsafe { self.store.collect_awaited_beside(&self.thread) };
                }
                self.stop_drain.store(true, Ordering::Release);
                drain.thread().unpark();
                let drained = drain.join().unwrap_or_default();
                let mut rate_note = None;
                if at_rest || is_over() {
                    // Who has the lock is the call hook in a walk: it keeps the walker.
                    if let Some(_locked) = self.store.try_lock() {
                        // SAFETY: no signal is answered any more, and the handler is not at work; the call hook walks with
                        // the store locked.
                        if let Some(language) = unsafe { self.store.take_language() } {
                            self.store.shared.set_walker(language.module, language.walker);
                        }
                    }
                    // SAFETY: the handler is not at work, and will not be.
                    rate_note = unsafe { self.thread.rate_note() };
                }
                self.report(drained, ended, at_rest, rate_note)
            }
        };
        *running = Running::No(report.clone());
        report
    }
}
