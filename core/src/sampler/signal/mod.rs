//! The signal sampler: timers signal the guest's thread, and the handler reads the stopped guest in place.
//!
//! ```text
//! a thread's own timers ──► handler on that thread ──ring──► drain, one for all ──► recorder
//! ```
//!
//! # Accuracy
//! A timer hits whatever instruction is running; up to the rate of the kernel's ticks it does so at these. Every stack is walked
//! from the registers or from where wasm called the host, and a chain that does not hold is labelled, not guessed. What a sample
//! stands for: [`pace`].
//!
//! # Overhead
//! Nothing in the guest's code. See [`calibrate`] and [`governor`] for what a signal costs and how that is bounded.
//!
//! # Security
//! The handler reads a frame only if compiled code returns to it: [`walk`].

mod activations;
mod attachment;
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
mod lanes;
mod language;
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
mod threads;
mod vm_context;
mod waits;
mod walk;

pub(super) use attachment::{Attachment, Hold};

use super::dump::Dump;
use super::os::linux::thread_watch::{Activity, ThreadWatch, own_tid};
use super::shared::Shared;
use super::{Report, Sampler};
use crate::guest::EngineOptions;
use crate::recording::{Clock, PauseStats, TickCounts};
use drain::{Drain, Drained, SlotTotals};
use pace::Pace;
use self_check::Probe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use threads::Threads;
use wasmtime::{Engine, Store, error::Context as _};

/// How long to wait for the last signal and the last walk when sampling ends while a guest runs on.
const LAST_WALK: Duration = Duration::from_millis(100);

/// How long to wait for guests that are halted.
const HALT: Duration = Duration::from_millis(20);

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

/// A running signal sampler.
pub(super) struct SignalSampler {
    threads: Arc<Threads>,
    probe: Probe,
    stop_drain: Arc<AtomicBool>,
    running: Mutex<Running>,
}

enum Running {
    Yes(JoinHandle<Drained>),
    No(Report),
}

impl SignalSampler {
    /// Begins to sample stores of `engine`, of which there are none yet.
    ///
    /// # Errors
    /// If no thread can be started, or Wasmtime's internals are not as expected.
    pub(super) fn start(shared: &Arc<Shared>, engine: &Engine) -> wasmtime::Result<Self> {
        let threads = Arc::new(Threads::new(shared.clone()));
        let probe = Probe::new(engine)?;
        let stop_drain = Arc::new(AtomicBool::new(false));
        let drain = std::thread::Builder::new().name("wlprof drain".into()).spawn({
            let (threads, stop) = (threads.clone(), stop_drain.clone());
            move || Drain::run(threads, &stop)
        })?;
        Ok(Self { threads, probe, stop_drain, running: Mutex::new(Running::Yes(drain)) })
    }

    /// Samples `store` from here on, wherever it runs.
    ///
    /// # Errors
    /// If Wasmtime's internals are not as expected.
    pub(super) fn attach<T: 'static>(&self, store: &mut Store<T>, name: &str) -> wasmtime::Result<Attachment> {
        let context = self.probe.context(store).context("the self-check of Wasmtime's internals failed")?;
        Ok(Attachment::new(self.threads.clone(), self.threads.add_store(name, context), store))
    }

    fn report(&self, drained: Drained, totals: SlotTotals, at_rest: bool, rate_note: Option<String>) -> Report {
        let options = &self.threads.shared.options;
        let fired = totals.fired + drained.waits.found + drained.lanes.split;
        let intervals = totals.fired - totals.preempted - totals.waited;
        let percentile = |percent| drained.pauses.percentile(percent);
        let duration_ns = match self.threads.started_ns() {
            0 => 0,
            started_ns => totals.left_ns.saturating_sub(started_ns),
        };
        let mut notes: Vec<String> = rate_note.into_iter().collect();
        notes.extend(
            drained.failure.map(|failure| format!("{failure}: what the guest did after that is not in the profile")),
        );
        let unsampled = |error| format!("a thread was not sampled: {error}");
        notes.extend(self.threads.failure().map(unsampled));
        let mut ticks = TickCounts {
            fired,
            sampled: drained.lanes.sampled,
            idle: totals.waited + if options.clock == Clock::Cpu { drained.waits.found } else { 0 },
            preempted: totals.preempted,
            ring_full: totals.ring_full,
            unrecorded: drained.unrecorded,
            woke: drained.waits.woke,
            late: drained.waits.late,
            ..TickCounts::default()
        };
        if !at_rest {
            // A signal may still be being answered.
            ticks.at_end = fired.saturating_sub(ticks.accounted());
        }
        let sampled_ns = totals.handler_ns + drained.lanes.weight_ns;
        Report {
            ticks,
            pause: PauseStats {
                handler_p50_ns: percentile(50),
                handler_p99_ns: percentile(99),
                tick_ns: self.threads.interrupt_ns(),
            },
            allowed_hz: match totals.periods_ns {
                0 => options.rate_hz,
                periods_ns => 1e9 * intervals as f64 / periods_ns as f64,
            },
            duration_ns,
            cpu_ns: totals.cpu_ns,
            sampling_ns: totals.handler_ns,
            unsampled_ns: match options.clock {
                Clock::Cpu => totals.cpu_ns.saturating_sub(sampled_ns),
                Clock::Wall => duration_ns.saturating_sub(sampled_ns),
            },
            notes,
        }
    }

    /// Waits until nobody samples any more, and gives whether the walkers are nobody's: a call hook may be stuck in a plugin.
    fn is_at_rest(&self) -> bool {
        let patience = Instant::now() + LAST_WALK;
        let (slots, stores) = (self.threads.slots(), self.threads.stores());
        loop {
            let at_work = slots.iter().any(|slot| slot.is_in_handler()) || stores.iter().any(|store| store.is_locked());
            if !at_work || Instant::now() > patience {
                return !at_work;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops sampling.
    fn stop_running(&self, drain: JoinHandle<Drained>) -> Report {
        let threads = &self.threads;
        let slots = threads.slots();
        let mut totals = SlotTotals::default();
        for slot in &slots {
            let cpu_ns = ThreadWatch::new(slot.tid).ok().and_then(|watch| watch.cpu_ns());
            totals.add(slot, cpu_ns.unwrap_or(0));
        }
        threads.stop();
        let at_rest = self.is_at_rest();
        let stores = threads.stores();
        if at_rest {
            for store in &stores {
                if let Some(slot) = slots.first() {
                    // SAFETY: no signal is answered any more, and no handler is at work.
                    unsafe { store.collect_awaited_beside(slot) };
                }
            }
        }
        self.stop_drain.store(true, Ordering::Release);
        drain.thread().unpark();
        let drained = drain.join().unwrap_or_default();
        let mut rate_note = None;
        if at_rest {
            for store in &stores {
                // Who has the lock is the call hook in a walk: it keeps the walker.
                if let Some(_locked) = store.try_lock()
                    // SAFETY: no signal is answered any more, and no handler is at work; the call hook walks with the store
                    // locked.
                    && let Some(language) = unsafe { store.take_language() }
                {
                    language.module.set_walker(language.walker);
                }
            }
            // SAFETY: no handler is at work, and none will be.
            rate_note = slots.iter().find_map(|slot| unsafe { slot.rate_note() });
        }
        totals.add_ended(drained.ended);
        self.report(drained, totals, at_rest, rate_note)
    }
}

impl Sampler for SignalSampler {
    fn name(&self) -> &'static str {
        "signal"
    }

    fn halt_guest(&self) {
        let slots = self.threads.slots();
        slots.iter().for_each(|slot| slot.halt());
        // A moment for them to stop, so that they do not write into what is said after it: in wasm they do at a signal, in host
        // code when that returns.
        let mut running: Vec<_> =
            slots.into_iter().filter_map(|slot| Some((ThreadWatch::new(slot.tid).ok()?, slot))).collect();
        let patience = Instant::now() + HALT;
        loop {
            running.retain(|(_, slot)| !slot.is_idle());
            if running.is_empty() || Instant::now() > patience {
                return;
            }
            for (watch, slot) in &running {
                if matches!(watch.look().0, Activity::Running | Activity::Queued) {
                    slot.interrupt();
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn dump(&self) -> Result<Dump, String> {
        // Held meanwhile: `stop` takes the walkers away.
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Running::Yes(_) => {
                let mut dumps = self.threads.stores().into_iter().map(|store| store.dump(&self.threads));
                let first = dumps.next().ok_or_else(|| "the guest has ended".to_owned())??;
                dumps.try_fold(first, |all, dump| Ok(all.and(dump?)))
            }
            Running::No(_) => Err("the run is over".to_owned()),
        }
    }

    fn stop(&self) -> Report {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let report = match std::mem::replace(&mut *running, Running::No(Report::default())) {
            Running::No(report) => report,
            Running::Yes(drain) => self.stop_running(drain),
        };
        *running = Running::No(report.clone());
        report
    }
}
