//! Spinner and progress bar on standard error. Where that is no terminal, a line for what takes long.

use super::{os, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What takes less needs no line in a log.
const LONG: Duration = Duration::from_secs(5);

/// A spinner that says what takes a while. It vanishes when dropped.
pub(super) struct Spinner {
    bar: ProgressBar,
    line: Option<Later>,
}

impl Spinner {
    pub(super) fn new(message: String) -> Self {
        Self::with_style(message, ProgressStyle::default_spinner())
    }

    fn with_style(message: String, style: ProgressStyle) -> Self {
        // indicatif draws nothing when standard error is no terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // It draws from the first message on. Its own style is a bar.
        bar.set_style(style);
        bar.set_message(message);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, line: None }
    }

    /// As [`Spinner::new`], with how many of `total` are `done`.
    pub(super) fn counting(message: String, total: u64, done: &'static AtomicU64) -> Self {
        let count = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let done = done.load(Ordering::Relaxed);
            if done > 0 {
                // What wlprof has added to the guest counts as well.
                let _ = write!(out, ": {done} of {} functions", total.max(done));
            }
        };
        let style = ProgressStyle::with_template("{spinner} {msg}{count}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self::with_style(message, style.with_key("count", count))
    }

    /// Where standard error is no terminal, prints a line once it has taken long.
    pub(super) fn with_line(mut self) -> Self {
        let in_log = format!("{}…", self.bar.message());
        let line = || Later::new(LONG, move || say::line(format_args!("{in_log}")));
        self.line = (!std::io::stderr().is_terminal()).then(line);
        self
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Something that is done after a time, unless this is dropped before.
struct Later {
    cancel: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Later {
    fn new(delay: Duration, act: impl FnOnce() + Send + 'static) -> Self {
        let (cancel, cancelled) = channel();
        let wait = move || {
            if cancelled.recv_timeout(delay) == Err(RecvTimeoutError::Timeout) {
                act();
            }
        };
        // Without a thread nothing is said, and nothing else is lost.
        let thread = thread::Builder::new().name("wlprof progress".into()).spawn(wait).ok();
        Self { cancel: Some(cancel), thread }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        drop(self.cancel.take());
        if let Some(thread) = self.thread.take() {
            // It panics only if what it does panics, which has been printed then.
            let _ = thread.join();
        }
    }
}

/// A bar over `total` steps, if there are any. It vanishes when dropped.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new(message: &'static str, total: usize) -> Self {
        let target = if total == 0 || os::drawing_would_stop() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(10)
        };
        let bar = ProgressBar::with_draw_target(Some(total as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}") {
            bar.set_style(style);
        }
        bar.set_message(message);
        Self(bar)
    }

    pub(super) fn set(&self, done: usize) {
        self.0.set_position(done as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_told() {
        let (said, heard) = channel();
        let later = Later::new(Duration::ZERO, move || said.send(()).unwrap());
        assert_eq!(heard.recv_timeout(Duration::from_secs(180)), Ok(()));
        drop(later);
    }

    #[test]
    fn what_is_over_before_is_not() {
        let (said, heard) = channel();
        drop(Later::new(Duration::from_secs(60), move || said.send(()).unwrap()));
        assert!(heard.try_recv().is_err());
    }
}
