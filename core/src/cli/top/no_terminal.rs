//! Where the streams of the process cannot be exchanged for others: there is no screen.

use std::convert::Infallible;
use std::io;

/// A screen that cannot be had.
pub(super) struct Screen(Infallible);

impl Screen {
    /// # Errors
    /// Always.
    pub(super) fn new() -> io::Result<Self> {
        let text = "`wlprof top` draws on terminals of Linux and macOS alone; `wlprof --listen PORT GUEST` shows a guest without one";
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
