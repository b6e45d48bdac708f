//! One line on standard error for each step, with the time since the program started.

use std::fmt::Display;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Prints one line.
pub(crate) fn say(line: impl Display) {
    eprintln!("[{:6.1} s] {line}", since_start().as_secs_f64());
}

/// A step that is under way.
pub(crate) struct Step {
    name: String,
    started: Instant,
}

impl Step {
    /// Begins a step without a word, for those that usually take no time to speak of.
    pub(crate) fn quietly(name: impl Into<String>) -> Self {
        since_start();
        Self { name: name.into(), started: Instant::now() }
    }

    /// Begins a step that takes a while, and says so.
    pub(crate) fn announced(name: impl Into<String>) -> Self {
        let step = Self::quietly(name);
        say(format_args!("{} …", step.name));
        step
    }

    /// Says that the step is done and how long it took.
    pub(crate) fn done(self) {
        say(format_args!("{}: {:.1} s", self.name, self.started.elapsed().as_secs_f64()));
    }
}
