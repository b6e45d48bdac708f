//! Windows.

pub(crate) mod folder;
pub(crate) mod limits;
pub(crate) mod signals;

use std::io::IsTerminal;
use std::os::windows::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// `CREATE_NEW_PROCESS_GROUP`, as `winbase.h` has it.
const NEW_PROCESS_GROUP: u32 = 0x200;

/// Columns of the console that a stream of this process is; `None` if it is none.
pub(crate) fn columns(stream: &impl IsTerminal) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    ratatui::crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0)
}

/// Has what `command` starts not be told of a Ctrl-C, which is for this process to answer.
pub(crate) fn keep_interrupts_from(command: &mut Command) {
    command.creation_flags(NEW_PROCESS_GROUP);
}

/// What opens the page in `file` in the browser that the user has chosen. Not `start`, to whose shell an `&` is the end of a command.
pub(crate) fn open_browser(file: &Path) -> Command {
    let mut opener = Command::new("rundll32.exe");
    opener.arg("url.dll,FileProtocolHandler").arg(file);
    opener
}

/// The user's folder for temporary files.
pub(crate) fn folder_of_the_session() -> PathBuf {
    std::env::temp_dir()
}

/// What became of a process that failed, in words for the user.
pub(crate) fn how_it_ended(status: ExitStatus) -> String {
    let code = status.code().unwrap_or_default();
    // Those that the system gives have the highest bits set.
    if code < 0 { format!("it ended with status {code:#010x}") } else { format!("it failed with code {code}") }
}
