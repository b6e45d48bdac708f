//! Opens a page in the user's browser.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What opens a URL as the user has chosen.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Has `url` opened, if there is what opens it: the user has been told the URL all the same.
pub(super) fn open(url: &str) {
    let mut opener = Command::new(OPENER);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A Ctrl-C is not for the browser that it may start.
    opener.process_group(0);
    let Ok(mut opener) = opener.spawn() else { return };
    // Some openers end when the browser does.
    let _ = std::thread::Builder::new().name("wlprof browser".into()).spawn(move || opener.wait());
}
