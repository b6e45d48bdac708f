//! When the guest's thread is interrupted next, and for how much time a sample stands.
//!
//! The thread has two timers of its own. Up to the rate of the kernel's tick, one on its CPU clock is enough: it expires
//! while the thread runs, costs next to nothing, and does not care what else the machine does. Above that, one on the
//! monotonic clock is set to when the thread will have used its period if it goes on running. Should it be found to have
//! run for less, it has been without a processor, and the timer is set for the rest; or it waits in host code, and is
//! left alone until that is over ([`Pace::goes_on`]).
//!
//! A thread that runs guests for moments, as a server's does, would find the monotonic timer expired between two of them again and again.
//! Where it has expired there, ticks have to do from then on.
//!
//! # Accuracy
//! The kernel's ticks come at a steady rate. A guest that is woken by them, or does something in step with them, is not seen
//! evenly at rates that are near it; above them times are jittered.
//!
//! A sample stands for the CPU time since the sample before. In the guest's code it never stands for more than
//! [`MAX_PERIODS`]: what is beyond that was spent where nobody looked, and is told as such. In host code it does, since the
//! kernel delivers a signal when the system call ends in which that time went by.

use super::super::os::TimerClock;
use super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::os::thread_timer::{ThreadTimer, kernel_tick_ns};
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Periods that one sample may stand for.
pub(in crate::sampler) const MAX_PERIODS: u64 = 4;

/// What to do when a timer has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum Expired {
    /// Take a sample that stands for so much CPU time.
    Sample { used_ns: u64 },
    /// The thread was without a processor. The timer has been set for the rest.
    Preempted,
    /// The thread waited. It is looked at when it goes on.
    Waited,
    /// Nobody wants samples now, or wanted any until now.
    Resting { rested_ns: u64 },
}

/// The timers of one thread. Used on that thread alone, by the handler and by what it interrupts, but for
/// [`Pace::stop`], [`Pace::rest`] and [`Pace::resume`].
pub(in crate::sampler) struct Pace {
    /// By which the timers' signals are told from others: the thread may run guests of several sessions.
    owner: u32,
    cpu: ThreadTimer,
    fine: ThreadTimer,
    tick_ns: u64,
    /// CPU time at which the next sample is due.
    due_ns: AtomicU64,
    /// How much earlier it would be due, had the ones before come in time.
    behind_ns: AtomicU64,
    /// CPU time up to which samples stand for it.
    sampled_ns: AtomicU64,
    /// Time between samples, as the governor has it now.
    period_ns: AtomicU64,
    /// The fine timer found the thread in a host call that waits, or one of the timers expired outside of guests.
    waits: AtomicBool,
    /// It was outside.
    was_outside: AtomicBool,
    /// No timer is set: nobody wants samples.
    rests: AtomicBool,
    /// Samples are wanted again: the next expiry begins anew.
    begins: AtomicBool,
    jitter: Cell<Jitter>,
}

impl Pace {
    /// Timers for the calling thread, which are not set.
    ///
    /// # Errors
    /// If the system gives it none.
    pub(in crate::sampler) fn new() -> io::Result<Self> {
        static OWNERS: AtomicU32 = AtomicU32::new(0);
        let owner = OWNERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            owner,
            cpu: ThreadTimer::new(TimerClock::OwnCpu, owner)?,
            fine: ThreadTimer::new(TimerClock::Monotonic, owner)?,
            tick_ns: kernel_tick_ns(),
            due_ns: AtomicU64::new(0),
            behind_ns: AtomicU64::new(0),
            sampled_ns: AtomicU64::new(0),
            period_ns: AtomicU64::new(u64::MAX),
            waits: AtomicBool::new(false),
            was_outside: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            begins: AtomicBool::new(false),
            jitter: Cell::new(Jitter::new()),
        })
    }

    /// By which the timers' signals are told from others.
    pub(in crate::sampler) fn owner(&self) -> u32 {
        self.owner
    }

    /// Sets the timer for the first sample, somewhere within a period of `period_ns`.
    pub(in crate::sampler) fn start(&self, period_ns: u64) {
        let now = own_cpu_ns();
        self.period_ns.store(period_ns, Ordering::Relaxed);
        self.sampled_ns.store(now, Ordering::Relaxed);
        self.due_ns.store(now + self.random(|jitter| jitter.below(period_ns)), Ordering::Relaxed);
        self.set(now);
    }

    /// No timer expires any more, but for one that the handler is just setting. From any thread; a signal may be on its way.
    pub(in crate::sampler) fn stop(&self) {
        self.cpu.unset();
        self.fine.unset();
    }

    /// No timer expires any more, until [`Pace::resume`]. From any thread; a signal may be on its way.
    pub(in crate::sampler) fn rest(&self) {
        self.rests.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Samples are wanted again: the first is due within a period, when the thread has run for a tick. From any thread.
    pub(in crate::sampler) fn resume(&self) {
        self.begins.store(true, Ordering::SeqCst);
        self.rests.store(false, Ordering::SeqCst);
        // At the first tick that finds the thread running: what it waits for is not interrupted.
        self.cpu.set(1);
    }

    /// Has the monotonic timer expire soon, whatever is due: for measuring what that costs.
    pub(in crate::sampler) fn expire_in(&self, after_ns: u64) {
        self.fine.set(after_ns);
    }

    /// Time between samples now.
    pub(in crate::sampler) fn period_ns(&self) -> u64 {
        self.period_ns.load(Ordering::Relaxed)
    }

    /// What a timer that has expired calls for. `now_ns` is the thread's CPU time; `may_wait` says whether what was interrupted
    /// may have waited for something else than a processor.
    pub(in crate::sampler) fn on_expiry(&self, timer: TimerClock, now_ns: u64, may_wait: bool) -> Expired {
        if self.rests.load(Ordering::SeqCst) {
            return Expired::Resting { rested_ns: 0 };
        }
        if self.begins.swap(false, Ordering::SeqCst) {
            let rested_ns = now_ns.saturating_sub(self.sampled_ns.load(Ordering::Relaxed));
            self.behind_ns.store(0, Ordering::Relaxed);
            self.start(self.period_ns());
            return Expired::Resting { rested_ns };
        }
        let missing_ns = self.missing_ns(now_ns);
        // The CPU clock's timer expires at ticks, so that it cannot be in step with what is due. Wherever it hits, the
        // thread runs.
        if timer == TimerClock::OwnCpu || missing_ns <= self.period_ns() / 8 {
            let sampled_ns = self.sampled_ns.load(Ordering::Relaxed);
            return Expired::Sample { used_ns: now_ns.saturating_sub(sampled_ns) };
        }
        if !may_wait {
            self.set(now_ns);
            return Expired::Preempted;
        }
        // Where it goes on to wait, setting the timer again would do nothing but interrupt it. Host code that runs on
        // instead meets a tick of the CPU clock's.
        self.waits.store(true, Ordering::Relaxed);
        self.cpu.set(missing_ns);
        Expired::Waited
    }

    /// A sample has been taken, or could not be: the next is due a period on. `now_ns` is the thread's CPU time now, when
    /// all is done that the sample took: the guest is not charged with that.
    pub(in crate::sampler) fn sampled(&self, now_ns: u64, period_ns: u64) {
        self.period_ns.store(period_ns, Ordering::Relaxed);
        self.sampled_ns.store(now_ns, Ordering::Relaxed);
        // Counted from when this one would have been due, so that lateness is made up for; but the guest gets on in between.
        let behind_ns = self.behind_ns.load(Ordering::Relaxed);
        let wanted_ns = (self.due_ns.load(Ordering::Relaxed) + self.until_next(period_ns)).saturating_sub(behind_ns);
        let due_ns = wanted_ns.clamp(now_ns + period_ns / 2, now_ns + 2 * period_ns);
        self.due_ns.store(due_ns, Ordering::Relaxed);
        self.behind_ns.store(due_ns.saturating_sub(wanted_ns).min(MAX_PERIODS * period_ns), Ordering::Relaxed);
        self.set(now_ns);
    }

    /// So much CPU time went by that was not the guest's: no sample stands for it.
    pub(in crate::sampler) fn leave_out(&self, ns: u64) {
        self.sampled_ns.store(self.sampled_ns.load(Ordering::Relaxed) + ns, Ordering::Relaxed);
        self.due_ns.store(self.due_ns.load(Ordering::Relaxed) + ns, Ordering::Relaxed);
    }

    /// A timer has expired, or may have, where nothing is sampled: it is set again when the thread goes on with wasm.
    pub(in crate::sampler) fn expired_outside(&self) {
        self.was_outside.store(true, Ordering::Relaxed);
        self.waits.store(true, Ordering::Relaxed);
    }

    /// Wasm goes on, which the fine timer may have found waiting in a host call, or which it may have missed. To be called whenever
    /// it does; costs a load.
    pub(in crate::sampler) fn goes_on(&self) {
        if self.waits.load(Ordering::Relaxed) {
            self.goes_on_after_expiry(own_cpu_ns());
        }
    }

    /// Sets a timer in the place of the one that expired without a sample.
    #[cold]
    fn goes_on_after_expiry(&self, now_ns: u64) {
        self.waits.store(false, Ordering::Relaxed);
        let was_outside = self.was_outside.load(Ordering::Relaxed);
        self.was_outside.store(false, Ordering::Relaxed);
        if was_outside && self.goes_by_ticks() && !self.rests.load(Ordering::SeqCst) {
            return self.set_to_tick(self.missing_ns(now_ns));
        }
        self.cpu.unset();
        self.set(now_ns);
    }

    /// From one sample to the next, at random around a period. The kernel's ticks do not come at random: where nearly each of
    /// them is a sample, that would only miss some.
    fn until_next(&self, period_ns: u64) -> u64 {
        if self.goes_by_ticks() && period_ns < 2 * self.tick_ns {
            period_ns
        } else {
            self.random(|jitter| jitter.around(period_ns))
        }
    }

    /// Sets the timer that suits what is due. A thread that shares its processor runs between ticks, too, and misses some: what
    /// is due much before the next is not left to that.
    fn set(&self, now_ns: u64) {
        if self.rests.load(Ordering::SeqCst) {
            return;
        }
        let missing_ns = self.missing_ns(now_ns);
        if self.goes_by_ticks() && missing_ns >= self.tick_ns - self.tick_ns / 4 {
            self.set_to_tick(missing_ns);
        } else {
            self.fine.set(missing_ns);
        }
    }

    /// CPU time until the next sample is due.
    fn missing_ns(&self, now_ns: u64) -> u64 {
        self.due_ns.load(Ordering::Relaxed).saturating_sub(now_ns)
    }

    /// Sets the timer that expires at a tick which finds the thread running.
    fn set_to_tick(&self, missing_ns: u64) {
        // Half a tick early, since it expires half a tick late on average.
        self.cpu.set(missing_ns.saturating_sub(self.tick_ns / 2));
    }

    /// Whether the kernel's ticks come often enough.
    fn goes_by_ticks(&self) -> bool {
        self.period_ns() >= self.tick_ns - self.tick_ns / 8
    }

    fn random<R>(&self, of: impl FnOnce(&mut Jitter) -> R) -> R {
        let mut jitter = self.jitter.get();
        let random = of(&mut jitter);
        self.jitter.set(jitter);
        random
    }
}

/// Random times (xorshift64).
#[derive(Clone, Copy)]
pub(in crate::sampler) struct Jitter(u64);

impl Jitter {
    /// Other times than any before.
    pub(in crate::sampler) fn new() -> Self {
        Self(monotonic_ns() | 1)
    }

    /// Spreads evenly over ±1/8 of a period: a guest that does something at a steady rate must not meet the samples in
    /// step.
    pub(in crate::sampler) fn around(&mut self, period_ns: u64) -> u64 {
        let span = (period_ns / 4).max(1);
        period_ns - span / 2 + self.below(span)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::super::os::own_thread::{SIGNAL, mask};
    use super::*;

    /// Shorter than the kernel's tick.
    const PERIOD: u64 = 1_000_000;

    /// A pace for a thread on which the signal stays blocked: the test would not survive it.
    fn pace_of(period_ns: u64) -> Pace {
        mask(libc::SIG_BLOCK).unwrap();
        let pace = Pace::new().unwrap();
        pace.period_ns.store(period_ns, Ordering::Relaxed);
        pace.due_ns.store(10 * period_ns, Ordering::Relaxed);
        pace.sampled_ns.store(9 * period_ns, Ordering::Relaxed);
        pace
    }

    fn pace() -> Pace {
        pace_of(PERIOD)
    }

    /// Waits for one of the timers to expire.
    fn next_expiry(pace: &Pace) -> Option<TimerClock> {
        // SAFETY: zeroes are a valid set and a valid `siginfo_t`.
        let (mut set, mut info) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::siginfo_t)>() };
        // SAFETY: the set is valid.
        unsafe { libc::sigaddset(&mut set, SIGNAL) };
        // SAFETY: both places are valid for the call, which fills the second.
        assert_eq!(unsafe { libc::sigwaitinfo(&set, &mut info) }, SIGNAL);
        // SAFETY: what a handler would have been given.
        unsafe { TimerClock::of_signal(&info, pace.owner()) }
    }

    fn is_set(timer: &ThreadTimer) -> bool {
        timer.until_ns() > 0
    }

    /// When samples are taken that come as soon as they are due, after one at `first_ns`.
    fn taken_in_time(pace: &Pace, first_ns: u64, count: usize) -> Vec<u64> {
        let period_ns = pace.period_ns();
        let mut now_ns = first_ns;
        let next = || {
            pace.sampled(now_ns, period_ns);
            now_ns = pace.due_ns.load(Ordering::Relaxed);
            now_ns
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn jitter_keeps_the_rate() {
        let mut jitter = Jitter(0x9e37_79b9_7f4a_7c15);
        let count = 100_000;
        let mut sum = 0;
        for _ in 0..count {
            let interval = jitter.around(PERIOD);
            assert!((875_000..=1_125_000).contains(&interval));
            sum += interval;
        }
        assert!((999_000..=1_001_000).contains(&(sum / count)), "{}", sum / count);
    }

    #[test]
    fn a_timer_that_has_expired_in_time_is_a_sample_of_what_was_used() {
        let pace = pace();
        let expired = pace.on_expiry(TimerClock::Monotonic, 10 * PERIOD + 5, true);
        assert_eq!(expired, Expired::Sample { used_ns: PERIOD + 5 });
        let expired = pace.on_expiry(TimerClock::OwnCpu, 9 * PERIOD + 100, false);
        assert_eq!(expired, Expired::Sample { used_ns: 100 });
    }

    #[test]
    fn samples_that_came_late_are_made_up_for_at_half_the_period() {
        // By the kernel's ticks, so that nothing is random.
        let period = kernel_tick_ns();
        let pace = pace_of(period);
        let halves: Vec<u64> = taken_in_time(&pace, 12 * period, 6).iter().map(|taken| taken * 2 / period).collect();
        // The one that was due after ten periods came after twelve; those due after 11 to 14 are made up for by then.
        assert_eq!(halves, [25, 26, 27, 28, 30, 32]);
    }

    #[test]
    fn no_more_is_made_up_for_than_one_sample_may_stand_for() {
        let period = kernel_tick_ns();
        let pace = pace_of(period);
        let taken = taken_in_time(&pace, 1000 * period, 20);
        let in_time = (1000 + 20 - 1) * period;
        assert!(taken[19] >= in_time - MAX_PERIODS * period, "{taken:?}");
        assert_eq!(taken[19] - taken[18], period, "{taken:?}");
    }

    #[test]
    fn a_sample_that_came_early_leaves_the_rate_as_it_is() {
        let period = kernel_tick_ns();
        let pace = pace_of(period);
        pace.sampled(10 * period - period / 2, period);
        assert_eq!(pace.due_ns.load(Ordering::Relaxed), 11 * period);
    }

    #[test]
    fn what_is_left_out_is_in_no_sample_and_delays_the_next() {
        let pace = pace();
        pace.leave_out(3 * PERIOD);
        let expired = pace.on_expiry(TimerClock::Monotonic, 10 * PERIOD, false);
        assert_eq!(expired, Expired::Preempted, "it is not due before 13 periods");
        let expired = pace.on_expiry(TimerClock::Monotonic, 13 * PERIOD, false);
        assert_eq!(expired, Expired::Sample { used_ns: PERIOD });
    }

    #[test]
    fn a_wait_is_left_alone_until_the_guest_goes_on() {
        let pace = pace();
        let now = own_cpu_ns();
        pace.due_ns.store(now + 2 * PERIOD, Ordering::Relaxed);
        assert_eq!(pace.on_expiry(TimerClock::Monotonic, now, true), Expired::Waited);
        assert!(pace.waits.load(Ordering::Relaxed));
        pace.goes_on();
        assert!(!pace.waits.load(Ordering::Relaxed));
        // The timer that goes on though the thread waits for its signal.
        assert_eq!(next_expiry(&pace), Some(TimerClock::Monotonic));
    }

    #[test]
    fn a_pace_that_rests_sets_no_timer_and_begins_anew_when_it_is_resumed() {
        let pace = pace();
        pace.rest();
        assert_eq!(pace.on_expiry(TimerClock::Monotonic, 20 * PERIOD, false), Expired::Resting { rested_ns: 0 });
        pace.sampled(own_cpu_ns(), PERIOD);
        pace.expired_outside();
        pace.goes_on();
        assert!(!is_set(&pace.cpu) && !is_set(&pace.fine));
        pace.resume();
        assert!(is_set(&pace.cpu), "the first tick that finds the thread running");
        let sampled_ns = pace.sampled_ns.load(Ordering::Relaxed);
        let now_ns = sampled_ns + 1000 * PERIOD;
        // What it has used while nobody wanted samples is in none.
        let expired = pace.on_expiry(TimerClock::OwnCpu, now_ns, false);
        assert_eq!(expired, Expired::Resting { rested_ns: 1000 * PERIOD });
        let due_ns = pace.due_ns.load(Ordering::Relaxed);
        let began_ns = pace.sampled_ns.load(Ordering::Relaxed);
        assert!((began_ns..began_ns + PERIOD).contains(&due_ns), "{began_ns} {due_ns}");
        let expired = pace.on_expiry(TimerClock::OwnCpu, due_ns, false);
        assert_eq!(expired, Expired::Sample { used_ns: due_ns - began_ns });
    }

    #[test]
    fn after_an_expiry_outside_the_next_tick_in_a_guest_will_do() {
        let pace = pace_of(kernel_tick_ns());
        pace.expired_outside();
        // A guest that goes on for itself would have the fine timer set for this.
        pace.due_ns.store(own_cpu_ns() + kernel_tick_ns() / 8, Ordering::Relaxed);
        pace.goes_on();
        assert!(is_set(&pace.cpu) && !is_set(&pace.fine));
        pace.due_ns.store(own_cpu_ns() + kernel_tick_ns() / 2, Ordering::Relaxed);
        assert_eq!(pace.on_expiry(TimerClock::Monotonic, own_cpu_ns(), true), Expired::Waited);
        pace.goes_on();
        assert!(is_set(&pace.fine) && !is_set(&pace.cpu), "a wait is no expiry outside");
    }

    #[test]
    fn an_expiry_outside_sets_the_timer_when_the_guest_goes_on() {
        let pace = pace();
        pace.expired_outside();
        pace.due_ns.store(own_cpu_ns() + PERIOD, Ordering::Relaxed);
        pace.goes_on();
        assert_eq!(next_expiry(&pace), Some(TimerClock::Monotonic));
    }
}
