//! How the command fails, and the exit codes of that.

use super::say;
use std::fmt;
use wlprof_show::escape;

/// What exit codes mean.
pub(crate) const EXIT_CODES: &str =
    "The guest's own (134 if it trapped); 125 wlprof failed,\n126 the guest cannot be run, 127 no such guest.";
/// wlprof itself failed: bad arguments, an output that cannot be written.
pub(crate) const FAILED: u8 = 125;
/// The guest cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// There is no such guest.
pub(crate) const NO_GUEST: u8 = 127;

/// Why the command failed, and with which exit code.
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// The user has been told why, by another process.
    pub(crate) fn told(code: u8) -> Self {
        Self { code, message: String::new() }
    }

    pub(crate) fn print(&self) {
        if self.message.is_empty() {
            return;
        }
        say::line(format_args!("wlprof: {}", escape::multi_line(&self.message)));
    }
}
