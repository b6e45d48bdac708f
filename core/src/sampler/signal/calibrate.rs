//! Measures what a tick costs this machine, before the guest runs.

use super::super::clock::{monotonic_ns, own_cpu_ns, sleep_until};
use super::own_thread::SIGNAL;
use super::thread::GuestThread;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that are sent.
const SHOTS: u64 = 24;
/// Time between them.
const SPACING_NS: u64 = 150_000;

/// Taken where no signal arrived in time: more than any machine was seen to need.
const UNMEASURED_NS: u64 = 20_000;

/// What a tick takes from the guest's thread, in nanoseconds: interrupt, signal, an idle handler and the return.
///
/// The calling thread looks at its CPU clock without pause while another one sends it signals; the gaps in which a
/// signal was handled are the cost. Its CPU clock, because on a busy machine it may lose its processor in between, which
/// is no cost of ours, and the kernel charges interrupts to the thread they hit; the median, because a gap may hold
/// another interrupt, too.
///
/// A signal that falls into a reading is mostly handled on the way out of that system call, after the clock was read. So
/// the gap that counts reaches over two steps, less what two steps without a signal take.
///
/// In a virtual machine the cost is 5 to 11 µs, nearly all of it the interrupt from one processor to another; the handler
/// alone takes below 1 µs.
pub(super) fn tick_cost_ns(thread: &GuestThread) -> u64 {
    let mut gaps = Vec::with_capacity(SHOTS as usize);
    // Two steps without a signal.
    let mut shortest = u64::MAX;
    let (begin, all_sent) = (monotonic_ns(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for shot in 1..=SHOTS {
                sleep_until(begin + shot * SPACING_NS);
                thread.expect_signal();
                // SAFETY: plain system call; the thread waits for this one.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.tid, SIGNAL) };
            }
            all_sent.store(true, Ordering::Release);
        });
        let mut handled = thread.handled.load(Ordering::Relaxed);
        let mut before = own_cpu_ns();
        let mut last = own_cpu_ns();
        // On a busy machine signals may coalesce, so that fewer arrive than were sent, or be sent late.
        while !all_sent.load(Ordering::Acquire) && monotonic_ns() < begin + 4 * SHOTS * SPACING_NS {
            let handled_now = thread.handled.load(Ordering::Relaxed);
            let now = own_cpu_ns();
            shortest = shortest.min(now - before);
            if handled_now != handled {
                handled = handled_now;
                gaps.push(now - before);
            }
            (before, last) = (last, now);
        }
    });
    // A last signal may be pending still: it is handled on the way out of a system call, which this is, and so before
    // the ticker counts.
    own_cpu_ns();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).map_or(UNMEASURED_NS, |gap| gap - shortest)
}
