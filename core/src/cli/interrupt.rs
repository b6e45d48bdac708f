//! Ctrl-C and its kin: the profile is written, then the process dies of the signal as it would have without wlprof.

use crate::profile::Interrupter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::time::{Duration, Instant};

/// Signals this soon after the first are the same key press: wrappers such as `npm` pass on a Ctrl-C that the terminal
/// has already sent to the whole process group. Taken for a second one, it would cost the profile.
const SAME_PRESS: Duration = Duration::from_millis(500);

/// Watches for signals that end the process. The first interrupts the run, a later one ends the process at once.
pub(super) fn watch(interrupter: Interrupter) -> io::Result<()> {
    let ignored = ignored_signals();
    let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(watched)?;
    std::thread::Builder::new().name("wlprof signals".into()).spawn(move || {
        let mut arriving = signals.forever();
        let Some(signal) = arriving.next() else { return };
        let first = Instant::now();
        interrupter.interrupt(signal);
        if let Some(signal) = arriving.find(|_| first.elapsed() > SAME_PRESS) {
            die_of(signal);
        }
    })?;
    Ok(())
}

/// Signals that this process was started to ignore, as `nohup` and shells in the background have it: bit n-1 is signal
/// n. A handler would end that.
fn ignored_signals() -> u64 {
    // There is no such file but on Linux; elsewhere nothing counts as ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Ends the process by `signal`, so that whoever waits for it sees what it would have seen without wlprof.
pub(super) fn die_of(signal: i32) -> ! {
    // Fails only for signals that cannot be had from `watch`.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
