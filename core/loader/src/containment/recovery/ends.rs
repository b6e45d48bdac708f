//! Ways in which a plugin would end the thread or the process instead of coming back: each of them leads through here.

use super::{CURRENT, leave, signals};
use crate::containment::AbortReason;
use std::cell::Cell;
use std::ffi::c_void;
use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// How C++ has destructors of thread-local objects run: last in, first out.
    fn __cxa_thread_atexit_impl(
        destructor: unsafe extern "C" fn(*mut c_void),
        object: *mut c_void,
        library: *const c_void,
    ) -> i32;
}

/// Has this thread look, when it is about to end, whether it is in a call: `exit` runs the thread's destructors before
/// anything else. To be called where memory may be allocated, and anew before each call that can wait for it: those that
/// were asked for last run first, and what others have destroyed by then would be missed by a thread that goes on.
pub(in super::super) fn watch_thread() {
    unsafe extern "C" fn when_ending(_object: *mut c_void) {
        let call = CURRENT.get();
        CALLS.set(0);
        if call.is_null() {
            signals::say_last_words("wlprof: ended by a constructor");
        } else {
            // SAFETY: `call` is this thread's innermost call, which goes on: something in it has called `exit`.
            unsafe { leave(call, AbortReason::Exit) }
        }
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: the function is in the program, which is never unloaded. Without it `exit` ends the process.
    unsafe {
        __cxa_thread_atexit_impl(when_ending, null_mut(), when_ending as *const c_void)
    };
}

thread_local! {
    /// Calls since this thread was last about to end.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The same for calls of which there may be millions: at the first, the second, the fourth and so on of this thread, since every
/// time takes memory for as long as the thread goes on. What else wants to be told of its end asks for that early.
#[inline]
pub(in super::super) fn watch_thread_at_times() {
    let calls = CALLS.get() + 1;
    CALLS.set(calls);
    if calls.is_power_of_two() {
        watch_thread();
    }
}

/// What is asked when the stack is unwound to a call, for an exception that nobody in the plugin has caught, or for
/// `pthread_exit`. Frames of the plugin have been asked by then, or are skipped as the end of the thread would.
pub(super) unsafe extern "C" fn personality(
    _version: i32,
    _actions: i32,
    _class: u64,
    _exception: *mut c_void,
    _context: *mut c_void,
) -> i32 {
    /// Ends the program, by the conventions for unwinding: there is nowhere to go.
    const FATAL: i32 = 2;
    let call = CURRENT.get();
    if call.is_null() {
        return FATAL;
    }
    // SAFETY: `call` is this thread's innermost call, which goes on: the stack has been unwound to it.
    unsafe { leave(call, AbortReason::Unwound) }
}

/// This process is a copy that a plugin made, by `fork`, in a call.
static IS_COPY: AtomicBool = AtomicBool::new(false);

/// The exit code of a process that is stuck: wlprof itself failed.
const STUCK: i32 = 125;

/// Sees when the process is copied, from then on.
pub(super) fn watch_copies() {
    unsafe extern "C" fn in_copy() {
        IS_COPY.store(!CURRENT.get().is_null(), Ordering::Relaxed);
    }
    // SAFETY: the function is async-signal-safe. Without it there is a second guest after a fork.
    unsafe { libc::pthread_atfork(None, None, Some(in_copy)) };
}

/// Ends this process where it is a plugin's copy: a copy's guest would do everything a second time.
#[inline]
pub(super) fn stop_if_copy() {
    if IS_COPY.load(Ordering::Relaxed) {
        // SAFETY: `_exit` takes a number and does not return. It flushes nothing, so that no file of the original's gets anything twice.
        unsafe { libc::_exit(0) }
    }
}

/// Ends the process without what libraries want to do at its end: a plugin may hang there, and `exit` waits for ever if a
/// call was left in it.
pub(in super::super::super) fn end_process(code: u8) -> ! {
    let _ = std::io::stdout().flush();
    // SAFETY: `_exit` takes a number and does not return: no code runs that could miss what it leaves out.
    unsafe { libc::_exit(code.into()) }
}

/// Ends the process, of which `thread` is stuck for good, after it has said why.
///
/// The guest's thread is not the one that writes the profile: SIGTERM has the `wlprof` command end the run and write it, as
/// somebody's who stops it. All others wait for the main thread and, if it `is_naming`, for the one that records.
pub(in super::super) fn end_stuck_process(thread: i32, is_naming: bool, why: &str) {
    let _ = writeln!(std::io::stderr(), "wlprof: {why}");
    // SAFETY: `_exit`, `kill` and `getpid` take only numbers, and no pointer.
    unsafe {
        if is_naming || thread == libc::getpid() {
            libc::_exit(STUCK);
        }
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
}
