//! Steps by the processor's own single-step flag, in compiled code and in the host's.

use super::Step;
use std::cell::Cell;
use std::ops::Range;
use wlprof_walk::Registers;

/// The trap flag of EFLAGS.
const TRAP_FLAG: i64 = 0x100;

thread_local! {
    static STEPPING: Cell<bool> = const { Cell::new(false) };
}

/// Has this thread stop at each instruction from here on.
pub(super) fn begin(_text: Range<usize>) {
    STEPPING.set(true);
    // SAFETY: the handler of SIGTRAP has been installed. It returns, and all that it changes is whether this thread is stepped.
    unsafe { libc::raise(libc::SIGTRAP) };
}

/// Has it stop no more.
pub(super) fn end() {
    STEPPING.set(false);
}

/// To be called first where it has stopped.
///
/// # Safety
/// None here: other processors have something to do then.
pub(super) unsafe fn stopped(_context: *mut libc::c_void) {}

/// Has it go on to the next instruction, when the handler returns.
///
/// # Safety
/// `context` must be the third argument of a signal handler installed with `SA_SIGINFO`.
pub(super) unsafe fn go_on(context: *mut libc::c_void) {
    // SAFETY: `context` points to the `ucontext_t` of the handler that is running (see # Safety), to which nothing else has a reference.
    // The kernel loads these registers when the handler returns.
    let flags = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] };
    *flags = if STEPPING.get() { *flags | TRAP_FLAG } else { *flags & !TRAP_FLAG };
}

/// What the instruction at `before.pc`, in compiled code, has done.
pub(super) fn step(before: Registers, now: Registers) -> Step {
    // SAFETY: `before.pc` was in the module's code, which is mapped and readable.
    let instruction = unsafe { std::slice::from_raw_parts(before.pc as *const u8, 4) };
    let is_call = match instruction {
        [0xe8, ..] => true,
        [0xff, modrm, ..] | [0x40..=0x4f, 0xff, modrm, ..] => modrm >> 3 & 7 == 2,
        _ => false,
    };
    if is_call && now.sp == before.sp - 8 {
        // SAFETY: the instruction was a call, and the stack pointer went down by a word: the return address has just been pushed there.
        Step::Call { return_pc: unsafe { *(now.sp as *const usize) }, above: now.sp }
    } else if matches!(instruction, [0xc3 | 0xc2, ..]) {
        Step::Return
    } else {
        Step::Other
    }
}
