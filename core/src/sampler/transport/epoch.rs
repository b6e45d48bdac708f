//! The epoch sampler: the guest calls back at checks compiled into it, and is read there.
//!
//! # Accuracy
//! Checks stand at function entries and loop heads only, so time in straight-line code is charged to whatever check
//! comes next, often in another function: a function without loops may show 0 % of the 75 % it uses. Where the module's code
//! shows that the caller of a function that has not begun was the only one to run, the time is the caller's; samples that may be another's
//! are marked ([`State::Entering`](crate::recording::State), [`State::Returned`](crate::recording::State); `drain/checks.rs`). A tick in a
//! host call is answered when that is left, by the call hook, and one before it, in the guest, when it is made. Waiting is counted as idle
//! where threads can be looked at, which is on Linux; elsewhere its ticks are lost ones.
//!
//! # Overhead
//! The checks slow a guest before any sample is taken: hardly where loops are long, by a half and more where calls are many.
//!
//! # Security
//! As for the signal sampler: what is read of Wasmtime's internals is checked first.

use crate::sampler::Report;
use crate::sampler::os::Activity;
use crate::sampler::os::thread_watch::{SEES_THREADS, ThreadWatch};
use crate::sampler::running::{StoreState, ThreadSlot, Threads, Transport};
use crate::sampler::timing::{Answers, Ticks};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{Engine, Store, UpdateDeadline};

/// How long until it is asked again whether somebody wants samples.
const RESTING: Duration = Duration::from_millis(20);

/// Threads are not interrupted: their guests call back.
pub(in crate::sampler) struct EpochTransport(pub(in crate::sampler) Arc<Ticks>);

impl Transport for EpochTransport {
    fn take_up(&self) -> io::Result<Arc<ThreadSlot>> {
        let slot = Arc::new(ThreadSlot::new(None, Some(Answers::new(self.0.clone())))?);
        slot.make_own();
        Ok(slot)
    }

    fn interrupt_ns(&self) -> u64 {
        0
    }
}

/// Has the guest of `store`, which is not sampled, never stop at its checks: a new store's deadline has passed.
pub(in crate::sampler) fn let_run<T: 'static>(store: &mut Store<T>) {
    // Added to the engine's epoch.
    store.set_epoch_deadline(u64::MAX / 2);
}

/// Has the guest of `store` call back at its next check after a tick, and read there.
pub(in crate::sampler) fn call_back<T: 'static>(store: &mut Store<T>, state: Arc<StoreState>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        state.calls_back();
        Ok(UpdateDeadline::Continue(1))
    });
}

/// What advances the epoch of an engine.
pub(in crate::sampler) struct Ticker {
    ticks: Arc<Ticks>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Ticked>>>,
}

/// Ticks, how many of them found no thread running, and how late half and 99 % of the answers at checks were at most.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sampler) struct Ticked {
    fired: u64,
    idle: u64,
    delays: Option<(u64, u64)>,
}

impl Ticker {
    /// Begins to tick.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(in crate::sampler) fn start(ticks: Arc<Ticks>, threads: &Arc<Threads>, engine: &Engine) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let period = Duration::from_secs_f64(1.0 / threads.shared.options.rate_hz);
        let (stopped, threads, engine, all) = (stop.clone(), threads.clone(), engine.clone(), ticks.clone());
        let thread = std::thread::Builder::new().name("wlprof ticker".into()).spawn(move || {
            let mut ticked = Ticked::default();
            let mut watched = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if threads.clock().is_none() {
                    std::thread::sleep(RESTING);
                    all.skip();
                    continue;
                }
                std::thread::sleep(period);
                ticked.fired += 1;
                if all_wait(&threads, &mut watched) {
                    // Not an epoch: the first check after the wait would be charged with it.
                    ticked.idle += 1;
                    all.skip();
                } else {
                    // Before the guest is asked to answer it.
                    all.tick();
                    engine.increment_epoch();
                }
            }
            ticked
        })?;
        Ok(Self { ticks, stop, thread: Mutex::new(Some(thread)) })
    }

    /// Stops ticking. Gives how late the answers at checks were, as well.
    pub(in crate::sampler) fn stop(&self) -> Ticked {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ticked = thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
        Ticked { delays: self.ticks.delays(), ..ticked }
    }
}

/// Whether every thread that runs a store waits, as far as can be told.
fn all_wait(threads: &Threads, watched: &mut Vec<(Arc<ThreadSlot>, Option<ThreadWatch>)>) -> bool {
    let slots = threads.slots();
    watched.retain(|(slot, _)| slots.iter().any(|other| Arc::ptr_eq(slot, other)));
    for slot in slots {
        if !watched.iter().any(|(other, _)| Arc::ptr_eq(other, &slot)) {
            let watch = ThreadWatch::new(slot.tid).ok();
            watched.push((slot, watch));
        }
    }
    let waits = |watch: &Option<ThreadWatch>| watch.as_ref().is_some_and(|watch| watch.look().0 == Activity::Blocked);
    let mut running = watched.iter().filter(|(slot, _)| !slot.current().is_null()).peekable();
    running.peek().is_some() && running.all(|(_, watch)| waits(watch))
}

impl Ticked {
    /// The report of a sampler that went by these ticks.
    pub(in crate::sampler) fn report(self, mut report: Report) -> Report {
        let Self { fired, idle, delays } = self;
        let ticks = &mut report.ticks;
        let taken = ticks.sampled + ticks.unrecorded + ticks.ring_full;
        ticks.idle = idle;
        // With several threads a tick may be several samples, as is one that stands for much time: those pieces are counted as fired already.
        // Any other tick without a callback found no check to stop at before the next: the guest was busy in a host call or in
        // straight-line code.
        ticks.fired = (fired + ticks.fired).max(taken + idle);
        ticks.coalesced = ticks.fired - taken - idle;
        let mut note =
            "taken with the epoch sampler: time in straight-line code shows at the next loop head, function entry or host call"
                .to_owned();
        if let Some((half_ns, most_ns)) = delays {
            let us = |ns: u64| ns as f64 / 1e3;
            note += &format!(
                "; half of those in the guest's code came within {:.1} µs, 99 % within {:.1} µs",
                us(half_ns),
                us(most_ns)
            );
        }
        report.notes.push(note);
        if !SEES_THREADS {
            let note = "whether the guest waits is not seen on this system: ticks while it does are told as lost";
            report.notes.push(note.to_owned());
        }
        report
    }
}
