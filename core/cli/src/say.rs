//! Text on standard error. Nobody may be reading it (`wlprof … 2>&1 | head`), and `eprintln!` panics then: the guest's
//! exit code would be lost to wlprof's own chatter.

use super::os;
use super::wrapping::wrapped;
use std::fmt;
use std::io::Write;

/// Prints `text` as it is.
pub(super) fn text(text: &str) {
    // There is nowhere to complain to.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Prints a line, or several where the terminal is narrower.
pub(super) fn line(line: fmt::Arguments<'_>) {
    text(&wrapped(&format!("{line}\n"), os::columns(&std::io::stderr())));
}
