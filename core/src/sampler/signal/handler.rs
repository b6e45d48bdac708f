//! The signal handler: it does nothing on threads that run no guest.

use super::super::arch::x86_64::Registers;
use super::super::os::linux::own_thread::SIGNAL;
use super::slot::ThreadSlot;
use std::cell::Cell;
use std::io;
use std::sync::OnceLock;

thread_local! {
    /// What the handler records into on this thread. A plain constant-initialized cell: reading it in a signal handler
    /// runs no initializer.
    pub(super) static CURRENT: Cell<*const ThreadSlot> = const { Cell::new(std::ptr::null()) };
}

/// Installs the handler, once in the life of the process.
///
/// # Errors
/// If another one is there.
pub(super) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    INSTALLED.get_or_init(|| try_install().map_err(|error| error.to_string())).clone().map_err(io::Error::other)
}

fn try_install() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid one with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks for the action that is installed.
    if unsafe { libc::sigaction(SIGNAL, std::ptr::null(), &mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
        return Err(io::Error::other("another profiler in this process handles SIGPROF"));
    }
    // SAFETY: zeroes are a valid sigaction, here as before.
    action = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // ONSTACK: the guest's own stack may be almost used up. Wasmtime gives its threads an alternate stack of 256 KiB, but
    // only when told so early (`Engine::tls_eager_initialize`): Rust's own is too small.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is complete, and the handler is async-signal-safe.
    if unsafe { libc::sigaction(SIGNAL, &action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn handler(_signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let current = CURRENT.get();
    if current.is_null() {
        return;
    }
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: a thread leaves before its `ThreadSlot` goes, and the context is that of a SA_SIGINFO handler.
    unsafe { (*current).answer(info, Registers::interrupted(context)) };
    // SAFETY: errno is this thread's own; interrupted code must not see a changed errno.
    unsafe { *libc::__errno_location() = errno };
}
