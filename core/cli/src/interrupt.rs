//! Ctrl-C and its kin: the profile is written, then the process dies of the signal as it would have without wlprof.

pub(super) use super::os::signals::{Signals, die_of, ignores_interrupts, survive_large_files};

use super::say;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Signals this soon after the first are the same key press: wrappers such as `npm` pass on a Ctrl-C that the terminal
/// has already sent to the whole process group. Taken for a second one, it would cost the profile.
const SAME_PRESS: Duration = Duration::from_millis(500);

/// Says that Ctrl-C is ignored, if it is: shells start background jobs of scripts so, and a user cannot see it.
pub(super) fn note_if_ignored() {
    if ignores_interrupts() {
        say::line(format_args!(
            "note: Ctrl-C (SIGINT) is ignored, as it was when wlprof was started; SIGTERM ends the run"
        ));
    }
}

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
    /// Ends the making of the profile.
    end_making: Option<Box<dyn Fn() + Send>>,
    /// The signal that came after the run was over.
    signal: Option<i32>,
}

impl Interrupts {
    /// Watches for signals that end the process. The first `most` interrupt the run, by `interrupt`; if that is over, one ends the making of
    /// the profile, and what has been sampled is kept as it is. A later one ends the process at once.
    pub(super) fn watch(&self, interrupt: impl Fn(i32) + Send + 'static, most: u32) -> io::Result<()> {
        let mut signals = Signals::that_end()?;
        let interrupts = self.clone();
        std::thread::Builder::new().name("wlprof signals".into()).spawn(move || {
            let mut last: Option<Instant> = None;
            loop {
                let signal = signals.wait();
                if last.is_some_and(|last| last.elapsed() < SAME_PRESS) {
                    continue;
                }
                // Before it is taken, so that this is earlier than all that comes of it.
                last = Some(Instant::now());
                interrupts.take(signal, most, &interrupt);
            }
        })?;
        Ok(())
    }

    fn take(&self, signal: i32, most: u32, interrupt: &dyn Fn(i32)) {
        let mut state = self.state();
        if !state.run_is_over {
            if state.interruptions >= most {
                die_of(signal);
            }
            state.interruptions += 1;
            interrupt(signal);
            return;
        }
        if state.signal.is_some() {
            die_of(signal);
        }
        state.signal = Some(signal);
        self.hurry.store(true, Ordering::Relaxed);
        if let Some(end) = &state.end_making {
            end();
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

    /// Has the making of the profile be ended, by `end`, when the first signal comes from here on, or now if that has come.
    pub(super) fn making_begins(&self, end: impl Fn() + Send + 'static) {
        let mut state = self.state();
        if state.signal.is_some() {
            end();
        }
        state.end_making = Some(Box::new(end));
    }

    /// The profile is made.
    pub(super) fn making_is_over(&self) {
        self.state().end_making = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
