//! The least that a profiler with signals can cost: a timer of the guest's thread sends it one that is answered by next to
//! nothing.

use anyhow::Result;
use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// None that a sampler uses.
const SIGNAL: Signal = Signal::SIGVTALRM;

/// The kernel's ticks a second on most machines: up to that rate wlprof has a timer on the thread's CPU clock, which expires in
/// ticks.
const TICKS_HZ: f64 = 250.0;

/// A timer that interrupts the thread that made it until it is dropped.
pub(crate) struct Floor {
    _timer: Timer,
}

impl Floor {
    /// Interrupts the calling thread at this rate.
    pub(crate) fn start(hz: f64) -> Result<Self> {
        // Setting a flag is all that the handler does.
        signal_hook::flag::register(SIGNAL as i32, Arc::new(AtomicBool::new(false)))?;
        let clock = if hz <= TICKS_HZ { ClockId::CLOCK_THREAD_CPUTIME_ID } else { ClockId::CLOCK_MONOTONIC };
        let notify =
            SigevNotify::SigevThreadId { signal: SIGNAL, thread_id: nix::unistd::gettid().as_raw(), si_value: 0 };
        let mut timer = Timer::new(clock, SigEvent::new(notify))?;
        let period = Duration::from_secs_f64(1.0 / hz);
        timer.set(Expiration::Interval(period.into()), TimerSetTimeFlags::empty())?;
        Ok(Self { _timer: timer })
    }
}
