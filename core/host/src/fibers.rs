//! From the first frame of a fiber of Wasmtime's to the stack of who has resumed it.
//!
//! The tables say how: `wasmtime_fiber_start` has an expression that reads where the stack pointer of the other stack is kept. framehop evaluates
//! expressions that read no memory.

use crate::code::HostRegisters;

const WORD: usize = size_of::<usize>();

/// Registers that `wasmtime_fiber_switch` has pushed when it keeps the stack pointer, below the address that it returns to; `rbp` is the first.
const PUSHED: usize = 6;

/// Bytes within which an address is of the same stack.
const NEAR: usize = 16 << 10;

/// How the instructions begin that `wasmtime_fiber_switch` may be called by, and how long they are: to where is said relative to their ends,
/// or in a word there.
const CALLS: [(&[u8], usize); 2] = [(&[0xe8], 5), (&[0xff, 0x15], 6)];

/// The registers of who has resumed the fiber whose first function has this stack pointer. `None` if it is none, as far as can be told.
pub(crate) fn resumer(sp: usize, word: impl Fn(usize) -> Option<usize>) -> Option<HostRegisters> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let kept = word(sp)?;
    // It is on another stack.
    (kept.abs_diff(sp) >= NEAR).then_some(())?;
    let sp = kept.checked_add((PUSHED + 1) * WORD)?;
    let pc = word(sp - WORD)?;
    let fp = word(sp - 2 * WORD)?;
    let is_call = |(begins, length): &(&[u8], usize)| {
        pc.checked_sub(*length).and_then(&word).is_some_and(|code| code.to_le_bytes().starts_with(begins))
    };
    CALLS.iter().any(is_call).then_some(HostRegisters { pc, sp, fp, lr: pc, is_return: true })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn who_has_resumed_a_fiber_is_found_behind_a_call() {
        let resumer_of = |code: [u8; 8]| {
            let memory = HashMap::from([
                (0x8000, 0x19000),
                (0x19028, 0x19100),
                (0x19030, 0x4006),
                (0x4000, usize::from_le_bytes(code)),
                (0x4001, usize::from_le_bytes(code) >> 8),
            ]);
            resumer(0x8000, |address| memory.get(&address).copied())
        };
        for call in [[0x90, 0xe8, 0, 0, 0, 0, 0, 0], [0xff, 0x15, 0, 0, 0, 0, 0, 0]] {
            let registers = resumer_of(call).unwrap();
            assert_eq!(
                (registers.pc, registers.sp, registers.fp, registers.is_return),
                (0x4006, 0x19038, 0x19100, true)
            );
        }
        assert!(resumer_of([0x90; 8]).is_none());
        assert!(resumer(usize::MAX, |_| Some(usize::MAX - 50)).is_none());
    }
}
