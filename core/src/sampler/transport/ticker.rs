//! Asks threads for samples at random instants of wall time, where nothing on the threads themselves does.
//!
//! # Accuracy
//! An instant counts for the threads that it finds running. So each sample stands for a period of CPU time, and a wait takes nothing from what
//! was before it. Threads without a processor do not count: where they lost it is not where they used it. This thread leaves a processor that
//! it may have taken from one of them: of guests on all processors, those are seen at an instant that are on the others. On the only processor
//! no other thread can run: there those count that have run since the last instant. Of these some have waited for something else meanwhile, and
//! may only have woken: they count where they stand in wasm. Where other threads cannot be looked at (macOS, Windows) every thread that runs a
//! store is asked.
//!
//! # Overhead
//! A thread that wakes at each instant. It needs a processor for that: on a busy machine there are fewer samples.

use crate::sampler::Report;
use crate::sampler::os::Activity;
use crate::sampler::os::clock::monotonic_ns;
use crate::sampler::os::own_thread::take_short_turns;
use crate::sampler::os::processors::Processors;
use crate::sampler::os::thread_watch::ThreadWatch;
use crate::sampler::running::{ThreadSlot, Threads};
use crate::sampler::timing::Instants;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long until it is asked again whether somebody wants samples.
const RESTING: Duration = Duration::from_millis(20);

/// What asks the threads of a session.
pub(in crate::sampler) struct Ticker {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<InstantCounts>>>,
}

/// What the instants found.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sampler) struct InstantCounts {
    /// Threads that were asked.
    asked: u64,
    /// Of those, some that were without a processor, and count only where they stand in wasm.
    standing: u64,
    /// Threads that waited.
    idle: u64,
    /// Threads that were without a processor.
    preempted: u64,
    /// Instants at which this thread had no processor itself.
    late: u64,
}

/// A thread that is asked, and what looks at it.
struct WatchedThread {
    slot: Arc<ThreadSlot>,
    watch: Option<ThreadWatch>,
    /// Of its own period, as a part of the ticker's, how much has gone by since it was last asked: threads have rates of their own.
    gone: f64,
    /// CPU time of the thread at the last instant.
    cpu_ns: u64,
    /// How often it had waited when it was last without a processor.
    waits: Option<u64>,
}

impl Ticker {
    /// Begins to ask. `asked` is called when any thread has been.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(in crate::sampler) fn start(threads: &Arc<Threads>, asked: impl Fn() + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, threads) = (stop.clone(), threads.clone());
        let thread = std::thread::Builder::new().name("wlprof ticker".into()).spawn(move || {
            // What a busy processor does at an instant is seen only if this thread interrupts it.
            take_short_turns();
            let processors = Processors::own();
            let mut ticked = InstantCounts::default();
            let mut watched = Vec::new();
            let mut instants = None;
            while !stopped.load(Ordering::Relaxed) {
                if threads.clock().is_none() {
                    std::thread::sleep(RESTING);
                    instants = None;
                    continue;
                }
                meet(&threads, &mut watched);
                let period_ns = period_ns(&threads, &watched);
                let instants = instants.get_or_insert_with(|| Instants::new(monotonic_ns(), period_ns));
                let until_ns = instants.due_ns().saturating_sub(monotonic_ns());
                // Not for longer than it takes to see that somebody wants it to stop.
                std::thread::sleep(Duration::from_nanos(until_ns).min(RESTING));
                let passed = instants.pass(monotonic_ns(), period_ns);
                if passed > 0 {
                    // All of them would see one place.
                    ticked.late += passed - 1;
                    if ticked.ask(&mut watched, period_ns, &processors) {
                        asked();
                    }
                }
            }
            ticked
        })?;
        Ok(Self { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Stops asking.
    pub(in crate::sampler) fn stop(&self) -> InstantCounts {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

/// Takes up threads that have come, and lets go of those that have ended.
fn meet(threads: &Threads, watched: &mut Vec<WatchedThread>) {
    let slots = threads.slots();
    watched.retain(|watched| slots.iter().any(|other| Arc::ptr_eq(&watched.slot, other)));
    for slot in slots {
        if !watched.iter().any(|other| Arc::ptr_eq(&other.slot, &slot)) {
            let watch = ThreadWatch::new(slot.tid).ok();
            watched.push(WatchedThread { slot, watch, gone: 0.0, cpu_ns: 0, waits: None });
        }
    }
}

/// The shortest period of the threads; that of the rate that was asked for while there is none.
fn period_ns(threads: &Threads, watched: &[WatchedThread]) -> u64 {
    let asked_ns = (1e9 / threads.shared.options.rate_hz) as u64;
    let shortest_ns = watched.iter().map(|watched| watched.slot.period_ns()).min();
    shortest_ns.filter(|period_ns| *period_ns < u64::MAX).unwrap_or(asked_ns).max(1)
}

impl InstantCounts {
    /// Looks at the threads that run stores, and asks those that run. Gives whether any was asked.
    fn ask(&mut self, watched: &mut [WatchedThread], period_ns: u64, processors: &Processors) -> bool {
        let mut any = false;
        let own_processor = Processors::current();
        let mut took_own = false;
        for WatchedThread { slot, watch, gone, cpu_ns, waits } in
            watched.iter_mut().filter(|watched| !watched.slot.is_idle())
        {
            let own_ns = match slot.period_ns() {
                u64::MAX => period_ns,
                own_ns => own_ns,
            };
            *gone += period_ns as f64 / own_ns as f64;
            if *gone < 1.0 - 1e-9 {
                continue;
            }
            *gone -= 1.0;
            let (activity, now_ns) = watch.as_ref().map_or((Activity::Running, 0), ThreadWatch::look);
            let has_run = std::mem::replace(cpu_ns, now_ns) != now_ns;
            match activity {
                Activity::Running => slot.ask(own_ns, false),
                Activity::Queued if has_run && processors.are_one() => {
                    let now = watch.as_ref().and_then(ThreadWatch::voluntary_waits);
                    let has_waited = std::mem::replace(waits, now) != now || now.is_none();
                    if has_waited && slot.timers.is_some() {
                        // A signal might cut the wait short that it has just woken from.
                        self.preempted += 1;
                        continue;
                    }
                    slot.ask(own_ns, has_waited);
                    self.standing += u64::from(has_waited);
                }
                Activity::Queued => {
                    self.preempted += 1;
                    let last = watch.as_ref().and_then(ThreadWatch::processor);
                    took_own |= has_run && last.is_some() && last == own_processor;
                    continue;
                }
                Activity::Blocked | Activity::Stuck | Activity::Dead => {
                    self.idle += 1;
                    continue;
                }
            }
            self.asked += 1;
            any = true;
        }
        if let Some(processor) = own_processor.filter(|_| took_own) {
            // This thread has taken it, and would do so again. It takes the next one's at once, so all have been looked at before.
            processors.leave(processor);
        }
        any
    }

    /// The report of a sampler whose threads answered these, at checks or by signals. Those that signals called for are in the report already.
    pub(in crate::sampler) fn report(self, mut report: Report, at_checks: bool) -> Report {
        let Self { asked, standing, idle, preempted, late } = self;
        let ticks = &mut report.ticks;
        ticks.late += late;
        ticks.idle += idle;
        ticks.preempted += preempted;
        if at_checks {
            let (taken, split) = (ticks.sampled + ticks.unrecorded + ticks.ring_full, ticks.fired);
            // A sample that stands for much is several. Of those that were asked and took no sample some were not in wasm, and others were asked
            // again before they could, or ran something else by then.
            let unanswered = (asked + split).saturating_sub(taken);
            let not_in_wasm = standing.min(unanswered);
            ticks.preempted += not_in_wasm;
            ticks.coalesced = unanswered - not_in_wasm;
            ticks.fired = taken + ticks.coalesced + not_in_wasm;
        }
        ticks.fired += idle + preempted;
        report
    }
}
