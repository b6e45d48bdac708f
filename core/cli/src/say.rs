//! Text on standard error and output. Nobody may be reading it (`wlprof … 2>&1 | head`), and `eprintln!` panics then: the guest's
//! exit code would be lost to wlprof's own chatter.

use super::failure::{FAILED, Failure};
use super::os;
use std::fmt;
use std::io::{self, Write};
use wlprof_show::wrapped;

/// Prints `text` as it is.
pub(super) fn text(text: &str) {
    // There is nowhere to complain to.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Prints a line, or several where the terminal is narrower.
pub(super) fn line(line: fmt::Arguments<'_>) {
    text(&wrapped(&format!("{line}\n"), os::columns(&std::io::stderr())));
}

/// Prints what the user asked for on standard output.
pub(super) fn print(text: &[u8]) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text) {
        // A pager may be closed before its end.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(FAILED, error)),
        _ => Ok(()),
    }
}
