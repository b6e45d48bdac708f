//! What leaving a call must know of x86-64.

use super::{Call, ends};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::arch::{asm, naked_asm};
use std::ffi::c_void;

/// The flag of the processor that has strings go backwards.
const DIRECTION: i64 = 0x400;

/// What it is called where a plugin has changed how the processor rounds.
pub(super) const ROUNDING: &str = "how the processor rounds (MXCSR or the x87 control word; does it link crtfastmath?)";

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
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        // The stack is aligned to 16 bytes at calls.
        "sub rsp, 8",
        "mov [rdx], rsp",
        "lea rax, [rip + 2f]",
        "mov [rdx + 8], rax",
        "mov rax, rdi",
        "mov rdi, rsi",
        "test rcx, rcx",
        "cmovnz rsp, rcx",
        "call rax",
        "lea rsp, [rbp - 48]",
        "2:",
        // Code may count on it to be clear.
        "cld",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
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
    naked_asm!("mov rax, [rdi + 8]", "mov rsp, [rdi]", "jmp rax")
}

/// The instruction that a signal interrupted.
///
/// # Safety
/// `context` must be the third argument of a signal handler installed with `SA_SIGINFO`.
pub(super) unsafe fn interrupted_pc(context: *mut c_void) -> usize {
    // SAFETY: `context` is the third argument of a `SA_SIGINFO` handler (see # Safety): the kernel has put a whole `ucontext_t` there,
    // which stays until the handler returns.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as usize }
}

/// Has the thread leave `call` when the signal handler returns.
///
/// # Safety
/// As for [`interrupted_pc`]. `call` must be the call that the thread is in.
pub(super) unsafe fn leave_interrupted(context: *mut c_void, call: &Call) {
    // SAFETY: `context` points to the `ucontext_t` of the handler that is running (see # Safety), to which nothing else has a reference.
    // The kernel loads these registers when the handler returns.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RSP as usize] = call.stack_pointer as i64;
    registers[libc::REG_RIP as usize] = call.resume as i64;
    registers[libc::REG_EFL as usize] &= !DIRECTION;
}

/// Has the processor fetch the line of memory that `place` is in.
#[inline]
pub(super) fn prefetch(place: *const i8) {
    // SAFETY: a prefetch is a hint: it reads nothing and does not fault, whatever `place` is.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
}

/// The control words of SSE and x87: rounding, denormal numbers, precision, exceptions.
#[derive(Clone, Copy)]
pub(super) struct FloatingPoint {
    mxcsr: u32,
    x87: u16,
}

impl FloatingPoint {
    /// Bits of MXCSR that record what has happened, which every computation sets.
    const HAPPENED: u32 = 0x3f;

    #[inline]
    pub(super) fn now() -> Self {
        let (mut mxcsr, mut x87) = (0, 0);
        // SAFETY: each instruction stores one word into a local variable of that size.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags));
            asm!("fnstcw [{}]", in(reg) &raw mut x87, options(nostack, preserves_flags));
        }
        Self { mxcsr, x87 }
    }

    /// Whether it was changed.
    #[inline]
    pub(super) fn put_back(&self) -> bool {
        let now = Self::now();
        let is_changed = (now.mxcsr ^ self.mxcsr) & !Self::HAPPENED != 0 || now.x87 != self.x87;
        if is_changed {
            // SAFETY: loads the words that this thread had before the call, with which Rust's code ran then.
            unsafe {
                asm!("ldmxcsr [{}]", in(reg) &raw const self.mxcsr, options(nostack, preserves_flags));
                asm!("fldcw [{}]", in(reg) &raw const self.x87, options(nostack, preserves_flags));
            }
        }
        is_changed
    }
}

/// Empties the registers of x87, as they are between any two functions: a call that was left, or one that used MMX, may have
/// left something there, and the next `long double` would be no number.
pub(super) fn empty_floating_point() {
    let FloatingPoint { x87, .. } = FloatingPoint::now();
    // SAFETY: between two functions nobody needs what is in these registers, and the control word is loaded again as it was.
    unsafe { asm!("fninit", "fldcw [{}]", in(reg) &raw const x87, options(nostack)) };
}
