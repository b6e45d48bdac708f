//! Opens a page in the user's browser.

use crate::cli::os;
use std::process::Stdio;

/// Has `url` opened, if there is what opens it: the user has been told the URL all the same.
pub(super) fn open(url: &str) {
    let mut opener = os::open_browser(url);
    opener.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The browser that it may start goes on.
    os::keep_interrupts_from(&mut opener);
    let Ok(mut opener) = opener.spawn() else { return };
    // Some openers end when the browser does.
    let _ = std::thread::Builder::new().name("wlprof browser".into()).spawn(move || opener.wait());
}
