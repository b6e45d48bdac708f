//! For threads that timers interrupt: when the next sample is due, what it stands for, what sampling may cost. Waits are in
//! `drain/waits.rs`. Which ticks threads have to answer that call back by themselves is in `ticks.rs`.

mod governor;
mod pace;
mod ticks;

pub(in crate::sampler) use governor::Spent;
pub(in crate::sampler) use pace::{Jitter, MAX_PERIODS, Pace};
pub(in crate::sampler) use ticks::{Answers, Ticks};

use super::options::SamplerOptions;
use super::os::TimerClock;
use super::os::clock::monotonic_ns;
use super::os::own_thread::{SignalBlocked, voluntary_waits};
use crate::recording::Clock;
use governor::Governor;
use pace::Expired;
use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Signals between two looks of the governor.
const GOVERN_EVERY: u64 = 32;

/// The timers of a thread, and what governs them.
pub(in crate::sampler) struct Timers {
    /// Waits count, too: see [`Clock::Wall`].
    wall: AtomicBool,
    pace: Pace,
    /// Touched in the handler alone.
    governor: UnsafeCell<Option<Governor>>,
    /// Wall time up to which samples stand for it, and how often the thread had waited of its own accord by then. Used with
    /// [`Clock::Wall`].
    accounted_ns: AtomicU64,
    accounted_waits: AtomicU64,
    /// CPU time in which nobody wanted samples.
    rested_ns: AtomicU64,
    /// Signals when the governor last looked.
    governed_at: AtomicU64,
    pub(in crate::sampler) counts: SignalCounts,
    /// While set, signals are counted and nothing is sampled.
    calibrating: AtomicBool,
    /// Signals that the calibration has handled.
    handled: AtomicU64,
}

/// What became of the timers' signals.
#[derive(Default)]
pub(in crate::sampler) struct SignalCounts {
    /// All of them.
    pub(in crate::sampler) fired: AtomicU64,
    /// The thread had been without a processor.
    pub(in crate::sampler) preempted: AtomicU64,
    /// The thread had been waiting.
    pub(in crate::sampler) waited: AtomicU64,
    /// Sum of the periods that were set when signals became samples, in nanoseconds.
    pub(in crate::sampler) periods_ns: AtomicU64,
}

/// A sample that is due.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct Due {
    /// The time that it stands for.
    pub(in crate::sampler) weight_ns: u64,
    /// Of that, CPU time.
    pub(in crate::sampler) used_ns: u64,
    /// Time between samples now.
    pub(in crate::sampler) period_ns: u64,
}

/// Adds to a counter that one thread alone writes.
pub(in crate::sampler) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

// SAFETY: beside `governor` and what `pace` keeps for the handler everything is atomic or synchronized by itself; those two are
// touched on the timers' own thread alone, or when the handler is not at work and will not be.
unsafe impl Sync for Timers {}

impl Timers {
    /// Timers for the calling thread, which are not set.
    ///
    /// # Errors
    /// If the system gives it none.
    pub(in crate::sampler) fn new(clock: Clock) -> io::Result<Self> {
        Ok(Self {
            wall: AtomicBool::new(clock == Clock::Wall),
            pace: Pace::new()?,
            governor: UnsafeCell::new(None),
            accounted_ns: AtomicU64::new(0),
            accounted_waits: AtomicU64::new(0),
            rested_ns: AtomicU64::new(0),
            governed_at: AtomicU64::new(0),
            counts: SignalCounts::default(),
            calibrating: AtomicBool::new(true),
            handled: AtomicU64::new(0),
        })
    }

    /// Ends the calibration: from here on signals may become samples. `interrupt_ns` is what one costs. To be called on the timers'
    /// thread.
    pub(in crate::sampler) fn start(&self, options: &SamplerOptions, interrupt_ns: u64) {
        self.pace.stop();
        let governor = Governor::new(options, interrupt_ns);
        let period_ns = governor.period_ns();
        {
            let _no_signal = SignalBlocked::new();
            // SAFETY: the handler is the only other user, and the signal is blocked.
            unsafe { *self.governor.get() = Some(governor) };
        }
        self.account();
        self.calibrating.store(false, Ordering::SeqCst);
        self.pace.start(period_ns);
    }

    /// No timer expires any more, but for one that the handler is just setting. From any thread.
    pub(in crate::sampler) fn stop(&self) {
        self.pace.stop();
    }

    /// No timer expires any more, until [`Timers::resume`]. From any thread; the handler may still be at work.
    pub(in crate::sampler) fn rest(&self) {
        self.pace.rest();
    }

    /// Samples are wanted again, or from here on of another clock. From any thread.
    pub(in crate::sampler) fn resume(&self, clock: Clock) {
        // Before a sample counts waits, so that none counts those of long ago.
        self.accounted_ns.store(monotonic_ns(), Ordering::SeqCst);
        self.wall.store(clock == Clock::Wall, Ordering::SeqCst);
        self.pace.resume();
    }

    /// Counts a signal, if the calibration is still going on.
    pub(in crate::sampler) fn calibrates(&self, timer: Option<TimerClock>) -> bool {
        let calibrating = self.calibrating.load(Ordering::Relaxed);
        if calibrating {
            add(&self.handled, u64::from(timer.is_some()));
        }
        calibrating
    }

    /// Signals that the calibration has handled.
    pub(in crate::sampler) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Has a timer expire soon, for the calibration; never, if `after_ns` is 0.
    pub(in crate::sampler) fn expire_in(&self, after_ns: u64) {
        match after_ns {
            0 => self.pace.stop(),
            after_ns => self.pace.expire_in(after_ns),
        }
    }

    /// Time between samples now.
    pub(in crate::sampler) fn period_ns(&self) -> u64 {
        self.pace.period_ns()
    }

    /// A timer has expired. Gives the sample that is due, or `None` if the thread was without a processor or waited. `cpu_ns` is the thread's CPU time, `in_guest` whether
    /// compiled code was interrupted, `may_wait` whether it may have waited for something else than a processor. To be called in
    /// the handler.
    pub(in crate::sampler) fn expired(
        &self,
        timer: TimerClock,
        cpu_ns: u64,
        in_guest: bool,
        may_wait: bool,
    ) -> Option<Due> {
        let used_ns = match self.pace.on_expiry(timer, cpu_ns, may_wait) {
            Expired::Sample { used_ns } => used_ns,
            Expired::Preempted => {
                add(&self.counts.fired, 1);
                add(&self.counts.preempted, 1);
                return None;
            }
            Expired::Waited => {
                add(&self.counts.fired, 1);
                add(&self.counts.waited, 1);
                return None;
            }
            // Not counted: no sample was to come of it.
            Expired::Resting { rested_ns } => {
                add(&self.rested_ns, rested_ns);
                self.account();
                return None;
            }
        };
        add(&self.counts.fired, 1);
        let period_ns = self.pace.period_ns();
        add(&self.counts.periods_ns, period_ns);
        let (weight_ns, used_ns) = self.weight(used_ns, in_guest);
        Some(Due { weight_ns, used_ns, period_ns })
    }

    /// A sample has been taken, or could not be. `cpu_ns` is the thread's CPU time now that all is done. `spent` is asked now and
    /// then for what sampling has cost, but for the number of signals.
    ///
    /// # Safety
    /// To be called in the handler.
    pub(in crate::sampler) unsafe fn sampled(&self, cpu_ns: u64, spent: impl FnOnce() -> Spent) {
        // SAFETY: this is the handler, and nothing else touches it after the start.
        let governor = unsafe { &mut *self.governor.get() };
        let period_ns = governor.as_mut().map_or(self.pace.period_ns(), |governor| {
            let signals = self.counts.fired.load(Ordering::Relaxed);
            if signals - self.governed_at.load(Ordering::Relaxed) >= GOVERN_EVERY {
                self.governed_at.store(signals, Ordering::Relaxed);
                let spent = spent();
                // What went by unsampled pays for nothing.
                let guest_ns = spent.guest_ns.saturating_sub(self.rested_ns.load(Ordering::Relaxed));
                governor.adjust(Spent { signals, guest_ns, ..spent });
            }
            governor.period_ns()
        });
        self.pace.sampled(cpu_ns, period_ns);
        self.account();
    }

    /// By which the timers' signals are told from others.
    pub(in crate::sampler) fn owner(&self) -> u32 {
        self.pace.owner()
    }

    /// A timer has expired, or may have, where the thread runs no guest of the session.
    pub(in crate::sampler) fn expired_outside(&self) {
        self.pace.expired_outside();
    }

    /// Wasm goes on. If a timer found the thread waiting, it is set again; else this costs a load.
    pub(in crate::sampler) fn goes_on(&self) {
        self.pace.goes_on();
    }

    /// So much CPU time went by that was not the guest's: no sample stands for it. To be called where the handler cannot run, or
    /// in it.
    pub(in crate::sampler) fn leave_out(&self, ns: u64) {
        self.pace.leave_out(ns);
    }

    /// With [`Clock::Wall`], begins the time that the next sample stands for. To be called as [`Timers::leave_out`] is.
    pub(in crate::sampler) fn account(&self) {
        if self.wall.load(Ordering::Relaxed) {
            self.accounted_ns.store(monotonic_ns(), Ordering::Relaxed);
            self.accounted_waits.store(voluntary_waits(), Ordering::Relaxed);
        }
    }

    /// What the user should know of the rate. To be called when no signal is answered any more.
    ///
    /// # Safety
    /// The handler must not be at work, nor begin to be.
    pub(in crate::sampler) unsafe fn rate_note(&self) -> Option<String> {
        // SAFETY: the caller's promise.
        unsafe { &*self.governor.get() }.as_ref()?.note()
    }

    /// The time that a sample stands for, and what of it is CPU time, of a thread that has used so much since the last. With [`Clock::Wall`]
    /// what it has waited for a processor is added, if it has not waited for anything else meanwhile: then it stood where
    /// it was without one. Its other waits are seen from outside.
    fn weight(&self, used_ns: u64, in_guest: bool) -> (u64, u64) {
        let most_ns = if in_guest { MAX_PERIODS * self.pace.period_ns() } else { u64::MAX };
        let counted_ns = used_ns.min(most_ns);
        let has_waited = || voluntary_waits() != self.accounted_waits.load(Ordering::Relaxed);
        if !self.wall.load(Ordering::Relaxed) || has_waited() {
            return (counted_ns, counted_ns);
        }
        let since_ns = monotonic_ns().saturating_sub(self.accounted_ns.load(Ordering::Relaxed));
        (counted_ns + since_ns.saturating_sub(used_ns), counted_ns)
    }
}
