//! Leaves the call of a thread that blocks all signals as a debugger would: from another process, which stops the thread and
//! sets its registers. Where that is forbidden the call cannot be left.

use super::{Call, IN_HOST, processor};
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;

/// A call that is to be left, and what shows that it is still going on.
pub(in super::super) struct Condemned<'a> {
    pub(in super::super) thread: i32,
    pub(in super::super) call: usize,
    pub(in super::super) sequence: &'a AtomicU64,
    pub(in super::super) number: u64,
}

/// After this many seconds the other process gives up.
const LONGEST_S: u32 = 10;
/// How often it asks for permission, a millisecond apart: it has to be given first.
const REQUESTS: u32 = 200;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(in super::super) enum Forced {
    /// The call has been left, or has ended meanwhile.
    Left = 1,
    /// It was in wlprof's own code.
    NotNow,
    /// This process may not do it.
    Forbidden,
}

/// Leaves a call.
pub(in super::super) fn leave_by_force(condemned: &Condemned<'_>) -> Forced {
    // Not `fork`, which takes locks that the thread may hold, and runs what others want run then.
    // SAFETY: makes a process with a copy of this thread and of its memory, which makes only system calls and ends.
    let helper = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
    match helper {
        0 => {
            // SAFETY: only a copy of this thread runs here, and makes system calls. The memory is as it was a moment ago, and the call goes
            // on.
            unsafe {
                libc::alarm(LONGEST_S);
                libc::_exit(stop_and_leave(condemned) as i32)
            }
        }
        ..0 => Forced::Forbidden,
        _ => {
            // Where a process may trace its descendants alone it has to be allowed; elsewhere this is not known.
            // SAFETY: `prctl` takes only numbers here, and no pointer.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, helper, 0, 0, 0) };
            let mut status = 0;
            // SAFETY: `status` has room for the child's status, which is written during the call.
            let waited = unsafe { libc::waitpid(helper, &mut status, 0) };
            let code = (waited == helper && libc::WIFEXITED(status)).then(|| libc::WEXITSTATUS(status));
            let known = [Forced::Left, Forced::NotNow].into_iter().find(|forced| code == Some(*forced as i32));
            known.unwrap_or(Forced::Forbidden)
        }
    }
}

/// # Safety
/// Call this in another process than the thread's, which has a copy of its memory.
unsafe fn stop_and_leave(condemned: &Condemned<'_>) -> Forced {
    let &Condemned { thread, call, sequence, number } = condemned;
    let call = call as *const Call;
    let is_seized = (0..REQUESTS).any(|_| {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: `ptrace` asks to trace the thread and takes no pointer to memory; `nanosleep` reads `pause` during the call.
        unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, thread, null_mut::<u8>(), null_mut::<u8>()) == 0
                || libc::nanosleep(&pause, null_mut()) == -1
        }
    });
    if !is_seized {
        return Forced::Forbidden;
    }
    // SAFETY: the thread is this process's to stop, and stands still then; all that is read and written is of the call that
    // it is in, which the copy of its memory shows.
    unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, thread, null_mut::<u8>(), null_mut::<u8>());
        if libc::waitpid(thread, null_mut(), libc::__WALL) != thread {
            return Forced::Forbidden;
        }
        let word = |address: usize| libc::ptrace(libc::PTRACE_PEEKDATA, thread, address, null_mut::<u8>());
        if word((&raw const *sequence) as usize) as u64 != number {
            return Forced::Left;
        }
        if word(&raw const (*call).place as usize) as u8 == IN_HOST {
            return Forced::NotNow;
        }
        if processor::leave_traced(thread, &*call) { Forced::Left } else { Forced::Forbidden }
    }
}
