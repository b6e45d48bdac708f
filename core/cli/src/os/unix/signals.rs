//! Signals.

pub(crate) use signal_hook::consts::SIGINT;

use signal_hook::consts::{SIGHUP, SIGQUIT, SIGTERM, SIGXFSZ};
use std::io;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use {
    signal_hook::consts::SIGTSTP,
    std::sync::atomic::{AtomicBool, Ordering},
};

/// Signals that are caught, one after the other.
pub(crate) struct Signals(signal_hook::iterator::Signals);

impl Signals {
    /// Catches those that end the process, from here on.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn that_end() -> io::Result<Self> {
        let ignored = ignored_signals();
        let ending = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0);
        signal_hook::iterator::Signals::new(ending).map(Self)
    }

    /// Catches the one that asks for a dump, Ctrl-\, from here on.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn that_ask() -> io::Result<Self> {
        signal_hook::iterator::Signals::new([SIGQUIT]).map(Self)
    }

    /// Waits for the next one.
    pub(crate) fn wait(&mut self) -> i32 {
        // They come without end.
        self.0.forever().next().unwrap_or(SIGTERM)
    }
}

/// Has writing beyond the largest size that a file may have (`ulimit -f`) fail, as on a full disk, and not end the process.
///
/// # Errors
/// If the system refuses.
pub(crate) fn survive_large_files() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(|_| ())
}

/// Signals that this process was started to ignore, as `nohup` and shells in the background have it: bit n-1 is signal
/// n. A handler would end that.
fn ignored_signals() -> u64 {
    // There is no such file but on Linux; elsewhere nothing counts as ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Returns whether Ctrl-C does nothing: this process was started so, and stays so, as under `nohup`.
pub(crate) fn ignores_interrupts() -> bool {
    ignored_signals() >> (SIGINT - 1) & 1 == 1
}

/// Ctrl-Z, where this process has to do something before it is suspended.
#[cfg(target_os = "linux")]
pub(crate) struct Suspension {
    is_due: Arc<AtomicBool>,
    /// Ctrl-Z does again what it does elsewhere.
    is_over: Arc<AtomicBool>,
}

#[cfg(target_os = "linux")]
impl Suspension {
    /// Catches Ctrl-Z until this is dropped, if it is not ignored.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn caught() -> io::Result<Self> {
        let suspension = Self { is_due: Arc::default(), is_over: Arc::default() };
        if ignored_signals() >> (SIGTSTP - 1) & 1 == 0 {
            signal_hook::flag::register_conditional_default(SIGTSTP, suspension.is_over.clone())?;
            signal_hook::flag::register(SIGTSTP, suspension.is_due.clone())?;
        }
        Ok(suspension)
    }

    /// Returns whether this process is to be suspended.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// Suspends this process until it is continued.
    pub(crate) fn suspend(&self) {
        self.is_due.store(false, Ordering::Relaxed);
        // It cannot fail for this signal.
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}

#[cfg(target_os = "linux")]
impl Drop for Suspension {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Ends the process by `signal`, so that whoever waits for it sees what it would have seen without wlprof.
pub(crate) fn die_of(signal: i32) -> ! {
    // Fails only for signals that cannot be had from `that_end`.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
