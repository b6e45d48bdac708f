//! The thread that decides when to sample.

use super::super::clock::{Activity, ThreadWatch, avoid_processor, monotonic_ns, sleep_until};
use super::super::session::SamplerOptions;
use super::governor::Governor;
use super::own_thread::SIGNAL;
use super::thread::GuestThread;
use crate::recording::{Clock, TickCounts};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often the governor looks, in ticks.
const GOVERN_EVERY: u64 = 64;

/// What the ticker did.
#[derive(Debug, Default)]
pub(super) struct Ticked {
    /// `sampled`, `ring_full` and `at_end` are not the ticker's to know and stay 0, but for what it recorded itself.
    pub(super) ticks: TickCounts,
    /// Signals that had been handled before the first tick, by the calibration.
    pub(super) handled_before: u64,
    /// Signals sent.
    pub(super) sent: u64,
    /// Sum of the intervals between ticks, as the governor set them.
    pub(super) intervals_ns: u64,
    /// CPU time of the thread when last seen.
    pub(super) cpu_ns: u64,
    pub(super) notes: Vec<String>,
}

/// The ticker's state between ticks.
struct Ticker<'a> {
    thread: &'a GuestThread,
    watch: &'a ThreadWatch,
    options: &'a SamplerOptions,
    /// CPU time that the thread has used and no sample stands for yet; negative when one stands for some in advance.
    unsampled_ns: i64,
    ticked: Ticked,
}

/// Ticks until `stop` is set or the thread has left its guest. Should this panic, sampling ends, and not the guest.
pub(super) fn run(
    thread: &GuestThread,
    watch: &ThreadWatch,
    tick_cost_ns: u64,
    stop: &AtomicBool,
    wake_drain: impl Fn(),
) -> Ticked {
    let options = &thread.shared.options;
    let mut governor = Governor::new(options, tick_cost_ns);
    let ticked = Ticked {
        handled_before: thread.handled.load(Ordering::Acquire),
        cpu_ns: watch.cpu_ns().unwrap_or(0),
        ..Ticked::default()
    };
    let mut ticker = Ticker { thread, watch, options, unsampled_ns: 0, ticked };
    let ticking = catch_unwind(AssertUnwindSafe(|| ticker.tick_until(stop, &mut governor, wake_drain)));
    if ticking.is_err() {
        let note = "the thread that times samples failed: what the guest did after that is not in the profile";
        ticker.ticked.notes.push(note.to_owned());
    }
    ticker.ticked.notes.extend(governor.note());
    ticker.ticked
}

impl Ticker<'_> {
    fn tick_until(&mut self, stop: &AtomicBool, governor: &mut Governor, wake_drain: impl Fn()) {
        let thread = self.thread;
        let mut jitter = Jitter(monotonic_ns() | 1);
        let mut next = monotonic_ns();
        while !stop.load(Ordering::Relaxed) && !thread.is_over() {
            let period = governor.period_ns();
            // Evenly spread around the period: a guest that does something at a steady rate must not meet the ticks in
            // step.
            next += jitter.around(period);
            let now = monotonic_ns();
            if next > now {
                sleep_until(next);
            } else {
                // The ticker was kept from running. Ticks that never fired are not made up for: they would all see one
                // place.
                self.ticked.ticks.late += (now - next) / period;
                next = now;
            }
            if stop.load(Ordering::Relaxed) || thread.is_over() {
                break;
            }
            self.tick(period);
            if thread.ring.is_filling() {
                wake_drain();
            }
            if self.ticked.ticks.fired.is_multiple_of(GOVERN_EVERY) {
                governor.adjust(thread.handled.load(Ordering::Relaxed), thread.handler_ns.load(Ordering::Relaxed));
            }
        }
    }

    fn tick(&mut self, period: u64) {
        self.ticked.ticks.fired += 1;
        self.ticked.intervals_ns += period;
        let (activity, cpu_ns) = self.watch.look();
        let used_ns = cpu_ns.saturating_sub(self.ticked.cpu_ns);
        self.ticked.cpu_ns = self.ticked.cpu_ns.max(cpu_ns);
        self.unsampled_ns += used_ns as i64;
        let handled = self.thread.handled.load(Ordering::Acquire) - self.ticked.handled_before;
        if handled < self.ticked.sent {
            self.tick_while_pending(used_ns, period);
            return;
        }
        match activity {
            Activity::Running => self.interrupt(cpu_ns, period),
            Activity::Queued { processor, is_ours: true } => {
                // This thread has pushed the guest off its processor. The moment is as good as any, but it must not
                // become a habit: the guest would pay for it.
                avoid_processor(processor);
                self.interrupt(cpu_ns, period);
            }
            // A sample here would charge whatever the guest did last with the CPU time of what it did before. With the
            // wall clock the wait itself counts, wherever it is.
            Activity::Queued { .. } if self.options.clock == Clock::Cpu => self.ticked.ticks.preempted += 1,
            Activity::Queued { .. } => self.interrupt(cpu_ns, period),
            Activity::Blocked | Activity::Stuck => self.look_from_outside(cpu_ns, activity, period),
            Activity::Dead => self.ticked.ticks.idle += 1,
        }
    }

    /// A signal is on its way and has not been handled: the thread waits for a processor, or is in a system call that
    /// nothing interrupts.
    fn tick_while_pending(&mut self, used_ns: u64, period: u64) {
        if self.options.clock == Clock::Wall {
            // What this tick saw is what the pending sample will see.
            self.thread.tick_period_ns.fetch_add(period, Ordering::Relaxed);
        }
        if used_ns == 0 {
            self.ticked.ticks.preempted += 1;
        } else {
            self.ticked.ticks.coalesced += 1;
        }
    }

    /// Sends the signal that samples the thread.
    fn interrupt(&mut self, cpu_ns: u64, period: u64) {
        let weight_ns = match self.options.clock {
            Clock::Wall => period,
            // As many periods as CPU time has gone by, so that samples stand for it whole: none while a guest that
            // mostly waits has used little, and more than one after ticks that were lost.
            Clock::Cpu => {
                let periods = (self.unsampled_ns as f64 / period as f64).round();
                if periods < 1.0 {
                    self.ticked.ticks.short += 1;
                    return;
                }
                periods as u64 * period
            }
        };
        self.thread.tick_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        self.thread.tick_period_ns.store(weight_ns, Ordering::Relaxed);
        self.thread.expect_signal();
        // SAFETY: plain system call. The thread is one of ours: it has not left (checked just now); if it ends meanwhile,
        // there is no such thread, or a new one of this process, whose handler does nothing.
        let failed = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread.tid, SIGNAL) } != 0;
        if failed {
            self.ticked.ticks.coalesced += 1;
        } else {
            self.ticked.sent += 1;
            self.unsampled_ns -= weight_ns as i64;
        }
    }

    /// Reads the stack of a thread that waits, without waking it.
    fn look_from_outside(&mut self, cpu_ns: u64, activity: Activity, period: u64) {
        let is_sample = self.options.clock == Clock::Wall;
        self.thread.tick_period_ns.store(period, Ordering::Relaxed);
        let still_waits = || self.watch.look() == (activity, cpu_ns);
        // SAFETY: the thread waits and no signal is on its way (`tick`).
        let captured = unsafe { self.thread.capture_blocked(cpu_ns, is_sample, still_waits) };
        match captured {
            _ if !is_sample => self.ticked.ticks.idle += 1,
            Some(true) => {}
            Some(false) => self.ticked.ticks.ring_full += 1,
            None => self.ticked.ticks.woke += 1,
        }
    }
}

/// Starts the ticker for `thread`.
pub(super) fn spawn(
    thread: Arc<GuestThread>,
    watch: ThreadWatch,
    tick_cost_ns: u64,
    stop: Arc<AtomicBool>,
    wake_drain: impl Fn() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<Ticked>> {
    std::thread::Builder::new()
        .name("wlprof ticker".into())
        .spawn(move || run(&thread, &watch, tick_cost_ns, &stop, wake_drain))
}

/// Spreads ticks evenly over ±1/8 of the period (xorshift64).
struct Jitter(u64);

impl Jitter {
    fn around(&mut self, period_ns: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let span = (period_ns / 4).max(1);
        period_ns - span / 2 + self.0 % span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_keeps_the_rate() {
        let mut jitter = Jitter(0x9e37_79b9_7f4a_7c15);
        let ticks = 100_000;
        let mut sum = 0;
        for _ in 0..ticks {
            let interval = jitter.around(1_000_000);
            assert!((875_000..=1_125_000).contains(&interval));
            sum += interval;
        }
        let mean = sum / ticks;
        assert!((999_000..=1_001_000).contains(&mean), "{mean}");
    }
}
