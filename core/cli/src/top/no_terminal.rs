//! Where there is no screen: the streams of the process cannot be exchanged for others, or, on macOS, keys not be read from `/dev/tty`
//! (its kqueue refuses terminals, by which crossterm waits for them).

use std::convert::Infallible;
use std::io;

/// A screen that cannot be had.
pub(super) struct Screen(Infallible);

impl Screen {
    /// # Errors
    /// Always.
    pub(super) fn new() -> io::Result<Self> {
        let text =
            "`wlprof top` draws on terminals of Linux alone; `wlprof --listen PORT GUEST` shows a guest without one";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// # Errors
    /// None.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// # Errors
    /// None.
    pub(super) fn draw(&mut self, _render: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        match self.0 {}
    }
}

/// Streams that stay as they are.
pub(super) struct GuestStreams;

impl GuestStreams {
    /// # Errors
    /// None.
    pub(super) fn divert() -> io::Result<Self> {
        Ok(Self)
    }
}
