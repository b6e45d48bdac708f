//! The terminal while `wlprof top` has it: what is drawn and typed goes through `/dev/tty`, and what the guest prints is kept
//! until the end.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::ExecutableCommand;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::termios::tcgetwinsize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, Read, Write, pipe, stderr, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Bytes of the guest's output that are kept, the last ones.
const KEPT: usize = 1 << 20;

/// The terminal's own screen, in place of what it shows otherwise. That is back when this is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<File>>,
    tty: File,
}

impl Screen {
    /// # Errors
    /// If there is no terminal.
    pub(super) fn new() -> io::Result<Self> {
        let none = |error| {
            let text = format!(
                "there is no terminal to draw on ({error}); `wlprof --listen PORT GUEST` shows a guest without one"
            );
            io::Error::other(text)
        };
        let tty = File::options().read(true).write(true).open("/dev/tty").map_err(none)?;
        let terminal = Terminal::new(CrosstermBackend::new(tty.try_clone()?))?;
        let mut screen = Self { terminal, tty };
        enable_raw_mode().map_err(none)?;
        screen.terminal.backend_mut().execute(EnterAlternateScreen)?;
        Ok(screen)
    }

    /// Looks whether the terminal is still there.
    ///
    /// # Errors
    /// If it is not.
    pub(super) fn check(&self) -> io::Result<()> {
        Ok(tcgetwinsize(&self.tty).map(drop)?)
    }

    pub(super) fn draw(&mut self, render: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(render).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = disable_raw_mode();
        let _ = self.terminal.backend_mut().execute(LeaveAlternateScreen).map(|back| back.execute(Show).map(drop));
    }
}

/// The guest's standard streams, where they are the terminal: what it writes is kept, and it reads nothing.
pub(super) struct GuestStreams {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    kept: Arc<Mutex<SavedSettings>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct SavedSettings {
    bytes: VecDeque<u8>,
    dropped: u64,
}

impl GuestStreams {
    /// Diverts them. Streams that are files or pipes stay as they are.
    pub(super) fn divert() -> io::Result<Self> {
        let copy = |is_terminal: bool, stream: &dyn AsFd| -> io::Result<Option<OwnedFd>> {
            is_terminal.then(|| stream.as_fd().try_clone_to_owned()).transpose()
        };
        let mut streams = Self {
            stdin: copy(stdin().is_terminal(), &stdin())?,
            stdout: copy(stdout().is_terminal(), &stdout())?,
            stderr: copy(stderr().is_terminal(), &stderr())?,
            kept: Arc::default(),
            reader: None,
        };
        if streams.stdin.is_some() {
            // Keys are for the table.
            dup2_stdin(File::open("/dev/null")?)?;
        }
        if streams.stdout.is_some() || streams.stderr.is_some() {
            let (from_guest, to_reader) = pipe()?;
            let kept = streams.kept.clone();
            let read = move || keep(from_guest, &kept);
            streams.reader = Some(std::thread::Builder::new().name("wlprof output".into()).spawn(read)?);
            if streams.stdout.is_some() {
                dup2_stdout(&to_reader)?;
            }
            if streams.stderr.is_some() {
                dup2_stderr(&to_reader)?;
            }
        }
        Ok(streams)
    }
}

/// Gives them back, and the terminal what was written.
impl Drop for GuestStreams {
    fn drop(&mut self) {
        // What is buffered is the guest's.
        let _ = stdout().flush();
        // Descriptors of before are as good as they were then.
        let _ = self.stdin.take().map(dup2_stdin);
        let was_terminal = [self.stdout.is_some(), self.stderr.is_some()];
        let _ = self.stdout.take().map(dup2_stdout);
        let _ = self.stderr.take().map(dup2_stderr);
        if let Some(reader) = self.reader.take() {
            // With the last of its writers gone it ends.
            let _ = reader.join();
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (one, other) = kept.bytes.as_slices();
        let mut to: Box<dyn Write> = if was_terminal[0] { Box::new(stdout()) } else { Box::new(stderr()) };
        if kept.dropped > 0 {
            let _ = writeln!(to, "… {} bytes of the guest's output before these are not kept", kept.dropped);
        }
        let _ = to.write_all(one).and_then(|()| to.write_all(other)).and_then(|()| to.flush());
    }
}

/// Keeps the end of what is written.
fn keep(mut from_guest: PipeReader, kept: &Mutex<SavedSettings>) {
    let mut chunk = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from_guest.read(&mut chunk) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes.extend(&chunk[..length]);
        let over = kept.bytes.len().saturating_sub(KEPT);
        kept.bytes.drain(..over);
        kept.dropped += over as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_is_written_is_kept() {
        let (from_guest, mut to_reader) = pipe().unwrap();
        let kept = Arc::<Mutex<SavedSettings>>::default();
        let reader = std::thread::spawn({
            let kept = kept.clone();
            move || keep(from_guest, &kept)
        });
        to_reader.write_all(b"aaaaa").unwrap();
        to_reader.write_all(&vec![b'b'; KEPT - 1]).unwrap();
        drop(to_reader);
        reader.join().unwrap();
        let kept = kept.lock().unwrap();
        assert_eq!((kept.bytes.len(), kept.dropped, kept.bytes[0], kept.bytes[1]), (KEPT, 4, b'a', b'b'));
    }
}
