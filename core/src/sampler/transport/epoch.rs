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
use crate::sampler::collect::{Place, Snapshot, collect};
use crate::sampler::os::Activity;
use crate::sampler::os::clock::{at_least_a_step, own_cpu_ns};
use crate::sampler::os::thread_watch::{SEES_THREADS, ThreadWatch};
use crate::sampler::running::{StoreState, ThreadSlot, Threads, Transport};
use crate::sampler::timing::{Answers, Ticks, add};
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

/// Has the guest of `store` call back at its next check after a tick, and read there.
pub(in crate::sampler) fn call_back<T: 'static>(store: &mut Store<T>, state: Arc<StoreState>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        sample(&state);
        Ok(UpdateDeadline::Continue(1))
    });
}

/// Takes a sample of the guest, which has called back, if the call hook did not: as long as more wasm is open than there is room for.
fn sample(store: &StoreState) {
    let Some(slot) = store.slot() else { return };
    // Others may read a guest that is in a host call, which this is as well.
    store.dump.guest_goes_on();
    // Whoever ends sampling waits for this as for a handler.
    slot.handler_begins();
    let cpu_ns = own_cpu_ns();
    // What went by before it is counted is no sample's.
    let was_counted = slot.count_time(cpu_ns);
    // A store that was left alone for a while calls back at its first check, whenever the tick was; and a tick in a host call was
    // answered there.
    let most_ns = slot.answers.as_ref().and_then(Answers::answer_at_check);
    if let (Some(most_ns), Some(answers), false, true) = (most_ns, &slot.answers, slot.is_stopped(), was_counted) {
        answers.note_delay(most_ns);
        let period_ns = (1e9 / store.shared.options.rate_hz) as u64;
        let weight_ns = slot.since_check_ns(cpu_ns).min(at_least_a_step(most_ns));
        let snapshot = Snapshot { place: Place::AtCheck, cpu_ns, weight_ns, used_ns: weight_ns, period_ns };
        // SAFETY: this thread runs the store, is at a check, and is not interrupted by a handler that samples.
        if !unsafe { collect(&snapshot, store, &slot.ring) } {
            add(&slot.ring_full, 1);
        }
        slot.charge(cpu_ns, store.has_walk_panicked());
        slot.leave_out(cpu_ns);
        answers.goes_on();
    }
    slot.handler_ends();
    store.dump.guest_waits();
    slot.stay_if_halted();
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
        // With several threads a tick may be several samples. Any other tick without a callback found no check to stop at before
        // the next: the guest was busy in a host call or in straight-line code.
        ticks.fired = fired.max(taken + idle);
        ticks.coalesced = ticks.fired - taken - idle;
        let mut note =
            "taken with the epoch sampler: time in straight-line code shows at the next loop head, function entry or host call"
                .to_owned();
        if let Some((half_ns, most_ns)) = delays {
            let us = |ns: u64| ns as f64 / 1e3;
            note +=
                &format!("; half of the samples came within {:.1} µs, 99 % within {:.1} µs", us(half_ns), us(most_ns));
        }
        report.notes.push(note);
        if !SEES_THREADS {
            let note = "whether the guest waits is not seen on this system: ticks while it does are told as lost";
            report.notes.push(note.to_owned());
        }
        report
    }
}
