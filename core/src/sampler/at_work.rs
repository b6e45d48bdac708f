//! A sampler at work: the threads and stores that it samples, and the drain that records what is read of them.

use super::Report;
use super::drain::{Drain, DrainCounts};
use super::options::SamplerKind;
use super::os::Activity;
use super::os::thread_watch::ThreadWatch;
use super::reading::Probe;
use super::running::{Attachment, Demand, EmbeddersHook, NamedStore, SlotTotals, StoreName, Threads, Transport};
use super::shared::Shared;
use super::timing::Delays;
use super::transport::epoch::{self, EpochTransport};
use super::transport::signal;
use super::transport::ticker::Ticker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wasmtime::{Engine, Store, bail, error::Context as _};
use wlprof_recording::{Clock, PauseStats, TickCounts};
use wlprof_walk::Dump;

/// How long to wait, when sampling ends, for a handler or a call hook that still reads a guest.
const LAST_WALK: Duration = Duration::from_millis(100);

/// How long to wait for guests to halt.
const HALT: Duration = Duration::from_millis(20);

/// A running sampler.
pub(super) struct Sampler {
    threads: Arc<Threads>,
    probe: Probe,
    engine: Engine,
    /// Asks threads for samples, if no event of their own does.
    ticker: Option<Ticker>,
    /// How late guests come to their checks, if that is where they are read.
    delays: Option<Arc<Delays>>,
    stop_drain: Arc<AtomicBool>,
    /// What is sampled for the recording of the whole run.
    _whole_run: Option<Demand>,
    running: Mutex<Running>,
}

enum Running {
    Yes(JoinHandle<DrainCounts>),
    No(Report),
}

impl Sampler {
    /// Starts the sampler for stores of `engine`. None is attached yet.
    ///
    /// # Errors
    /// If no thread can be started, the sampler does not work on this machine, or the self-check of Wasmtime's internals fails.
    pub(super) fn start(shared: &Arc<Shared>, engine: &Engine) -> wasmtime::Result<Self> {
        let by_epochs = shared.options.kind == SamplerKind::Epoch;
        let by_ticker = !by_epochs && signal::needs_ticker();
        let delays = by_epochs.then(|| Arc::new(Delays::new()));
        let transport: Box<dyn Transport> = match &delays {
            Some(delays) => Box::new(EpochTransport(delays.clone())),
            None => signal::transport(&shared.options, by_ticker)?,
        };
        let threads = Arc::new(Threads::new(shared.clone(), transport));
        let options = &shared.options;
        let whole_run = (!options.on_demand).then(|| Demand::new(&threads, options.clock));
        let probe = Probe::new(engine).context("the self-check of Wasmtime's internals failed")?;
        if by_epochs && !probe.guests_have_checks()? {
            bail!(
                "the engine's guests have no checks, at which the epoch sampler would read them: give its Config \
                 `epoch_interruption(true)`, or take another sampler"
            );
        }
        let ticker = if by_epochs {
            let engine = engine.clone();
            Some(Ticker::start(&threads, move || engine.increment_epoch())?)
        } else if by_ticker {
            Some(Ticker::start(&threads, || ())?)
        } else {
            None
        };
        let stop_drain = Arc::new(AtomicBool::new(false));
        let drain = std::thread::Builder::new().name("wlprof drain".into()).spawn({
            let (threads, stop) = (threads.clone(), stop_drain.clone());
            move || Drain::run(threads, &stop)
        })?;
        threads.drained_by(drain.thread().clone());
        let (engine, running) = (engine.clone(), Mutex::new(Running::Yes(drain)));
        Ok(Self { threads, probe, engine, ticker, delays, stop_drain, _whole_run: whole_run, running })
    }

    /// Samples `store` from here on, wherever it runs. Its call hook calls `embedders` as well.
    ///
    /// # Errors
    /// If the store is of another engine, or has no room for an instance of nothing.
    pub(super) fn attach<T: 'static>(
        &self,
        store: &mut Store<T>,
        name: StoreName,
        embedders: Option<EmbeddersHook<T>>,
    ) -> wasmtime::Result<Attachment> {
        let is_same = Engine::same(&self.engine, store.engine());
        wasmtime::ensure!(is_same, "a session samples stores of one engine: the first one's; make another session");
        let (context, attached) = self.probe.context(store).context(
            "the store cannot be looked into; attach it before it is configured for async, and leave room for one instance",
        )?;
        let name = Arc::new(NamedStore::new(name));
        let state = self.threads.add_store(name.clone(), context);
        if self.delays.is_some() {
            epoch::call_back(store, state.clone());
        }
        let since = (self.probe.clone(), attached);
        Ok(Attachment::new(self.threads.clone(), state, name, since, store, embedders))
    }

    /// Its name in profiles.
    pub(super) fn name(&self) -> &'static str {
        match (&self.delays, &self.ticker) {
            (Some(_), _) => "epoch",
            (None, None) => "signal",
            (None, Some(_)) => "signal, asked for by a ticker",
        }
    }

    /// Stops the guests for good: in wasm at once, by a signal, or at the next check; in host code when that returns. Waits at most
    /// [`HALT`] for it, since a host call may block.
    pub(super) fn halt_guest(&self) {
        let slots = self.threads.slots();
        slots.iter().for_each(|slot| slot.halt());
        // A moment, so that they write nothing after what is printed next.
        let mut running: Vec<_> = slots.into_iter().map(|slot| (ThreadWatch::new(slot.tid).ok(), slot)).collect();
        let patience = Instant::now() + HALT;
        loop {
            running.retain(|(_, slot)| !slot.is_idle());
            if running.is_empty() || Instant::now() > patience {
                return;
            }
            for (watch, slot) in &running {
                // Where threads cannot be looked at they are not interrupted either: they call back.
                let activity = watch.as_ref().map(|watch| watch.look().0);
                if matches!(activity, Some(Activity::Running | Activity::Queued)) {
                    slot.interrupt();
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The threads that it samples.
    pub(super) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// Reads all stacks of the running guests.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn dump(&self) -> Result<Dump, String> {
        // Held until the dump is made: `stop` ends the walkers.
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Running::Yes(_) => {
                let dumps: Vec<_> = self.threads.stores().into_iter().map(|store| store.dump(&self.threads)).collect();
                let failed = dumps.iter().find_map(|dump| dump.clone().err());
                // One store that cannot be read does not take the others' stacks away.
                let made = dumps.into_iter().filter_map(Result::ok).reduce(Dump::and);
                // Without a store nothing runs.
                made.map_or_else(|| failed.map_or_else(|| Ok(Dump::default()), Err), Ok)
            }
            Running::No(_) => Err("the run is over".to_owned()),
        }
    }

    /// Stops sampling. All samples that could be recorded are in the recorder then. From any thread; a second call gives the same
    /// report.
    pub(super) fn stop(&self) -> Report {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let report = match std::mem::replace(&mut *running, Running::No(Report::default())) {
            Running::No(report) => report,
            Running::Yes(drain) => self.stop_running(drain),
        };
        *running = Running::No(report.clone());
        report
    }

    fn stop_running(&self, drain: JoinHandle<DrainCounts>) -> Report {
        let threads = &self.threads;
        threads.stop();
        let clocks = threads.clocks();
        let ticked = self.ticker.as_ref().map(Ticker::stop);
        let at_rest = self.is_at_rest();
        let stores = threads.stores();
        if let (true, Some(slot)) = (at_rest, clocks.slots().next()) {
            for store in &stores {
                // SAFETY: no signal is answered any more, and no handler is at work.
                unsafe { store.collect_awaited_beside(slot) };
            }
        }
        self.stop_drain.store(true, Ordering::Release);
        drain.thread().unpark();
        let drained = drain.join().unwrap_or_default();
        let mut rate_note = threads.ended_rate_note();
        if at_rest {
            for store in &stores {
                // If the store is locked, its call hook is in a walk and keeps the walker.
                if let Some(_locked) = store.try_lock() {
                    // SAFETY: no signal is answered any more, and no handler is at work; the call hook walks with the store
                    // locked.
                    drop(unsafe { store.take_language() });
                }
            }
            let mut timers = clocks.slots().filter_map(|slot| slot.timers.as_ref());
            // SAFETY: no handler is at work, and none will be.
            rate_note = timers.find_map(|timers| unsafe { timers.rate_note() }).or(rate_note);
        }
        let mut report = self.report(drained, threads.totals_at(&clocks), at_rest, rate_note);
        report.notes.extend(clocks.bursts_note());
        report.notes.extend(self.delays.iter().flat_map(|delays| epoch::notes(delays)));
        match ticked {
            Some(ticked) => ticked.report(report, self.delays.is_some()),
            None => report,
        }
    }

    /// Waits, not for long, until no handler and no call hook reads a guest. `false` if one still does, perhaps stuck in a plugin: it
    /// has the walker.
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

    fn report(&self, drained: DrainCounts, totals: SlotTotals, at_rest: bool, rate_note: Option<String>) -> Report {
        let options = &self.threads.shared.options;
        let fired = totals.fired + drained.waits.found + drained.lanes.split;
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
            idle: if options.clock == Clock::Cpu { drained.waits.found } else { 0 },
            ring_full: totals.ring_full,
            unrecorded: drained.unrecorded,
            woke: drained.waits.woke,
            late: drained.waits.late,
            ..TickCounts::default()
        };
        if !at_rest {
            // A handler may still be at work, whose tick is in no other counter yet.
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
                periods_ns => 1e9 * totals.fired as f64 / periods_ns as f64,
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
}
