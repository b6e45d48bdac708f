//! The thread that decides when to sample.

use super::super::clock::{Activity, ThreadWatch, monotonic_ns, sleep_until};
use super::super::session::SamplerOptions;
use super::governor::Governor;
use super::own_thread::SIGNAL;
use super::thread::GuestThread;
use crate::recording::{Clock, TickCounts};
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

/// Ticks until `stop` is set or the thread has left its guest.
pub(super) fn run(
    thread: &GuestThread,
    watch: &ThreadWatch,
    tick_cost_ns: u64,
    stop: &AtomicBool,
    wake_drain: impl Fn(),
) -> Ticked {
    let options = &thread.shared.options;
    let mut governor = Governor::new(options, tick_cost_ns);
    let mut jitter = Jitter(monotonic_ns() | 1);
    let mut ticked = Ticked { handled_before: thread.handled.load(Ordering::Acquire), ..Ticked::default() };
    let mut next = monotonic_ns();
    while !stop.load(Ordering::Relaxed) && !thread.detached.load(Ordering::Acquire) {
        let period = governor.period_ns();
        // Evenly spread around the period: a guest that does something at a steady rate must not meet the ticks in step.
        next += jitter.around(period);
        let now = monotonic_ns();
        if next > now {
            sleep_until(next);
        } else {
            // The ticker was kept from running. Ticks that never fired are not made up for: they would all see one place.
            next = now;
        }
        if stop.load(Ordering::Relaxed) || thread.detached.load(Ordering::Acquire) {
            break;
        }
        thread.tick_period_ns.store(period, Ordering::Relaxed);
        ticked.ticks.fired += 1;
        ticked.intervals_ns += period;
        let pending = thread.handled.load(Ordering::Acquire) - ticked.handled_before < ticked.sent;
        tick(thread, watch, options, pending, &mut ticked);
        if thread.ring.is_filling() {
            wake_drain();
        }
        if ticked.ticks.fired.is_multiple_of(GOVERN_EVERY) {
            governor.adjust(thread.handled.load(Ordering::Relaxed), thread.handler_ns.load(Ordering::Relaxed));
        }
    }
    ticked.notes.extend(governor.note());
    ticked
}

fn tick(thread: &GuestThread, watch: &ThreadWatch, options: &SamplerOptions, pending: bool, ticked: &mut Ticked) {
    let (activity, cpu_ns) = watch.look();
    let has_run = cpu_ns > ticked.cpu_ns;
    ticked.cpu_ns = ticked.cpu_ns.max(cpu_ns);
    if pending {
        if has_run {
            ticked.ticks.coalesced += 1;
        } else {
            ticked.ticks.preempted += 1;
        }
        return;
    }
    match activity {
        Activity::Runnable => {
            thread.tick_cpu_ns.store(cpu_ns, Ordering::Relaxed);
            // SAFETY: plain system call. The thread is one of ours: it has not left (checked just now), and before its
            // end the ticker is joined.
            let failed = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.tid, SIGNAL) } != 0;
            if failed {
                ticked.ticks.coalesced += 1;
            } else {
                ticked.sent += 1;
            }
        }
        Activity::Blocked => {
            let is_sample = options.clock == Clock::Wall;
            let still_blocked = || watch.look() == (Activity::Blocked, cpu_ns);
            // SAFETY: the thread is blocked and no signal is on its way (`pending`).
            let captured = unsafe { thread.capture_blocked(cpu_ns, is_sample, still_blocked) };
            match captured {
                _ if !is_sample => ticked.ticks.idle += 1,
                Some(true) => {}
                Some(false) => ticked.ticks.ring_full += 1,
                None => ticked.ticks.woke += 1,
            }
        }
        // A page fault or an uninterruptible system call: the signal would only be handled after it, elsewhere.
        Activity::Stuck | Activity::Dead => ticked.ticks.idle += 1,
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
