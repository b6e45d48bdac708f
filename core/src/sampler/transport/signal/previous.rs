//! The handler of `SIGPROF` that was there before: another profiler's of this process, which goes on as before.

use crate::sampler::os::own_thread::SIGNAL;
use std::io;
use std::sync::OnceLock;

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Keeps the handler that is installed. To be called before it is replaced.
///
/// # Errors
/// If the system does not say which that is.
pub(super) fn keep() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid one with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action `sigaction` changes nothing, and writes the installed one into `action`.
    if unsafe { libc::sigaction(SIGNAL, std::ptr::null(), &mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
        // There is one life of a process to keep it in.
        let _ = PREVIOUS.set(action);
    }
    Ok(())
}

/// Gives the handler that was there before a signal that no event of wlprof's sent. Async-signal-safe, as far as that handler is. The
/// mask that it was installed with is not set.
///
/// # Safety
/// Call this in a handler that was installed with `SA_SIGINFO`, with its arguments.
pub(super) unsafe fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(previous) = PREVIOUS.get() else { return };
    let handler = previous.sa_sigaction as *const ();
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: it was installed as a handler that takes these three.
        let handler = unsafe { std::mem::transmute::<*const (), Handler>(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: without `SA_SIGINFO` it was installed as a handler that takes only the signal.
        let handler = unsafe { std::mem::transmute::<*const (), extern "C" fn(libc::c_int)>(handler) };
        handler(signal);
    }
}
