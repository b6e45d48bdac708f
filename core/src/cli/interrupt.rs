//! Ctrl-C and its kin: the profile is written, then the process dies of the signal as it would have without wlprof.

use crate::profile::Interrupter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;

/// Watches for signals that end the process. The first interrupts the run, the second ends the process at once.
pub(super) fn watch(interrupter: Interrupter) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("wlprof signals".into()).spawn(move || {
        let mut arriving = signals.forever();
        if let Some(signal) = arriving.next() {
            interrupter.interrupt(signal);
        }
        if let Some(signal) = arriving.next() {
            die_of(signal);
        }
    })?;
    Ok(())
}

/// Ends the process by `signal`, so that whoever waits for it sees what it would have seen without wlprof.
pub(super) fn die_of(signal: i32) -> ! {
    // Fails only for signals that cannot be had from `watch`.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
