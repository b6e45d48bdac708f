//! Measures what a tick costs this machine, before the guest runs.

use super::super::clock::{monotonic_ns, own_cpu_ns, sleep_until};
use super::thread::{GuestThread, SIGNAL};
use std::sync::atomic::Ordering;

/// Signals that are sent.
const SHOTS: u64 = 24;
/// Time between them.
const SPACING_NS: u64 = 150_000;

/// What a tick takes from the guest's thread, in nanoseconds: interrupt, signal, an idle handler and the return.
///
/// The calling thread looks at its CPU clock without pause while another one sends it signals; the gaps in which a
/// signal was handled are the cost. Its CPU clock, because on a busy machine it may lose its processor in between, which
/// is no cost of ours, and the kernel charges interrupts to the thread they hit; the median, because a gap may hold
/// another interrupt, too. In a virtual machine this is about 11 µs, nearly all of it the interrupt from one processor to
/// another; the handler alone takes below 1 µs.
pub(super) fn tick_cost_ns(thread: &GuestThread) -> u64 {
    let mut gaps = Vec::with_capacity(SHOTS as usize);
    let begin = monotonic_ns();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for shot in 1..=SHOTS {
                sleep_until(begin + shot * SPACING_NS);
                // SAFETY: plain system call; the thread waits for this one.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.tid, SIGNAL) };
            }
        });
        let mut handled = thread.handled.load(Ordering::Relaxed);
        let mut last = own_cpu_ns();
        // If signals do not arrive (they may coalesce on a busy machine) the time limit ends it.
        while handled < SHOTS && monotonic_ns() < begin + 4 * SHOTS * SPACING_NS {
            let now = own_cpu_ns();
            let handled_now = thread.handled.load(Ordering::Relaxed);
            if handled_now != handled {
                handled = handled_now;
                gaps.push(now - last);
            }
            last = now;
        }
    });
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(0)
}
