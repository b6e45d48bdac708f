//! Measures what an interrupt costs this machine, and how late it comes, before the guest runs.

use crate::sampler::os::clock::{monotonic_ns, own_cpu_ns};
use crate::sampler::os::cpu_event::MIN_AFTER_NS;
use crate::sampler::os::own_thread;
use crate::sampler::os::thread_watch::own_tid;
use crate::sampler::timing::{Interrupt, Timers};

/// Signals that are waited for.
const SHOTS: usize = 16;
/// Signals whose lateness is measured.
const LATE_SHOTS: usize = 8;
/// Time between them.
const SPACING_NS: u64 = MIN_AFTER_NS;
/// How long they are waited for, all of a kind: on a busy machine they may be late.
const PATIENCE_NS: u64 = 5_000_000;

/// Taken where no signal arrived in time: as much as many machines need, and less than some.
const UNMEASURED_NS: u64 = 20_000;

/// What an interrupt takes from the guest's thread: the event's, the signal, an idle handler and the return. How long after its instant it
/// comes is measured as well.
///
/// The thread looks at its CPU clock without pause; the gaps in which a signal was handled are the cost. Its CPU clock,
/// because on a busy machine it may lose its processor in between, which is no cost of ours, and the kernel charges
/// interrupts to the thread they hit; the median, because a gap may hold another interrupt, too.
///
/// A signal that falls into a reading is mostly handled on the way out of that system call, after the clock was read. So
/// the gap that counts reaches over two steps, less what two steps without a signal take.
pub(super) fn interrupt(timers: &Timers) -> Interrupt {
    let mut gaps = Vec::with_capacity(SHOTS);
    if timers.event().is_none() {
        // The signal is handled in the system call that sends it.
        gaps.extend((0..SHOTS).map(|_| {
            let before_ns = own_cpu_ns();
            own_thread::interrupt(own_tid());
            own_cpu_ns() - before_ns
        }));
        return Interrupt { cost_ns: median(gaps).unwrap_or(UNMEASURED_NS), ..Interrupt::default() };
    }
    // Two steps without a signal.
    let mut shortest = u64::MAX;
    let begin = monotonic_ns();
    let mut handled = timers.handled();
    let mut before = own_cpu_ns();
    let mut last = own_cpu_ns();
    timers.expire_in(SPACING_NS);
    while gaps.len() < SHOTS && monotonic_ns() < begin + PATIENCE_NS {
        let handled_now = timers.handled();
        let now = own_cpu_ns();
        shortest = shortest.min(now - before);
        let gap = now - before;
        (before, last) = (last, now);
        if handled_now != handled {
            handled = handled_now;
            gaps.push(gap);
            timers.expire_in(SPACING_NS);
            // What setting the event takes is no step.
            (before, last) = (own_cpu_ns(), own_cpu_ns());
        }
    }
    let cost_ns = median(gaps).map_or(UNMEASURED_NS, |gap| gap.saturating_sub(shortest));
    let (late_ns, handling_ns) = lateness_ns(timers);
    Interrupt { cost_ns, late_ns, handling_ns }
}

/// How long after its instant a signal interrupts this thread, and how much later its handler asks for the time.
///
/// The thread asks a clock that needs no system call: while it is in one, an instant has no signal, and there is another one later.
fn lateness_ns(timers: &Timers) -> (u64, u64) {
    let (mut late, mut handling) = (Vec::with_capacity(LATE_SHOTS), Vec::with_capacity(LATE_SHOTS));
    let begin = monotonic_ns();
    while late.len() < LATE_SHOTS && monotonic_ns() < begin + PATIENCE_NS {
        let handled = timers.handled();
        let due = monotonic_ns() + SPACING_NS;
        timers.expire_in(SPACING_NS);
        let mut last = monotonic_ns();
        // The last reading before the signal.
        let has_come = loop {
            let now = monotonic_ns();
            if timers.handled() != handled {
                break true;
            }
            if now > begin + PATIENCE_NS {
                break false;
            }
            last = now;
        };
        if has_come {
            late.push(last.saturating_sub(due));
            handling.push(timers.expired_ago_ns().saturating_sub(last.saturating_sub(due)));
        }
    }
    (median(late).unwrap_or(0), median(handling).unwrap_or(0))
}

fn median(mut of: Vec<u64>) -> Option<u64> {
    of.sort_unstable();
    of.get(of.len() / 2).copied()
}
