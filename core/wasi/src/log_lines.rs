//! Output of a guest that is one of many: each line says whose it is, as under `wasmtime serve`.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};

/// Which of this process's streams.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

impl Output {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().write_all(bytes),
            Self::Stderr => io::stderr().write_all(bytes),
        }
    }
}

/// A guest's stream, whose lines begin with a prefix.
#[derive(Clone)]
pub(super) struct LogLines {
    output: Output,
    prefix: Arc<str>,
    /// What has been written ends a line.
    is_at_start: Arc<Mutex<bool>>,
}

impl LogLines {
    /// Lines of the guest of that number; without a prefix if it has none.
    pub(super) fn new(output: Output, guest: Option<u64>) -> Self {
        let name = match output {
            Output::Stdout => "stdout",
            Output::Stderr => "stderr",
        };
        let prefix = guest.map_or_else(String::new, |guest| format!("{name} [{guest}] :: "));
        Self { output, prefix: prefix.into(), is_at_start: Arc::new(Mutex::new(true)) }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut is_at_start = self.is_at_start.lock().unwrap_or_else(PoisonError::into_inner);
        let text = prefixed(bytes, self.prefix.as_bytes(), &mut is_at_start);
        // At once, so that no line of another guest's is in it.
        self.output.write(&text)
    }
}

/// `bytes` with `prefix` before each line that begins in them.
fn prefixed(bytes: &[u8], prefix: &[u8], is_at_start: &mut bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + prefix.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if *is_at_start {
            text.extend_from_slice(prefix);
        }
        text.extend_from_slice(line);
        *is_at_start = line.ends_with(b"\n");
    }
    text
}

impl StdoutStream for LogLines {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl IsTerminal for LogLines {
    fn is_terminal(&self) -> bool {
        match self.output {
            Output::Stdout => io::stdout().is_terminal(),
            Output::Stderr => io::stderr().is_terminal(),
        }
    }
}

impl AsyncWrite for LogLines {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.write(bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_prefix_once() {
        let mut is_at_start = true;
        let mut write = |bytes: &[u8]| String::from_utf8(prefixed(bytes, b"[1] ", &mut is_at_start)).unwrap();
        assert_eq!(write(b"one\ntw"), "[1] one\n[1] tw");
        assert_eq!(write(b"o\n"), "o\n");
        assert_eq!(write(b""), "");
        assert_eq!(write(b"\nlast"), "[1] \n[1] last");
    }
}
