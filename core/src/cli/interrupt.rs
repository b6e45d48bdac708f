//! Ctrl-C and its kin: the profile is written, then the process dies of the signal as it would have without wlprof.

use crate::profile::Interrupter;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Signals this soon after the first are the same key press: wrappers such as `npm` pass on a Ctrl-C that the terminal
/// has already sent to the whole process group. Taken for a second one, it would cost the profile.
const SAME_PRESS: Duration = Duration::from_millis(500);

/// What signals that end the process are to end first.
#[derive(Clone, Default)]
pub(super) struct Interrupts {
    state: Arc<Mutex<State>>,
    hurry: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// How often the run has been interrupted.
    interruptions: u32,
    run_is_over: bool,
    /// The process that makes the profile.
    child: Option<OwnedFd>,
    /// The signal that came after the run was over.
    signal: Option<i32>,
}

impl Interrupts {
    /// Watches for signals that end the process. The first `most` interrupt the run; if that is over, one ends the making of the
    /// profile, and what has been sampled is kept as it is. A later one ends the process at once.
    pub(super) fn watch(&self, interrupter: Interrupter, most: u32) -> io::Result<()> {
        let mut signals = Signals::new(ending_signals())?;
        let interrupts = self.clone();
        std::thread::Builder::new().name("wlprof signals".into()).spawn(move || {
            let mut last: Option<Instant> = None;
            for signal in &mut signals {
                if last.is_some_and(|last| last.elapsed() < SAME_PRESS) {
                    continue;
                }
                interrupts.take(signal, most, &interrupter);
                last = Some(Instant::now());
            }
        })?;
        Ok(())
    }

    fn take(&self, signal: i32, most: u32, interrupter: &Interrupter) {
        let mut state = self.state();
        if !state.run_is_over {
            if state.interruptions >= most {
                die_of(signal);
            }
            state.interruptions += 1;
            interrupter.interrupt(signal);
            return;
        }
        if state.signal.is_some() {
            die_of(signal);
        }
        state.signal = Some(signal);
        self.hurry.store(true, Ordering::Relaxed);
        if let Some(child) = &state.child {
            // It may have ended by itself.
            let _ = pidfd_send_signal(child, Signal::KILL);
        }
    }

    /// The run has ended: from here on signals end what comes after it.
    pub(super) fn run_is_over(&self) {
        self.state().run_is_over = true;
    }

    /// Set when what is being done is to be given up.
    pub(super) fn hurry(&self) -> Arc<AtomicBool> {
        self.hurry.clone()
    }

    /// The signal that came after the run was over, if one did.
    pub(super) fn signal(&self) -> Option<i32> {
        self.state().signal
    }

    /// Has `child` be ended by the first signal from here on, or now if that has come.
    pub(super) fn begin_child(&self, child: &Child) {
        let mut state = self.state();
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
        // Without it (before Linux 5.3) the second signal ends both.
        state.child = pidfd_open(pid, PidfdFlags::empty()).ok();
        if let (Some(_), Some(child)) = (state.signal, &state.child) {
            let _ = pidfd_send_signal(child, Signal::KILL);
        }
    }

    /// There is no child any more.
    pub(super) fn end_child(&self) {
        self.state().child = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The signals that end the process, for those who have nothing to do but to wait for one.
pub(super) struct EndingSignals(Signals);

impl EndingSignals {
    /// Catches them from here on.
    pub(super) fn catch() -> io::Result<Self> {
        Signals::new(ending_signals()).map(Self)
    }

    /// Waits for one and gives it, for [`die_of`].
    pub(super) fn wait(mut self) -> i32 {
        // They come without end.
        self.0.forever().next().unwrap_or(SIGTERM)
    }
}

fn ending_signals() -> impl Iterator<Item = i32> {
    let ignored = ignored_signals();
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// Has writing beyond the largest size that a file may have (`ulimit -f`) fail, as on a full disk, and not end the process.
pub(super) fn survive_large_files() -> io::Result<()> {
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

/// Ends the process by `signal`, so that whoever waits for it sees what it would have seen without wlprof.
pub(super) fn die_of(signal: i32) -> ! {
    // Fails only for signals that cannot be had from `watch`.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
