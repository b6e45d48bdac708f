//! What leaving a call must know of aarch64.

use super::{Call, ends};
use std::arch::{asm, naked_asm};
use std::ffi::c_void;

/// What it is called where a plugin has changed how the processor rounds.
pub(super) const ROUNDING: &str = "how the processor rounds (FPCR; does it link crtfastmath?)";

/// Calls `run` with `data`, on the stack that ends at `top` if that is not 0. Comes back when that does, or when somebody sets
/// stack and instruction pointer to what it wrote into `call`: there it takes back the registers that belong to its caller,
/// and returns as if `run` had. Whoever unwinds the stack for an exception comes to `personality`.
///
/// # Safety
/// * `run` must be sound to call with `data`, and `call` must be valid until this returns.
/// * The frames below, which are given up when the call is left, must own nothing.
/// * `top` must be 0, or the end of a stack that nobody else is on.
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn call_until_left(
    run: extern "C-unwind" fn(*mut c_void),
    data: *mut c_void,
    call: *mut Call,
    top: usize,
) {
    naked_asm!(
        ".cfi_startproc",
        // A relative address of four bytes.
        ".cfi_personality 0x1b, {personality}",
        "stp x29, x30, [sp, #-160]!",
        ".cfi_def_cfa_offset 160",
        ".cfi_offset x29, -160",
        ".cfi_offset x30, -152",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "str x29, [x2]",
        "adr x9, 2f",
        "str x9, [x2, #8]",
        "mov x9, x0",
        "mov x0, x1",
        "cbz x3, 1f",
        "mov sp, x3",
        "1:",
        "blr x9",
        "mov sp, x29",
        "2:",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x27, x28, [sp, #80]",
        "ldp x25, x26, [sp, #64]",
        "ldp x23, x24, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #160",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
        personality = sym ends::personality,
    )
}

/// Goes on where `call` says that it is left.
///
/// # Safety
/// `call` must be this thread's and going on, so that `call_until_left` has written where to go on.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn go_on(call: *const Call) -> ! {
    naked_asm!("ldp x9, x10, [x0]", "mov sp, x9", "br x10")
}

/// The instruction that a signal interrupted.
///
/// # Safety
/// `context` must be the third argument of a signal handler installed with `SA_SIGINFO`.
pub(super) unsafe fn interrupted_pc(context: *mut c_void) -> usize {
    // SAFETY: `context` is the third argument of a `SA_SIGINFO` handler (see # Safety): the kernel has put a whole `ucontext_t` there,
    // which stays until the handler returns.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc as usize }
}

/// Has the thread leave `call` when the signal handler returns.
///
/// # Safety
/// As for [`interrupted_pc`]. `call` must be the call that the thread is in.
pub(super) unsafe fn leave_interrupted(context: *mut c_void, call: &Call) {
    // SAFETY: `context` points to the `ucontext_t` of the handler that is running (see # Safety), to which nothing else has a reference.
    // The kernel loads these registers when the handler returns.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    machine.sp = call.stack_pointer as u64;
    machine.pc = call.resume as u64;
}

/// Has the processor fetch the line of memory that `place` is in.
#[inline]
pub(super) fn prefetch(place: *const i8) {
    // SAFETY: a prefetch is a hint: it reads nothing and does not fault, whatever `place` is.
    unsafe { asm!("prfm pldl1keep, [{}]", in(reg) place, options(nostack, preserves_flags, readonly)) };
}

/// The control register of floating point: rounding, denormal numbers, exceptions.
#[derive(Clone, Copy)]
pub(super) struct FloatingPoint {
    fpcr: u64,
}

impl FloatingPoint {
    #[inline]
    pub(super) fn now() -> Self {
        let fpcr;
        // SAFETY: reads a register of this thread, and touches no memory.
        unsafe { asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack, preserves_flags)) };
        Self { fpcr }
    }

    /// Whether it was changed.
    #[inline]
    pub(super) fn put_back(&self) -> bool {
        let is_changed = Self::now().fpcr != self.fpcr;
        if is_changed {
            // SAFETY: loads the word that this thread had before the call, with which Rust's code ran then.
            unsafe { asm!("msr fpcr, {}", in(reg) self.fpcr, options(nomem, nostack, preserves_flags)) };
        }
        is_changed
    }
}

/// There is nothing that must be empty between two functions.
pub(super) fn empty_floating_point() {}
