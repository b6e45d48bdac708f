//! Spinner and progress bar on standard error; nothing where that is no terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A spinner that says what takes a while. It vanishes when dropped.
pub(super) struct Spinner(ProgressBar);

impl Spinner {
    pub(super) fn new(message: String) -> Self {
        // indicatif draws nothing when standard error is no terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_message(message);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar over `total` steps. It vanishes when dropped.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new(message: &'static str, total: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(10));
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
