//! When a thread is interrupted next: at instants of its own CPU time, by an event that the kernel counts for it.
//!
//! Instants are of the time that the event counts, so that it and [`Pace::has_passed`] agree. The event reports those in user code. In the
//! kernel it sends no signal, so that no wait is cut short: an instant there is found by the host call in which it was, when that returns,
//! or by the guest, when it calls the host.
//!
//! # Accuracy
//! A signal comes late, by 20 to 60 µs in a virtual machine. So it finds the thread at its instant plus that much, and whoever looks for
//! instants that no signal has reported adds as much ([`Lateness`]). All are late alike then, and still anywhere in the thread's time. Without
//! that, the first microseconds of a guest that wakes for 50 µs were given to the wait before, and the last to the next. How late they are is
//! measured before the guest begins: where it always sleeps again before they come, none would say.
//!
//! Where the system refuses events another thread asks for samples, at instants of wall time that find this thread running
//! (`transport/ticker.rs`).

use super::super::os::clock::monotonic_ns;
use super::super::os::cpu_event::{CpuEvent, MIN_AFTER_NS};
use super::instants::Instants;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many times as late as they are on average signals may be, with few exceptions. What is taken to have none before it comes is given to
/// whoever calls the host at that moment.
const LATEST: u64 = 4;

/// What a signal calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Signalled {
    /// A sample of so many instants.
    Sample { instants: u64 },
    /// Nothing: nobody wants samples now, or the signal was on its way when the event was set again.
    Nothing,
    /// Samples are wanted again from here on; for so much CPU time none were.
    Begins { rested_ns: u64 },
}

/// The instants of one thread. Used on that thread only, except [`Pace::stop`], [`Pace::rest`] and [`Pace::resume`].
pub(in crate::sampler) struct Pace {
    /// `None` if another thread asks for samples.
    event: Option<CpuEvent>,
    /// By what the event counts. Touched in the handler, or with the signal blocked.
    instants: Cell<Instants>,
    /// That count when it was last read. Touched as `instants` is.
    counted_ns: Cell<u64>,
    /// The next of them.
    due_ns: AtomicU64,
    /// Up to this time of the monotonic clock the next instant cannot have passed: no thread uses more CPU time than goes by.
    not_before_ns: AtomicU64,
    /// A signal that comes earlier was sent before the event was set.
    set_until_ns: AtomicU64,
    /// How late signals come.
    lateness: Lateness,
    /// The next instant had passed when the guest called the host, and its signal may still come.
    awaits_signal: AtomicBool,
    /// CPU time when the last sample had been taken.
    sampled_ns: AtomicU64,
    /// Time between samples, as the governor has it now.
    period_ns: AtomicU64,
    /// Nobody wants samples.
    rests: AtomicBool,
    /// Samples are wanted again: the next signal begins anew.
    begins: AtomicBool,
}

impl Pace {
    /// A pace for the calling thread, which is not interrupted yet.
    pub(in crate::sampler) fn new(event: Option<CpuEvent>) -> Self {
        Self {
            event,
            instants: Cell::new(Instants::new(0, 1)),
            counted_ns: Cell::new(0),
            due_ns: AtomicU64::new(0),
            not_before_ns: AtomicU64::new(u64::MAX),
            set_until_ns: AtomicU64::new(0),
            lateness: Lateness::default(),
            awaits_signal: AtomicBool::new(false),
            sampled_ns: AtomicU64::new(0),
            period_ns: AtomicU64::new(u64::MAX),
            rests: AtomicBool::new(false),
            begins: AtomicBool::new(false),
        }
    }

    /// The event, if the thread has one.
    pub(in crate::sampler) fn event(&self) -> Option<&CpuEvent> {
        self.event.as_ref()
    }

    /// Begins: the first instant is somewhere within a period of `period_ns`. `cpu_ns` is the thread's CPU time.
    ///
    /// Call this on the thread, in the handler or with the signal blocked.
    pub(in crate::sampler) fn start(&self, cpu_ns: u64, period_ns: u64) {
        self.period_ns.store(period_ns, Ordering::Relaxed);
        self.sampled_ns.store(cpu_ns, Ordering::Relaxed);
        self.keep(Instants::new(self.read_count(), period_ns));
        self.set();
    }

    /// No signal is sent any more, except one that is on its way. From any thread.
    pub(in crate::sampler) fn stop(&self) {
        self.event.iter().for_each(CpuEvent::unset);
    }

    /// No signal is sent any more, until [`Pace::resume`]. From any thread.
    pub(in crate::sampler) fn rest(&self) {
        self.rests.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Samples are wanted again. From any thread.
    pub(in crate::sampler) fn resume(&self) {
        self.begins.store(true, Ordering::SeqCst);
        self.rests.store(false, Ordering::SeqCst);
        self.event.iter().for_each(|event| event.set(MIN_AFTER_NS));
    }

    /// Has the event happen soon, whatever is due: for measuring what that costs, and how late its signals come.
    pub(in crate::sampler) fn expire_in(&self, after_ns: u64) {
        let Some(event) = &self.event else { return };
        self.due_ns.store(event.count_ns() + after_ns.max(MIN_AFTER_NS), Ordering::Relaxed);
        event.set(after_ns);
    }

    /// How long ago it was to happen when its signal was handled. Call this in the handler.
    pub(in crate::sampler) fn expired_ago_ns(&self) -> u64 {
        let count_ns = self.event.as_ref().map_or(0, CpuEvent::count_ns);
        count_ns.saturating_sub(self.due_ns.load(Ordering::Relaxed))
    }

    /// Signals interrupt the thread so long after their instants, and their handler sees it so much later.
    pub(in crate::sampler) fn are_late(&self, late_ns: u64, handling_ns: u64) {
        self.lateness.begin(late_ns, handling_ns);
    }

    /// What the user should know of a thread that runs for `burst_ns` from one wait to the next: whether it often waits again before a signal finds
    /// it at work.
    pub(in crate::sampler) fn bursts_note(&self, burst_ns: u64) -> Option<String> {
        let late_ns = self.lateness.ns();
        (burst_ns < LATEST * late_ns).then(|| {
            format!(
                "the guest runs for {} µs between waits, and samples come {} µs late on this machine: some of its work is shown where it waits \
                 or calls the host",
                burst_ns / 1000,
                late_ns / 1000
            )
        })
    }

    /// Time between samples now.
    pub(in crate::sampler) fn period_ns(&self) -> u64 {
        self.period_ns.load(Ordering::Relaxed)
    }

    /// What a signal calls for that the event has sent, or that another thread has for `asked` instants. `cpu_ns` is the thread's CPU
    /// time. Call this in the handler.
    pub(in crate::sampler) fn on_signal(&self, asked: u64, cpu_ns: u64) -> Signalled {
        if self.rests.load(Ordering::SeqCst) {
            return Signalled::Nothing;
        }
        if self.begins.swap(false, Ordering::SeqCst) {
            let rested_ns = cpu_ns.saturating_sub(self.sampled_ns.load(Ordering::Relaxed));
            self.start(cpu_ns, self.period_ns());
            return Signalled::Begins { rested_ns };
        }
        if self.event.is_none() {
            return if asked > 0 { Signalled::Sample { instants: asked } } else { Signalled::Nothing };
        }
        if monotonic_ns() < self.set_until_ns.load(Ordering::Relaxed) {
            return Signalled::Nothing;
        }
        let count_ns = self.read_count();
        self.lateness.note(count_ns.saturating_sub(self.due_ns.load(Ordering::Relaxed)));
        let instants = self.pass(count_ns).unwrap_or_else(|| {
            // It is early: signals are not late alike, and what took the processor's time counts for the event's timer, and not for its count.
            let mut instants = self.instants.get();
            instants.take(self.period_ns());
            self.keep(instants);
            1
        });
        Signalled::Sample { instants }
    }

    /// Whether an instant may have passed that no signal has reported. Costs a look at the monotonic clock.
    pub(in crate::sampler) fn may_have_passed(&self) -> bool {
        let not_before_ns = self.not_before_ns.load(Ordering::Relaxed);
        not_before_ns < u64::MAX && monotonic_ns() >= not_before_ns
    }

    /// Whether the next instant has passed. If not, [`Pace::may_have_passed`] is `false` for as long as that cannot be.
    pub(in crate::sampler) fn has_passed(&self) -> bool {
        let Some(event) = &self.event else { return false };
        if self.rests.load(Ordering::SeqCst) || self.begins.load(Ordering::SeqCst) {
            // The first signal begins.
            self.not_before_ns.store(u64::MAX, Ordering::Relaxed);
            return false;
        }
        // Should the handler come in between, the time is too early or too late once, and the next signal puts it right.
        let missing_ns = self.reported_ns().saturating_sub(event.count_ns());
        if missing_ns > 0 {
            self.not_before_ns.store(monotonic_ns() + missing_ns, Ordering::Relaxed);
        }
        missing_ns == 0
    }

    /// Whether the next instant has passed in the guest, which is about to call the host: for so long that no signal reports it any more.
    pub(in crate::sampler) fn has_passed_in_guest(&self) -> bool {
        let has_passed = self.has_passed();
        let has_long_passed = has_passed && self.has_long_passed();
        self.awaits_signal.store(has_passed && !has_long_passed, Ordering::Relaxed);
        has_long_passed
    }

    /// Whether the next instant has passed in the host call that returns. One that had passed when the call began is not one in it.
    pub(in crate::sampler) fn has_passed_in_call(&self) -> bool {
        if self.awaits_signal.swap(false, Ordering::Relaxed) { self.has_long_passed() } else { self.has_passed() }
    }

    /// Whether the next instant passed so long ago that no signal reports it any more.
    fn has_long_passed(&self) -> bool {
        let last_ns = self.due_ns.load(Ordering::Relaxed).saturating_add(LATEST * self.lateness.ns());
        self.event.as_ref().is_some_and(|event| event.count_ns() >= last_ns)
    }

    /// How many instants have passed that no signal has reported, if any have.
    ///
    /// Call this on the thread with the signal blocked, and [`Pace::goes_on`] when what has to be done is done.
    pub(in crate::sampler) fn pass_unsignalled(&self) -> Option<u64> {
        if self.has_passed() { self.pass(self.read_count()) } else { None }
    }

    /// The count at which the next instant has been reported, if no signal is later than others.
    fn reported_ns(&self) -> u64 {
        self.due_ns.load(Ordering::Relaxed).saturating_add(self.lateness.ns())
    }

    fn pass(&self, count_ns: u64) -> Option<u64> {
        let mut instants = self.instants.get();
        let passed = instants.pass(count_ns.saturating_sub(self.lateness.ns()), self.period_ns());
        self.keep(instants);
        (passed > 0).then_some(passed)
    }

    fn read_count(&self) -> u64 {
        let count_ns = self.event.as_ref().map_or(0, CpuEvent::count_ns);
        self.counted_ns.set(count_ns);
        count_ns
    }

    fn keep(&self, instants: Instants) {
        self.due_ns.store(instants.due_ns(), Ordering::Relaxed);
        self.instants.set(instants);
    }

    /// The thread goes on with what is sampled, and has used `cpu_ns`: there are no instants since it was asked for some. Sets the event for the
    /// next one. Instants after that one are `period_ns` apart.
    ///
    /// Call this in the handler or with the signal blocked.
    pub(in crate::sampler) fn goes_on(&self, cpu_ns: u64, period_ns: u64) {
        self.period_ns.store(period_ns, Ordering::Relaxed);
        self.sampled_ns.store(cpu_ns, Ordering::Relaxed);
        // Nothing, if the event has rested.
        let before_ns = self.counted_ns.get();
        self.leave_out(self.read_count().saturating_sub(before_ns));
        if !self.rests.load(Ordering::SeqCst) {
            self.set();
        }
    }

    /// So much CPU time went by that was not the guest's: it has no instants. Call this as [`Pace::goes_on`].
    pub(in crate::sampler) fn leave_out(&self, ns: u64) {
        let mut instants = self.instants.get();
        instants.leave_out(ns);
        self.keep(instants);
    }

    /// Sets the event for the next instant, or to begin if samples are wanted again. Call this as [`Pace::goes_on`].
    pub(in crate::sampler) fn set_again(&self) {
        if self.begins.load(Ordering::SeqCst) {
            self.event.iter().for_each(|event| event.set(MIN_AFTER_NS));
        } else if !self.rests.load(Ordering::SeqCst) {
            self.read_count();
            self.set();
        }
    }

    /// Sets the event. Its count has just been read.
    fn set(&self) {
        // That was of the instant before.
        self.awaits_signal.store(false, Ordering::Relaxed);
        let Some(event) = &self.event else { return };
        let missing_ns = self.due_ns.load(Ordering::Relaxed).saturating_sub(self.counted_ns.get());
        let now_ns = monotonic_ns();
        self.not_before_ns.store(now_ns + missing_ns + self.lateness.ns(), Ordering::Relaxed);
        self.lateness.signal_is_exact(missing_ns >= MIN_AFTER_NS);
        self.set_until_ns.store(now_ns + missing_ns.max(MIN_AFTER_NS), Ordering::Relaxed);
        event.set(missing_ns);
    }
}

/// How much later than their instants the signals of an event interrupt a thread, on average.
#[derive(Default)]
struct Lateness {
    average_ns: AtomicU64,
    /// What it was before the guest began, and what it does not fall below: of a guest that calls the host often the latest ones are not seen.
    least_ns: AtomicU64,
    /// From there on, until the handler asks for the time.
    handling_ns: AtomicU64,
    /// The event has been set for the instant itself, and not for later, since it was too near.
    is_exact: AtomicBool,
}

impl Lateness {
    /// What is later had another reason, as a machine's host that takes the processor away.
    const MAX_NS: u64 = 200_000;
    /// A signal counts for one in so many.
    const SIGNALS: u64 = 16;

    fn ns(&self) -> u64 {
        self.average_ns.load(Ordering::Relaxed).max(self.least_ns.load(Ordering::Relaxed))
    }

    fn signal_is_exact(&self, is_exact: bool) {
        self.is_exact.store(is_exact, Ordering::Relaxed);
    }

    /// So late signals were where that was measured.
    fn begin(&self, late_ns: u64, handling_ns: u64) {
        self.average_ns.store(late_ns.min(Self::MAX_NS), Ordering::Relaxed);
        self.least_ns.store(late_ns.min(Self::MAX_NS), Ordering::Relaxed);
        self.handling_ns.store(handling_ns.min(Self::MAX_NS), Ordering::Relaxed);
    }

    /// The handler of a signal has asked for the time so late.
    fn note(&self, late_ns: u64) {
        let late_ns = late_ns.saturating_sub(self.handling_ns.load(Ordering::Relaxed));
        if late_ns > Self::MAX_NS || !self.is_exact.swap(false, Ordering::Relaxed) {
            return;
        }
        let before_ns = self.average_ns.load(Ordering::Relaxed);
        let average_ns =
            if before_ns == 0 { late_ns } else { (before_ns * (Self::SIGNALS - 1) + late_ns) / Self::SIGNALS };
        self.average_ns.store(average_ns, Ordering::Relaxed);
    }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::super::super::os::clock::own_cpu_ns;
    use super::super::super::os::own_thread::{SignalBlocked, unblock_signal};
    use super::*;
    use std::io::Read as _;

    const PERIOD_NS: u64 = 1_000_000;

    fn event() -> CpuEvent {
        CpuEvent::new().unwrap_or_else(|error| {
            panic!("perf_event_open: {error}; set kernel.perf_event_paranoid to 2 or less, where no filter refuses it")
        })
    }

    /// Has the kernel work for this thread until it has used so much CPU time.
    fn work_in_the_kernel(ns: u64) {
        let until_ns = own_cpu_ns() + ns;
        let mut zeroes = std::fs::File::open("/dev/zero").unwrap();
        let mut bytes = vec![0; 1 << 20];
        while own_cpu_ns() < until_ns {
            zeroes.read_exact(&mut bytes).unwrap();
        }
    }

    #[test]
    fn instants_in_the_kernel_are_found_by_who_asks() {
        // The handler would take them.
        let _no_signal = SignalBlocked::new();
        let pace = Pace::new(Some(event()));
        assert!(!pace.may_have_passed());
        pace.start(own_cpu_ns(), PERIOD_NS);
        work_in_the_kernel(10 * PERIOD_NS);
        assert!(pace.may_have_passed() && pace.has_passed());
        let passed = pace.pass_unsignalled().unwrap();
        assert!((8..=200).contains(&passed), "{passed} of ten periods, or more on a machine that takes its time");
        pace.goes_on(own_cpu_ns(), 1000 * PERIOD_NS);
        // One instant is left of the period that had begun. The next one is in a long period.
        work_in_the_kernel(3 * PERIOD_NS);
        assert!(pace.pass_unsignalled().is_some());
        pace.goes_on(own_cpu_ns(), 1000 * PERIOD_NS);
        assert_eq!(pace.pass_unsignalled(), None);
        pace.rest();
        pace.resume();
        assert!(!pace.has_passed(), "the first signal begins");
    }

    #[test]
    fn lateness_is_the_average_of_signals_that_the_event_was_set_for() {
        let lateness = Lateness::default();
        lateness.note(7_000);
        assert_eq!(lateness.ns(), 0, "the event was set for later");
        let note = |late_ns| {
            lateness.signal_is_exact(true);
            lateness.note(late_ns);
        };
        note(40_000);
        assert_eq!(lateness.ns(), 40_000);
        (0..200).for_each(|_| note(20_000));
        assert!((20_000..20_100).contains(&lateness.ns()), "{}", lateness.ns());
        lateness.begin(20_000, 7_000);
        note(27_000);
        assert_eq!(lateness.ns(), 20_000, "the handler's own time is not the signal's");
        (0..200).for_each(|_| note(12_000));
        assert_eq!(lateness.ns(), 20_000, "it was measured where all are seen");
        note(5_000_000);
        assert!((20_000..20_100).contains(&lateness.ns()), "the machine's host had the processor");
    }

    #[test]
    fn bursts_that_end_before_a_signal_comes_are_noted() {
        let pace = Pace::new(None);
        assert_eq!(pace.bursts_note(0), None, "signals are not late");
        pace.are_late(50_000, 0);
        assert_eq!(pace.bursts_note(1_000_000), None);
        let note = pace.bursts_note(16_000).unwrap();
        assert!(note.contains("for 16 µs between waits, and samples come 50 µs late"), "{note}");
    }

    #[test]
    fn what_is_asked_for_is_sampled_where_there_is_no_event() {
        let pace = Pace::new(None);
        pace.start(own_cpu_ns(), PERIOD_NS);
        assert!(!pace.may_have_passed() && !pace.has_passed());
        assert_eq!(pace.on_signal(0, own_cpu_ns()), Signalled::Nothing);
        assert_eq!(pace.on_signal(2, own_cpu_ns()), Signalled::Sample { instants: 2 });
        pace.rest();
        assert_eq!(pace.on_signal(1, own_cpu_ns()), Signalled::Nothing);
        pace.resume();
        assert!(matches!(pace.on_signal(1, own_cpu_ns()), Signalled::Begins { .. }));
        assert_eq!(pace.on_signal(1, own_cpu_ns()), Signalled::Sample { instants: 1 });
    }

    #[test]
    fn a_signal_from_before_the_event_was_set_is_none() {
        let _no_signal = SignalBlocked::new();
        let pace = Pace::new(Some(event()));
        pace.start(own_cpu_ns(), 1000 * PERIOD_NS);
        pace.goes_on(own_cpu_ns(), 1000 * PERIOD_NS);
        if pace.due_ns.load(Ordering::Relaxed) > 100 * PERIOD_NS {
            assert_eq!(pace.on_signal(0, own_cpu_ns()), Signalled::Nothing);
        }
    }

    /// Whatever the event does while a thread runs, it does nothing while it sleeps.
    #[test]
    fn no_sleep_is_cut_short() {
        crate::sampler::transport::signal::handler::install().unwrap();
        unblock_signal().unwrap();
        let event = event();
        event.set(0);
        for _ in 0..200 {
            let until_ns = own_cpu_ns() + PERIOD_NS / 10;
            while own_cpu_ns() < until_ns {}
            let sleep = libc::timespec { tv_sec: 0, tv_nsec: PERIOD_NS as libc::c_long };
            // SAFETY: `sleep` is valid for the call, and what is left of it is not asked for.
            let slept = unsafe { libc::nanosleep(&sleep, std::ptr::null_mut()) };
            assert_eq!(slept, 0, "{}", std::io::Error::last_os_error());
        }
        event.unset();
    }
}
