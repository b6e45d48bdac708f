//! Linux and macOS.

pub(crate) mod folder;
pub(crate) mod limits;
pub(crate) mod signals;

use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Columns of the terminal that a stream of this process is; `None` if it is none.
pub(crate) fn columns(stream: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream);
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Has what `command` starts not be told of a Ctrl-C, which is for this process to answer.
pub(crate) fn keep_interrupts_from(command: &mut Command) {
    command.process_group(0);
}

/// What opens the page in `file` in the browser that the user has chosen.
pub(crate) fn open_browser(file: &Path) -> Command {
    let mut opener = Command::new(if cfg!(target_os = "macos") { "open" } else { "xdg-open" });
    opener.arg(file);
    opener
}

/// The folder for files of the user's session, or the system's for temporary files where there is none.
pub(crate) fn folder_of_the_session() -> PathBuf {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    named.filter(|folder| folder.is_absolute() && folder.is_dir()).unwrap_or_else(std::env::temp_dir)
}

/// What became of a process that works within limits and failed, in words for the user.
pub(crate) fn how_it_ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGKILL) => "it was killed, as the system does when memory is short".to_owned(),
        Some(libc::SIGXCPU) => "it took more processor time than it may have".to_owned(),
        Some(libc::SIGABRT) => "it ran out of memory, or gave up".to_owned(),
        Some(signal) => format!("it ended with signal {signal}"),
        None => format!("it failed with code {}", status.code().unwrap_or_default()),
    }
}
