//! What the walk must know of x86-64: the registers of an interrupted thread, and the few places in Cranelift's code
//! where the frame pointer is not yet, or no longer, the interrupted function's own.

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
    /// Frame pointer.
    pub fp: usize,
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
        let register = |index: libc::c_int| context.uc_mcontext.gregs[index as usize] as usize;
        let sp = register(libc::REG_RSP);
        Self {
            pc: register(libc::REG_RIP),
            sp,
            fp: register(libc::REG_RBP),
            is_on_signal_stack: is_on_signal_stack(context, sp),
        }
    }
}

/// Where the return address stands, relative to the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// `[sp]` is the return address, `fp` the caller's still or again.
    AtStackPointer,
    /// The caller's frame pointer has been pushed, `fp` is the caller's.
    AbovePushedFramePointer,
    /// `[fp]` and `[fp + 8]`: the frame is set up.
    InFrame,
    /// As `InFrame`, but higher by this many bytes: the frame is being moved to make room for a tail call.
    InMovedFrame(usize),
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
    let Registers { pc, sp, fp, .. } = registers;
    // SAFETY: the memory from `sp` to `entry_fp` is the stack of a thread that stands still, and `memory` can read it (see # Safety).
    let word = |address| unsafe { word(memory, address?, sp..entry_fp) };
    let frame = |fp: Option<usize>| Some(Caller { return_pc: word(fp?.checked_add(8))?, fp: word(fp)? });
    let at = pc.checked_sub(code_start).filter(|at| *at < code.len())?;
    match link(code, at) {
        Link::AtStackPointer => Some(Caller { return_pc: word(Some(sp))?, fp }),
        Link::AbovePushedFramePointer => Some(Caller { return_pc: word(sp.checked_add(8))?, fp }),
        Link::InFrame => frame(Some(fp)),
        Link::InMovedFrame(by) => frame(fp.checked_add(by)),
    }
}

/// Returns the address in a word that a call has saved to return to.
pub fn return_address(saved: usize) -> usize {
    saved
}

/// Length of a call to an address that the instruction has in it.
pub const DIRECT_CALL: usize = 5;

/// Returns what the instruction before `return_pc` calls, if it is a call to an address that it has in it: `call rel32`.
pub fn directly_called(call: [u8; DIRECT_CALL], return_pc: usize) -> Option<usize> {
    let [0xe8, a, b, c, d] = call else { return None };
    Some(return_pc.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]) as isize))
}

/// Bytes of the longest call to an address in a register or in memory, without prefixes.
pub const LONGEST_INDIRECT_CALL: usize = 7;

/// Returns whether an instruction may end with `before` that calls an address in a register or in memory: `call r64` and `call m64`.
pub fn calls_indirectly(before: &[u8; LONGEST_INDIRECT_CALL]) -> bool {
    let [a, b, _, c, d, e, f] = *before;
    let is_call = |opcode: u8, operand: u8, operands: &[std::ops::RangeInclusive<u8>]| {
        opcode == 0xff && operands.iter().any(|range| range.contains(&operand))
    };
    // Without a displacement, with one of a byte, and with one of four; those with an index are a byte longer.
    is_call(e, f, &[0xd0..=0xd7, 0x10..=0x13, 0x16..=0x17])
        || is_call(d, e, &[0x50..=0x53, 0x55..=0x57, 0x14..=0x14])
        || is_call(c, d, &[0x54..=0x54])
        || is_call(b, before[2], &[0x90..=0x93, 0x95..=0x97, 0x15..=0x15])
        || is_call(a, b, &[0x94..=0x94])
}

/// Returns whether a function with this code may end in another's place: whether some jump stands where its frame has been taken down.
pub fn has_tail_call(code: &[u8]) -> bool {
    let is_down = |before: &[u8]| before.ends_with(&[POP_RBP]) || ends_with_add_to_stack_pointer(before);
    (1..code.len()).any(|at| is_jump(&code[at..]) && is_down(&code[..at]))
}

const PUSH_RBP: u8 = 0x55;
const POP_RBP: u8 = 0x5d;
const RET: u8 = 0xc3;
const RET_POPPING: u8 = 0xc2;
const JMP_REL32: u8 = 0xe9;
const MOV_RBP_RSP: [u8; 3] = [0x48, 0x89, 0xe5];

/// Tells from the code around `at` where the return address stands when the instruction at `at` is about to run.
fn link(code: &[u8], at: usize) -> Link {
    let rest = &code[at..];
    match rest[0] {
        PUSH_RBP if at == 0 => Link::AtStackPointer,
        RET | RET_POPPING => Link::AtStackPointer,
        _ if at == 1 && code[0] == PUSH_RBP => Link::AbovePushedFramePointer,
        _ if in_tail_call(code, at) => Link::AtStackPointer,
        _ => frame_being_moved(code, at).map_or(Link::InFrame, Link::InMovedFrame),
    }
}

/// Whether `at` lies between the `pop rbp` of a tail call and the jump that makes it.
///
/// Cranelift takes the frame down first (`mov rsp, rbp; pop rbp`), then moves the return address to where the callee's
/// arguments end (`mov r, [rsp]; mov [rsp + n], r; add rsp, n`, absent if they need the same room), then jumps. In all
/// of this `[rsp]` is the return address.
fn in_tail_call(code: &[u8], at: usize) -> bool {
    // From here forward: whatever is left of the moves, then the jump.
    let mut next = at;
    let mut moved = false;
    loop {
        let rest = &code[next..];
        if next == at && is_load_from_stack_pointer(rest) {
            next += 4;
        } else if let Some(length) = store_to_stack_length(rest).filter(|_| !moved) {
            next += length;
        } else if let Some((length, _)) = add_to_stack_pointer(rest) {
            moved = true;
            next += length;
        } else {
            break;
        }
    }
    // Back: the move of the stack pointer or the pop must stand right before the jump.
    let before = &code[..next];
    let frame_is_down = next > 0 && (before.ends_with(&[POP_RBP]) || ends_with_add_to_stack_pointer(before));
    frame_is_down && is_jump(&code[next..])
}

/// `jmp rel32`, or `jmp` to a register.
fn is_jump(code: &[u8]) -> bool {
    matches!(code, [JMP_REL32, ..] | [0xff, 0xe0..=0xe7, ..] | [0x41, 0xff, 0xe0..=0xe7, ..])
}

/// `mov r64, [rsp]`.
fn is_load_from_stack_pointer(code: &[u8]) -> bool {
    matches!(code, [0x48 | 0x4c, 0x8b, modrm, 0x24, ..] if modrm & 0xc7 == 0x04)
}

/// Length of `mov [rsp + n], r64`.
fn store_to_stack_length(code: &[u8]) -> Option<usize> {
    match code {
        [0x48 | 0x4c, 0x89, modrm, 0x24, ..] => match modrm & 0xc7 {
            0x44 => Some(5),
            0x84 => Some(8),
            _ => None,
        },
        _ => None,
    }
}

/// Length and amount of `add rsp, n`.
fn add_to_stack_pointer(code: &[u8]) -> Option<(usize, usize)> {
    match *code {
        [0x48, 0x83, 0xc4, amount, ..] => Some((4, amount.into())),
        [0x48, 0x81, 0xc4, a, b, c, d, ..] => Some((7, u32::from_le_bytes([a, b, c, d]) as usize)),
        _ => None,
    }
}

/// `sub rsp, n`.
fn ends_with_sub_from_stack_pointer(code: &[u8]) -> bool {
    matches!(code, [.., 0x48, 0x83, 0xec, _] | [.., 0x48, 0x81, 0xec, _, _, _, _])
}

fn ends_with_add_to_stack_pointer(code: &[u8]) -> bool {
    matches!(code, [.., 0x48, 0x83, 0xc4, _] | [.., 0x48, 0x81, 0xc4, _, _, _, _])
}

/// How far above `fp` the frame still stands while a prologue moves it down.
///
/// A function that tail-calls one with more stack arguments than its own makes room for them right after it has set up
/// its frame: `sub rsp, n; mov rbp, rsp;` then it copies the old frame pointer and the return address down through r11.
/// Until both are copied the originals hold.
fn frame_being_moved(code: &[u8], at: usize) -> Option<usize> {
    /// The stack-limit check stands before this, so it begins within the first bytes but not at a fixed place.
    const PROLOGUE: usize = 128;
    const COPY_DOWN: [u8; 4] = [0x4c, 0x89, 0x1c, 0x24];
    if at >= PROLOGUE {
        return None;
    }
    let prologue = &code[..code.len().min(PROLOGUE + 64)];
    // The limit check begins with a load as well, but not through the stack pointer.
    let begin = (0..prologue.len()).find(|&at| {
        ends_with_sub_from_stack_pointer(&prologue[..at])
            && prologue[at..].strip_prefix(&MOV_RBP_RSP).is_some_and(|after| load_r11(after).is_some())
    })?;
    let after_mov = begin + MOV_RBP_RSP.len();
    // mov r11, [rsp + n]; mov [rsp], r11; mov r11, [rsp + n + 8]; mov [rsp + 8], r11
    let (by, first) = load_r11(&prologue[after_mov..])?;
    let copied_fp = after_mov + first;
    prologue[copied_fp..].starts_with(&COPY_DOWN).then_some(())?;
    let (_, second) = load_r11(&prologue[copied_fp + COPY_DOWN.len()..])?;
    let end = copied_fp + COPY_DOWN.len() + second + 5;
    (after_mov..end).contains(&at).then_some(by)
}

/// Displacement and length of `mov r11, [rsp + n]`.
fn load_r11(code: &[u8]) -> Option<(usize, usize)> {
    match *code {
        [0x4c, 0x8b, 0x5c, 0x24, n, ..] => Some((n.into(), 5)),
        [0x4c, 0x8b, 0x9c, 0x24, a, b, c, d, ..] => Some((u32::from_le_bytes([a, b, c, d]) as usize, 8)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack_memory::OwnStack;

    #[test]
    fn indirect_calls_are_known_by_their_end() {
        // call rax; call r11; call [rdi]; call [rsp]; call [rdi+8]; call [rsp+8]; call [rdi+0x100]; call [rip+0x100]; call [rsp+0x100]
        let calls: [&[u8]; 9] = [
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd3],
            &[0xff, 0x17],
            &[0xff, 0x14, 0x24],
            &[0xff, 0x57, 8],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x97, 0, 1, 0, 0],
            &[0xff, 0x15, 0, 1, 0, 0],
            &[0xff, 0x94, 0x24, 0, 1, 0, 0],
        ];
        let before = |end: &[u8]| {
            let mut before = [0x90; LONGEST_INDIRECT_CALL];
            before[LONGEST_INDIRECT_CALL - end.len()..].copy_from_slice(end);
            calls_indirectly(&before)
        };
        assert!(calls.into_iter().all(before));
        // nop; jmp rax; push [rdi]; inc eax; call rel32
        let others: [&[u8]; 5] = [&[0x90], &[0xff, 0xe0], &[0xff, 0x37], &[0xff, 0xc0], &[0xe8, 0, 1, 0, 0]];
        assert!(!others.into_iter().any(before));
    }

    #[test]
    fn prologue_and_epilogue() {
        // push rbp; mov rbp, rsp; nop; mov rsp, rbp; pop rbp; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x90, 0x48, 0x89, 0xec, 0x5d, 0xc3];
        assert_eq!(link(&code, 0), Link::AtStackPointer);
        assert_eq!(link(&code, 1), Link::AbovePushedFramePointer);
        assert_eq!(link(&code, 4), Link::InFrame);
        assert_eq!(link(&code, 8), Link::InFrame, "before `pop rbp`, sp is fp");
        assert_eq!(link(&code, 9), Link::AtStackPointer);
    }

    #[test]
    fn every_instruction_of_a_tail_call_that_moves_the_return_address() {
        let code = [
            0x48, 0x89, 0xec, // 0: mov rsp, rbp
            0x5d, // 3: pop rbp
            0x4c, 0x8b, 0x1c, 0x24, // 4: mov r11, [rsp]
            0x4c, 0x89, 0x5c, 0x24, 0x10, // 8: mov [rsp + 16], r11
            0x48, 0x83, 0xc4, 0x10, // 13: add rsp, 16
            0xe9, 0, 0, 0, 0, // 17: jmp
        ];
        for at in [4, 8, 13, 17] {
            assert_eq!(link(&code, at), Link::AtStackPointer, "at {at}");
        }
        for at in [0, 3] {
            assert_eq!(link(&code, at), Link::InFrame, "at {at}");
        }
    }

    #[test]
    fn functions_with_tail_calls_are_known() {
        // pop rbp; jmp, and add rsp, 16; jmp r11
        assert!(has_tail_call(&[0x90, 0x5d, 0xe9, 0, 0, 0, 0]));
        assert!(has_tail_call(&[0x48, 0x83, 0xc4, 0x10, 0x41, 0xff, 0xe3]));
        // pop rbp; ret, and jumps that have a frame
        assert!(!has_tail_call(&[0x5d, 0xc3, 0x90, 0xe9, 0, 0, 0, 0, 0xff, 0xe0]));
        assert!(!has_tail_call(&[]));
    }

    #[test]
    fn a_jump_within_the_function_is_no_tail_call() {
        // add rax, rcx; jmp rax (a jump table), and mov [rsp + 8], rax; jmp (a spill before a branch)
        assert_eq!(link(&[0x48, 0x01, 0xc8, 0xff, 0xe0], 3), Link::InFrame);
        let spill = [0x48, 0x89, 0x44, 0x24, 0x08, 0xe9, 0, 0, 0, 0];
        assert_eq!(link(&spill, 0), Link::InFrame);
        assert_eq!(link(&spill, 5), Link::InFrame);
    }

    #[test]
    fn a_constant_that_looks_like_a_prologue_is_none() {
        let code = [
            0x55, 0x48, 0x89, 0xe5, // push rbp; mov rbp, rsp
            0x49, 0xbb, 0x90, 0x48, 0x89, 0xe5, 0x4c, 0x8b, 0x9c, 0x24, // movabs r11, 0x249c8b4ce5894890
            0x49, 0x83, 0xc3, 0x01, // add r11, 1
            0x4c, 0x89, 0x1c, 0x24, // mov [rsp], r11
            0x4c, 0x8b, 0x5c, 0x24, 0x08, // mov r11, [rsp + 8]
            0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
        ];
        for at in [4, 14, 18, 22] {
            assert_eq!(link(&code, at), Link::InFrame, "at {at}");
        }
    }

    #[test]
    fn nothing_is_read_outside_the_stack() {
        let stack = [0usize; 8];
        let low = stack.as_ptr() as usize;
        let code = [0x55, 0x48, 0x89, 0xe5, 0x90];
        for fp in [0, 8, low - 64, low + 8 * 64, usize::MAX - 7] {
            let registers = Registers { pc: 4, sp: low, fp, is_on_signal_stack: false };
            // SAFETY: the memory from `sp` to `entry_fp` is `stack`, which lives to the end of the test.
            let caller = unsafe { caller_of_interrupted(&OwnStack, registers, 0, &code, low + 64) };
            assert_eq!(caller, None, "{fp:#x}");
        }
    }

    #[test]
    fn a_frame_on_the_move_is_read_where_it_was() {
        let code = [
            0x55, 0x48, 0x89, 0xe5, // 0: push rbp; mov rbp, rsp
            0x48, 0x83, 0xec, 0x20, // 4: sub rsp, 32
            0x48, 0x89, 0xe5, // 8: mov rbp, rsp
            0x4c, 0x8b, 0x5c, 0x24, 0x20, // 11: mov r11, [rsp + 32]
            0x4c, 0x89, 0x1c, 0x24, // 16: mov [rsp], r11
            0x4c, 0x8b, 0x5c, 0x24, 0x28, // 20: mov r11, [rsp + 40]
            0x4c, 0x89, 0x5c, 0x24, 0x08, // 25: mov [rsp + 8], r11
            0x90, 0x90, // 30
        ];
        for at in [4, 8, 30] {
            assert_eq!(link(&code, at), Link::InFrame, "at {at}");
        }
        for at in [11, 16, 20, 25] {
            assert_eq!(link(&code, at), Link::InMovedFrame(32), "at {at}");
        }
    }
}
