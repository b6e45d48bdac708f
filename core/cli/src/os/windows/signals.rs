//! What consoles tell instead of signals: Ctrl-C, Ctrl-Break, that the window is closed, that the system shuts down.

use std::io;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

/// Ctrl-C, by the number that C has for it.
pub(crate) const SIGINT: i32 = 2;
/// What a closed window and a shutdown are to C.
const SIGTERM: i32 = 15;
const SIGBREAK: i32 = 21;

/// The exit code of what a console has ended: `STATUS_CONTROL_C_EXIT`.
const ENDED: u32 = 0xC000_013A;

/// What is caught, one after the other.
pub(crate) struct Signals {
    runtime: Runtime,
    caught: Caught,
}

enum Caught {
    Ending(CtrlC, CtrlBreak, CtrlClose, CtrlShutdown),
    Asking(CtrlBreak),
}

/// Returns whether Ctrl-C does nothing. What a console tells cannot be seen to be ignored.
pub(crate) fn ignores_interrupts() -> bool {
    false
}

impl Signals {
    /// Catches all that end the process, from here on.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn that_end() -> io::Result<Self> {
        Self::of(|| Ok(Caught::Ending(ctrl_c()?, ctrl_break()?, ctrl_close()?, ctrl_shutdown()?)))
    }

    /// Catches the one that asks for a dump, Ctrl-Break, from here on.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn that_ask() -> io::Result<Self> {
        Self::of(|| Ok(Caught::Asking(ctrl_break()?)))
    }

    fn of(catch: impl FnOnce() -> io::Result<Caught>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().build()?;
        let caught = catch()?;
        Ok(Self { runtime, caught })
    }

    /// Waits for the next one.
    pub(crate) fn wait(&mut self) -> i32 {
        let Self { runtime, caught } = self;
        runtime.block_on(async {
            match caught {
                Caught::Asking(key) => {
                    key.recv().await;
                    SIGBREAK
                }
                Caught::Ending(key, other_key, close, shutdown) => tokio::select! {
                    _ = key.recv() => SIGINT,
                    _ = other_key.recv() => SIGBREAK,
                    _ = close.recv() => SIGTERM,
                    _ = shutdown.recv() => SIGTERM,
                },
            }
        })
    }
}

/// Files have no largest size here whose end is a signal.
///
/// # Errors
/// None.
pub(crate) fn survive_large_files() -> io::Result<()> {
    Ok(())
}

/// Ends the process with the code that it would have had without wlprof.
pub(crate) fn die_of(_signal: i32) -> ! {
    std::process::exit(ENDED as i32)
}
