//! What the walk must know of aarch64: the registers of an interrupted thread, and the few places in Cranelift's code
//! where the frame pointer is not yet, or no longer, the interrupted function's own.
//!
//! In all of these the link register has the return address and the frame pointer is the caller's: unlike on x86-64 a call
//! writes nothing to the stack, and a prologue saves both registers by one instruction.

#[cfg(target_os = "linux")]
use super::is_on_signal_stack;
use super::{Caller, word};
use crate::stack_memory::StackMemory;

/// The registers that a walk begins with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    /// Address of the instruction about to run.
    pub pc: usize,
    /// Stack pointer.
    pub sp: usize,
    /// Frame pointer, x29.
    pub fp: usize,
    /// Link register, x30: the return address until another call is made.
    pub lr: usize,
    /// The stack pointer is on the thread's alternate stack: a signal handler was interrupted.
    pub is_on_signal_stack: bool,
}

#[cfg(target_os = "linux")]
impl Registers {
    /// Reads the registers that a signal interrupted.
    ///
    /// # Safety
    /// `context` must be the third argument of a signal handler installed with `SA_SIGINFO`.
    pub unsafe fn interrupted(context: *const libc::c_void) -> Self {
        // SAFETY: `context` is the third argument of a `SA_SIGINFO` handler (see # Safety): the kernel has put a whole `ucontext_t` there,
        // which stays until the handler returns.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let machine = &context.uc_mcontext;
        let sp = machine.sp as usize;
        Self {
            pc: machine.pc as usize,
            sp,
            fp: machine.regs[29] as usize,
            lr: machine.regs[30] as usize,
            is_on_signal_stack: is_on_signal_stack(context, sp),
        }
    }
}

/// Where the return address and the caller's frame pointer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// In x30 and x29.
    InRegisters,
    /// `[x29 + 8]` and `[x29]`: the frame is set up.
    InFrame,
}

/// Finds the caller of the function that was interrupted.
///
/// `None` if that would mean to read outside the frames of this activation, which lie between the stack pointer and
/// `entry_fp`: what stands where is read off the code, and code may be made to look like something else.
///
/// # Safety
/// The registers must be those of a thread standing still in the function whose code is `code` (with `code_start` its
/// address), and the memory from the stack pointer to `entry_fp` its stack, which `memory` can read.
pub(crate) unsafe fn caller_of_interrupted(
    memory: &impl StackMemory,
    registers: Registers,
    code_start: usize,
    code: &[u8],
    entry_fp: usize,
) -> Option<Caller> {
    let Registers { pc, sp, fp, lr, .. } = registers;
    // SAFETY: the memory from `sp` to `entry_fp` is the stack of a thread that stands still, and `memory` can read it (see # Safety).
    let word = |address| unsafe { word(memory, address?, sp..entry_fp) };
    let at = pc.checked_sub(code_start).filter(|at| *at < code.len())?;
    match link(code, at) {
        Link::InRegisters => Some(Caller { return_pc: return_address(lr), fp }),
        Link::InFrame => Some(Caller { return_pc: return_address(word(fp.checked_add(8))?), fp: word(Some(fp))? }),
    }
}

/// Returns the address in a word that code has saved to return to: without its signature, where code signs what it saves (pointer
/// authentication, `cranelift_sign_return_address`).
pub fn return_address(saved: usize) -> usize {
    let address;
    // SAFETY: XPACLRI changes x30 alone, which is said to be overwritten; processors without signatures do nothing there.
    // It knows which bits are the signature's: how many depends on the kernel.
    unsafe {
        std::arch::asm!(
            "mov x30, {saved}",
            "hint #7",
            "mov {address}, x30",
            saved = in(reg) saved,
            address = lateout(reg) address,
            out("x30") _,
            options(nomem, nostack, preserves_flags, pure),
        );
    }
    address
}

/// Length of a call to an address that the instruction has in it.
pub const DIRECT_CALL: usize = 4;

/// Returns what the instruction before `return_pc` calls, if it is a call to an address that it has in it: `bl`.
pub fn directly_called(call: [u8; DIRECT_CALL], return_pc: usize) -> Option<usize> {
    let instruction = u32::from_le_bytes(call);
    if instruction & 0xfc00_0000 != 0x9400_0000 {
        return None;
    }
    // 26 bits with a sign, of words, from the instruction on.
    let words = (instruction << 6) as i32 >> 6;
    Some(return_pc.wrapping_sub(DIRECT_CALL).wrapping_add_signed(words as isize * 4))
}

/// Bytes of a call to an address in a register.
pub const LONGEST_INDIRECT_CALL: usize = 4;

/// Returns whether `before` is an instruction that calls an address in a register: `blr`.
pub fn calls_indirectly(before: &[u8; LONGEST_INDIRECT_CALL]) -> bool {
    u32::from_le_bytes(*before) & 0xffff_fc1f == 0xd63f_0000
}

/// Returns whether a function with this code may end in another's place: whether some jump stands where its frame has been taken down.
pub fn has_tail_call(code: &[u8]) -> bool {
    (0..code.len()).step_by(4).any(|at| is_jump(instruction(code, at)) && in_epilogue(code, at))
}

/// `stp x29, x30, [sp, #-16]!`.
const PUSH_FRAME: u32 = 0xa9bf_7bfd;
/// `ldp x29, x30, [sp], #16`.
const POP_FRAME: u32 = 0xa8c1_7bfd;
/// `stp x29, x30, [sp]`.
const STORE_FRAME: u32 = 0xa900_7bfd;
/// `mov x29, sp`.
const SET_FRAME_POINTER: u32 = 0x9100_03fd;

/// Tells from the code around `at` where the return address is when the instruction at `at` is about to run.
fn link(code: &[u8], at: usize) -> Link {
    if in_prologue(code, at) || in_epilogue(code, at) || frame_is_moved(code, at) {
        Link::InRegisters
    } else {
        Link::InFrame
    }
}

/// The instruction at `at`; 0, which is none, outside the function.
fn instruction(code: &[u8], at: usize) -> u32 {
    let bytes = at.checked_add(4).and_then(|end| code.get(at..end)?.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// How many instructions hints take at the function's start: where it may be jumped to (`bti`), and what signs the return address
/// (`paciasp`, `pacibz` and their like).
const MAX_HINTS: usize = 3;

/// Whether `at` stands before `mov x29, sp` has been run.
fn in_prologue(code: &[u8], at: usize) -> bool {
    if at > 4 * (MAX_HINTS + 1) {
        return false;
    }
    let push = (0..MAX_HINTS).map(|index| 4 * index).find(|&hint| !is_hint(instruction(code, hint)));
    let push = push.unwrap_or(4 * MAX_HINTS);
    at <= push
        || (at == push + 4 && instruction(code, push) == PUSH_FRAME && instruction(code, at) == SET_FRAME_POINTER)
}

/// Whether `at` stands between the instruction that takes the frame down and the return, or the jump of a tail call.
///
/// In between, the room of arguments on the stack is given back (by an amount that may need x16), and the return address's
/// signature is checked.
fn in_epilogue(code: &[u8], at: usize) -> bool {
    /// The longest that was seen has four.
    const MAX_BETWEEN: usize = 8;
    let is_between = |instruction| is_hint(instruction) || adds_to_stack_pointer(instruction) || sets_x16(instruction);
    let popped = (1..=MAX_BETWEEN)
        .map_while(|back| at.checked_sub(4 * back).map(|at| instruction(code, at)))
        .find(|&before| !is_between(before));
    let goes_on = || {
        let mut ahead = (0..=MAX_BETWEEN).map(|ahead| instruction(code, at + 4 * ahead));
        ahead.find(|&ahead| !is_between(ahead)).is_some_and(is_return_or_jump)
    };
    popped == Some(POP_FRAME) && goes_on()
}

/// Whether `at` stands where a prologue has moved the frame down and x29 is the caller's again.
///
/// A function that tail-calls one with more stack arguments than its own makes room for them after it has set up its frame:
/// `sub sp, sp, #n; ldr x29, [sp, #n]; stp x29, x30, [sp]; mov x29, sp`. x30 is the return address in all of this.
fn frame_is_moved(code: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(4 * back).map_or(0, |at| instruction(code, at));
    match instruction(code, at) {
        STORE_FRAME => loads_frame_pointer(before(1)),
        SET_FRAME_POINTER => before(1) == STORE_FRAME && loads_frame_pointer(before(2)),
        _ => false,
    }
}

/// `ldr x29, [sp, #n]`, or `ldur`.
fn loads_frame_pointer(instruction: u32) -> bool {
    instruction & 0xffc0_03ff == 0xf940_03fd || instruction & 0xffe0_0fff == 0xf840_03fd
}

/// Any of the instructions that older processors take for `nop`: `bti`, and those that sign and check a return address.
fn is_hint(instruction: u32) -> bool {
    instruction & 0xffff_f01f == 0xd503_201f
}

/// `add sp, sp, #n`, or a register instead of the number.
fn adds_to_stack_pointer(instruction: u32) -> bool {
    instruction & 0xff80_03ff == 0x9100_03ff || instruction & 0xffe0_ffff == 0x8b20_63ff
}

/// `movz x16, #n` or `movk x16, #n`.
fn sets_x16(instruction: u32) -> bool {
    matches!(instruction & 0xff80_001f, 0xd280_0010 | 0xf280_0010)
}

/// `ret`, also of those that check the signature, or `b` or `br`.
fn is_return_or_jump(instruction: u32) -> bool {
    const RET: u32 = 0xd65f_0000;
    const RETAA: u32 = 0xd65f_0bff;
    const RETAB: u32 = 0xd65f_0fff;
    instruction & 0xffff_fc1f == RET || matches!(instruction, RETAA | RETAB) || is_jump(instruction)
}

/// `b` or `br`.
fn is_jump(instruction: u32) -> bool {
    const BR: u32 = 0xd61f_0000;
    const B: u32 = 0x1400_0000;
    instruction & 0xffff_fc1f == BR || instruction & 0xfc00_0000 == B
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack_memory::OwnStack;

    const NOP: u32 = 0xd503_201f;
    const BTI_C: u32 = 0xd503_245f;
    const PACIASP: u32 = 0xd503_233f;
    const AUTIASP: u32 = 0xd503_23bf;
    const RET: u32 = 0xd65f_03c0;
    const B: u32 = 0x1400_0010;
    const ADD_SP_32: u32 = 0x9100_83ff;
    const SUB_SP_32: u32 = 0xd100_83ff;
    const LDR_X29_SP_32: u32 = 0xf940_13fd;
    const MOV_X16: u32 = 0xd282_0010;
    const ADD_SP_X16: u32 = 0x8b30_63ff;
    const ADD_X0: u32 = 0x8b01_0000;

    /// Where the return address is at each instruction: `r` for in registers, `f` for in the frame.
    fn links(instructions: &[u32]) -> String {
        let code: Vec<u8> = instructions.iter().flat_map(|instruction| instruction.to_le_bytes()).collect();
        let is_in_frame = |index: usize| link(&code, 4 * index) == Link::InFrame;
        (0..instructions.len()).map(|index| if is_in_frame(index) { 'f' } else { 'r' }).collect()
    }

    #[test]
    fn prologue_and_epilogue() {
        assert_eq!(links(&[PUSH_FRAME, SET_FRAME_POINTER, ADD_X0, POP_FRAME, RET]), "rrffr");
        let signed = [BTI_C, PACIASP, PUSH_FRAME, SET_FRAME_POINTER, NOP, POP_FRAME, AUTIASP, RET];
        assert_eq!(links(&signed), "rrrrffrr");
    }

    #[test]
    fn every_instruction_of_a_tail_call_that_gives_back_stack() {
        let small = [PUSH_FRAME, SET_FRAME_POINTER, ADD_X0, POP_FRAME, ADD_SP_32, B, ADD_X0];
        assert_eq!(links(&small), "rrffrrf");
        let large = [PUSH_FRAME, SET_FRAME_POINTER, ADD_X0, POP_FRAME, MOV_X16, ADD_SP_X16, AUTIASP, B, ADD_X0];
        assert_eq!(links(&large), "rrffrrrrf");
    }

    #[test]
    fn functions_with_tail_calls_are_known() {
        let has = |instructions: &[u32]| {
            has_tail_call(&instructions.iter().flat_map(|instruction| instruction.to_le_bytes()).collect::<Vec<_>>())
        };
        assert!(has(&[PUSH_FRAME, SET_FRAME_POINTER, POP_FRAME, ADD_SP_32, B]));
        assert!(!has(&[PUSH_FRAME, SET_FRAME_POINTER, B, POP_FRAME, RET]) && !has(&[]));
    }

    #[test]
    fn a_frame_that_is_moved_is_in_registers_until_it_is_set_again() {
        let code = [PUSH_FRAME, SET_FRAME_POINTER, SUB_SP_32, LDR_X29_SP_32, STORE_FRAME, SET_FRAME_POINTER, ADD_X0];
        assert_eq!(links(&code), "rrffrrf");
    }

    #[test]
    fn a_constant_that_looks_like_an_epilogue_is_none() {
        // A constant among the code, and what is jumped to behind it.
        let code = [PUSH_FRAME, SET_FRAME_POINTER, B, POP_FRAME, ADD_X0, ADD_X0, POP_FRAME, RET];
        assert_eq!(links(&code), "rrfffffr");
    }

    #[test]
    fn code_that_ends_early_is_no_trouble() {
        assert_eq!(links(&[]), "");
        assert_eq!(links(&[BTI_C]), "r");
        assert_eq!(links(&[POP_FRAME, ADD_SP_32]), "rf");
    }

    #[test]
    fn nothing_is_read_outside_the_stack() {
        let stack = [0usize; 8];
        let low = stack.as_ptr() as usize;
        let code: Vec<u8> = [PUSH_FRAME, SET_FRAME_POINTER, ADD_X0].into_iter().flat_map(u32::to_le_bytes).collect();
        for fp in [0, 8, low - 64, low + 8 * 64, usize::MAX - 7] {
            let registers = Registers { pc: 8, sp: low, fp, lr: 0, is_on_signal_stack: false };
            // SAFETY: the memory from `sp` to `entry_fp` is `stack`, which lives to the end of the test.
            let caller = unsafe { caller_of_interrupted(&OwnStack, registers, 0, &code, low + 64) };
            assert_eq!(caller, None, "{fp:#x}");
        }
    }

    #[test]
    fn calls_lead_forwards_and_backwards() {
        assert_eq!(directly_called(0x9400_0002_u32.to_le_bytes(), 0x1004), Some(0x1008));
        assert_eq!(directly_called(0x97ff_ffff_u32.to_le_bytes(), 0x1004), Some(0xffc));
        assert_eq!(directly_called(RET.to_le_bytes(), 0x1004), None);
    }

    #[test]
    fn an_address_without_a_signature_stays() {
        assert_eq!(return_address(0xffff_8123_4560), 0xffff_8123_4560);
    }
}
