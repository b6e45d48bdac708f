//! Who wants samples. While nobody does, guests run as if there were no sampler.

use super::threads::Threads;
use std::sync::Arc;
use wlprof_recording::Clock;

/// How many want samples, by what time those are to stand for.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sampler) struct SampleDemand {
    cpu: u32,
    wall: u32,
}

impl SampleDemand {
    /// What time samples stand for: with [`Clock::Wall`] they have the CPU time as well. `None` if nobody wants any.
    pub(super) fn clock(self) -> Option<Clock> {
        match self {
            Self { cpu: 0, wall: 0 } => None,
            Self { wall: 0, .. } => Some(Clock::Cpu),
            Self { .. } => Some(Clock::Wall),
        }
    }

    fn of(&mut self, clock: Clock) -> &mut u32 {
        match clock {
            Clock::Cpu => &mut self.cpu,
            Clock::Wall => &mut self.wall,
        }
    }
}

/// Somebody wants samples, until this is dropped.
pub(in crate::sampler) struct Demand {
    threads: Arc<Threads>,
    clock: Clock,
}

impl Demand {
    pub(in crate::sampler) fn new(threads: &Arc<Threads>, clock: Clock) -> Self {
        threads.change_wanted(|wanted| *wanted.of(clock) += 1);
        Self { threads: threads.clone(), clock }
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        self.threads.change_wanted(|wanted| *wanted.of(self.clock) -= 1);
    }
}
