//! When threads are sampled, what a sample stands for, what sampling may cost. Waits are in `drain/waits.rs`. What threads have to answer
//! that call back by themselves is in `ticks.rs`.

mod conserved;
mod governor;
mod instants;
mod pace;
mod ticks;

pub(in crate::sampler) use conserved::Conserved;
pub(in crate::sampler) use governor::Spent;
pub(in crate::sampler) use instants::Instants;
pub(in crate::sampler) use pace::Pace;
pub(in crate::sampler) use ticks::{Answers, Delays};

use super::options::SamplerOptions;
use super::os::clock::{monotonic_ns, own_cpu_ns};
use super::os::cpu_event::CpuEvent;
use super::os::own_thread::{SignalBlocked, voluntary_waits};
use governor::Governor;
use pace::Signalled;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wlprof_recording::Clock;

/// Periods that one sample of a recording may stand for: what stands for more is several.
pub(in crate::sampler) const MAX_PERIODS: u64 = 4;

/// Signals between two looks of the governor.
const GOVERN_EVERY: u64 = 32;

/// What interrupts a thread, and what governs it.
pub(in crate::sampler) struct Timers {
    /// Waits count, too: see [`Clock::Wall`].
    wall: AtomicBool,
    /// With [`Clock::Wall`], when the last sample was taken, what CPU time the thread had used, and how often it had waited of its own accord.
    accounted_ns: AtomicU64,
    accounted_cpu_ns: AtomicU64,
    accounted_waits: AtomicU64,
    pace: Pace,
    /// Touched in the handler, or with the signal blocked.
    governor: UnsafeCell<Option<Governor>>,
    conserved: Conserved,
    /// CPU time in stores that samples stand for none of: what sampling took.
    left_out_ns: AtomicU64,
    /// CPU time in which nobody wanted samples.
    rested_ns: AtomicU64,
    /// Signals when the governor last looked.
    governed_at: AtomicU64,
    pub(in crate::sampler) counts: SignalCounts,
    /// While set, signals are counted and nothing is sampled.
    calibrating: AtomicBool,
    /// Signals that the calibration has handled, and how late it was when the last one was.
    handled: AtomicU64,
    expired_ago_ns: AtomicU64,
}

/// What became of the instants.
#[derive(Default)]
pub(in crate::sampler) struct SignalCounts {
    /// Those that called for a sample.
    pub(in crate::sampler) fired: AtomicU64,
    /// Sum of the periods that were set then, in nanoseconds.
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

/// What an interrupt is like on this machine, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sampler) struct Interrupt {
    /// What it takes from the thread.
    pub(in crate::sampler) cost_ns: u64,
    /// How long after its instant it comes.
    pub(in crate::sampler) late_ns: u64,
    /// From there on, until the handler asks for the time.
    pub(in crate::sampler) handling_ns: u64,
}

/// Adds to a counter that one thread alone writes.
pub(in crate::sampler) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

// SAFETY: beside `governor` and what `pace` keeps for its thread everything is atomic or synchronized by itself; those two are
// touched on the timers' own thread only, in the handler or with the signal blocked, or when the handler is not at work and will not be.
unsafe impl Sync for Timers {}

impl Timers {
    /// What interrupts the calling thread, not yet set: its own `event`, or another thread where there is none.
    pub(in crate::sampler) fn new(clock: Clock, event: Option<CpuEvent>) -> Self {
        Self {
            wall: AtomicBool::new(clock == Clock::Wall),
            accounted_ns: AtomicU64::new(0),
            accounted_cpu_ns: AtomicU64::new(0),
            accounted_waits: AtomicU64::new(0),
            pace: Pace::new(event),
            governor: UnsafeCell::new(None),
            conserved: Conserved::default(),
            left_out_ns: AtomicU64::new(0),
            rested_ns: AtomicU64::new(0),
            governed_at: AtomicU64::new(0),
            counts: SignalCounts::default(),
            calibrating: AtomicBool::new(true),
            handled: AtomicU64::new(0),
            expired_ago_ns: AtomicU64::new(0),
        }
    }

    /// Ends the calibration, which has found `interrupt`: from here on signals may become samples. Call this on the timers' thread.
    pub(in crate::sampler) fn start(&self, options: &SamplerOptions, interrupt: Interrupt) {
        self.pace.stop();
        self.pace.are_late(interrupt.late_ns, interrupt.handling_ns);
        let _no_signal = SignalBlocked::new();
        let governor = Governor::new(options, interrupt.cost_ns);
        let period_ns = governor.period_ns();
        // SAFETY: the handler is the only other user, and the signal is blocked.
        unsafe { *self.governor.get() = Some(governor) };
        self.account();
        self.calibrating.store(false, Ordering::SeqCst);
        self.pace.start(own_cpu_ns(), period_ns);
    }

    /// No signal is sent any more, except one that is on its way. From any thread.
    pub(in crate::sampler) fn stop(&self) {
        self.pace.stop();
    }

    /// No signal is sent any more, until [`Timers::resume`]. From any thread; the handler may still be at work.
    pub(in crate::sampler) fn rest(&self) {
        self.pace.rest();
    }

    /// Samples are wanted again, or from here on of another clock. From any thread.
    pub(in crate::sampler) fn resume(&self, clock: Clock) {
        self.wall.store(clock == Clock::Wall, Ordering::SeqCst);
        self.pace.resume();
    }

    /// The event that interrupts the thread; `None` if another thread does.
    pub(in crate::sampler) fn event(&self) -> Option<&CpuEvent> {
        self.pace.event()
    }

    /// Counts a signal, if the calibration is still going on.
    pub(in crate::sampler) fn calibrates(&self) -> bool {
        let calibrating = self.calibrating.load(Ordering::Relaxed);
        if calibrating {
            self.expired_ago_ns.store(self.pace.expired_ago_ns(), Ordering::Relaxed);
            add(&self.handled, 1);
        }
        calibrating
    }

    /// Signals that the calibration has handled.
    pub(in crate::sampler) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// How long ago the event was to happen when its last signal was handled, in the calibration.
    pub(in crate::sampler) fn expired_ago_ns(&self) -> u64 {
        self.expired_ago_ns.load(Ordering::Relaxed)
    }

    /// Has the event happen again and again after so long, for the calibration.
    pub(in crate::sampler) fn expire_in(&self, after_ns: u64) {
        self.pace.expire_in(after_ns);
    }

    /// Time between samples now.
    pub(in crate::sampler) fn period_ns(&self) -> u64 {
        self.pace.period_ns()
    }

    /// The event has sent a signal, or another thread has for `asked` instants. Gives the sample that is due, if one is. `cpu_ns` is the thread's
    /// CPU time, `in_stores_ns` what of that was in stores, `in_guest` whether
    /// compiled code was interrupted. Call this in the handler.
    pub(in crate::sampler) fn on_signal(
        &self,
        asked: u64,
        cpu_ns: u64,
        in_stores_ns: u64,
        in_guest: bool,
    ) -> Option<Due> {
        match self.pace.on_signal(asked, cpu_ns) {
            Signalled::Sample { instants } => Some(self.due(instants, in_stores_ns, in_guest)),
            Signalled::Nothing => None,
            Signalled::Begins { rested_ns } => {
                self.begin(rested_ns, in_stores_ns);
                None
            }
        }
    }

    /// As [`Timers::on_signal`], where nothing is to be sampled.
    pub(in crate::sampler) fn pass_over(&self, asked: u64, cpu_ns: u64, in_stores_ns: u64) {
        if let Signalled::Begins { rested_ns } = self.pace.on_signal(asked, cpu_ns) {
            self.begin(rested_ns, in_stores_ns);
        }
    }

    fn begin(&self, rested_ns: u64, in_stores_ns: u64) {
        add(&self.rested_ns, rested_ns);
        self.account();
        self.conserved.begin(self.sampleable_ns(in_stores_ns));
    }

    /// Whether an instant may have passed that no signal has reported. Costs a look at the monotonic clock.
    pub(in crate::sampler) fn may_have_passed(&self) -> bool {
        self.pace.may_have_passed()
    }

    /// The thread's signals are answered by this from here on: sets what rested meanwhile. Call this on the thread with the signal blocked.
    pub(in crate::sampler) fn set_again(&self) {
        if !self.calibrating.load(Ordering::Relaxed) {
            self.pace.set_again();
        }
    }

    /// Whether the next instant has passed. If not, it is not asked again before it may have.
    pub(in crate::sampler) fn has_passed(&self) -> bool {
        self.pace.has_passed()
    }

    /// Whether the next instant has passed in the guest, which is about to call the host.
    pub(in crate::sampler) fn has_passed_in_guest(&self) -> bool {
        self.pace.has_passed_in_guest()
    }

    /// Whether it has passed in the host call that returns.
    pub(in crate::sampler) fn has_passed_in_call(&self) -> bool {
        self.pace.has_passed_in_call()
    }

    /// How many instants have passed that no signal has reported, if any have: [`Timers::due`] makes a sample of them. Call this on the
    /// thread with the signal blocked, and then [`Timers::goes_on`].
    pub(in crate::sampler) fn pass_unsignalled(&self) -> Option<u64> {
        self.pace.pass_unsignalled()
    }

    /// A sample of so many instants. In the guest's code no more than [`MAX_PERIODS`] of them count: the others passed where nobody looked.
    pub(in crate::sampler) fn due(&self, instants: u64, in_stores_ns: u64, in_guest: bool) -> Due {
        let period_ns = self.pace.period_ns();
        add(&self.counts.fired, 1);
        add(&self.counts.periods_ns, period_ns);
        let too_many = if in_guest { instants.saturating_sub(MAX_PERIODS) } else { 0 };
        self.leave_out(too_many * period_ns);
        let instants = instants - too_many;
        let weight_ns = self.conserved.give(instants * period_ns, self.sampleable_ns(in_stores_ns));
        Due { weight_ns, used_ns: weight_ns, period_ns }
    }

    /// The sample `due` of a thread that has used `cpu_ns`: with [`Clock::Wall`] it stands for what the thread has waited for a processor, too,
    /// since the sample before. If it has waited for nothing else meanwhile, that is what both clocks differ by; else what another thread
    /// has `seen` of it.
    pub(in crate::sampler) fn with_wait(&self, due: Due, cpu_ns: u64, seen: impl FnOnce() -> u64) -> Due {
        if !self.wall.load(Ordering::Relaxed) {
            return due;
        }
        let since_ns = monotonic_ns().saturating_sub(self.accounted_ns.load(Ordering::Relaxed));
        let used_ns = cpu_ns.saturating_sub(self.accounted_cpu_ns.load(Ordering::Relaxed));
        let has_waited = voluntary_waits() != self.accounted_waits.load(Ordering::Relaxed);
        let seen_ns = seen();
        let waited_ns = if has_waited { seen_ns } else { since_ns.saturating_sub(used_ns) };
        Due { weight_ns: due.weight_ns + waited_ns, ..due }
    }

    /// With [`Clock::Wall`], begins the time in which the thread may wait for a processor. Call this on the thread.
    pub(in crate::sampler) fn account(&self) {
        if self.wall.load(Ordering::Relaxed) {
            self.accounted_ns.store(monotonic_ns(), Ordering::Relaxed);
            self.accounted_cpu_ns.store(own_cpu_ns(), Ordering::Relaxed);
            self.accounted_waits.store(voluntary_waits(), Ordering::Relaxed);
        }
    }

    fn sampleable_ns(&self, in_stores_ns: u64) -> u64 {
        in_stores_ns.saturating_sub(self.left_out_ns.load(Ordering::Relaxed))
    }

    /// What had to be done is done, with or without a sample: the thread goes on, and has used `cpu_ns`. `spent` is asked now and then for what
    /// sampling has cost, without the number of signals.
    ///
    /// # Safety
    /// Call this on the timers' thread, in the handler or with the signal blocked.
    pub(in crate::sampler) unsafe fn goes_on(&self, cpu_ns: u64, spent: impl FnOnce() -> Spent) {
        // SAFETY: this thread is the only one that touches it, and the handler does not interrupt this.
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
        self.account();
        self.pace.goes_on(cpu_ns, period_ns);
    }

    /// So much CPU time went by in stores that no sample stands for.
    pub(in crate::sampler) fn leave_out(&self, ns: u64) {
        add(&self.left_out_ns, ns);
    }

    /// As [`Timers::leave_out`]: nor is there to be any instant in it. Call this as [`Timers::goes_on`].
    pub(in crate::sampler) fn leave_out_instants(&self, ns: u64) {
        /// What is shorter is not worth setting the event again for.
        const SHORT_NS: u64 = 50_000;
        self.leave_out(ns);
        self.account();
        self.pace.leave_out(ns);
        if ns > SHORT_NS {
            self.pace.set_again();
        }
    }

    /// What the user should know of a thread that has used so much CPU time and has waited so often.
    pub(in crate::sampler) fn bursts_note(&self, cpu_ns: u64, waits: u64) -> Option<String> {
        let burst_ns = cpu_ns.checked_div(waits).filter(|_| !self.wall.load(Ordering::Relaxed))?;
        self.pace.bursts_note(burst_ns)
    }

    /// What the user should know of the rate. Call this when no signal is answered any more.
    ///
    /// # Safety
    /// The handler must not be at work, nor begin to be.
    pub(in crate::sampler) unsafe fn rate_note(&self) -> Option<String> {
        // SAFETY: the handler, which is the only other user, is not at work.
        unsafe { &*self.governor.get() }.as_ref()?.note()
    }
}
