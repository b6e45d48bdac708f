//! Steps by breakpoints written into the code: a program has no single-step flag of its own here, and emulators deliver signals
//! only where a run of instructions begins.
//!
//! Breakpoints stand wherever the next instruction may be. While the host runs, which may come back to any place, they stand
//! everywhere; not else, since constants stand among the code.

use super::Step;
use std::cell::RefCell;
use std::ops::Range;
use wlprof_walk::Registers;

/// `brk #0`.
const BREAKPOINT: u32 = 0xd420_0000;

/// The breakpoints in a module's code.
struct Breakpoints {
    text: Range<usize>,
    /// Where they stand, and what stands there else.
    planted: Vec<(usize, u32)>,
    /// They stand everywhere.
    is_in_host: bool,
}

thread_local! {
    static BREAKPOINTS: RefCell<Option<Breakpoints>> = const { RefCell::new(None) };
}

/// Has this thread stop at each instruction of `text` from here on.
pub(super) fn begin(text: Range<usize>) {
    // SAFETY: `sysconf` takes no pointer, and changes nothing.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = text.start & !(page - 1);
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: pages of the test's own module, which stay executable; nobody else writes there.
    let failed = unsafe { libc::mprotect(start as *mut _, text.end.next_multiple_of(page) - start, all) };
    assert_eq!(failed, 0, "code cannot be made writable");
    let mut breakpoints = Breakpoints { text, planted: Vec::new(), is_in_host: true };
    breakpoints.plant_everywhere_but(0);
    BREAKPOINTS.set(Some(breakpoints));
}

/// Has it stop no more.
pub(super) fn end() {
    BREAKPOINTS.with_borrow_mut(|breakpoints| breakpoints.iter_mut().for_each(Breakpoints::remove));
    BREAKPOINTS.set(None);
}

/// To be called first where it has stopped: the code is as it was compiled, until it goes on.
///
/// # Safety
/// Call this in the handler of SIGTRAP.
pub(super) unsafe fn stopped(_context: *mut libc::c_void) {
    BREAKPOINTS.with_borrow_mut(|breakpoints| breakpoints.iter_mut().for_each(Breakpoints::remove));
}

/// Has it go on to the next instruction, when the handler returns.
///
/// # Safety
/// `context` must be the third argument of a signal handler installed with `SA_SIGINFO`.
pub(super) unsafe fn go_on(context: *mut libc::c_void) {
    // SAFETY: `context` is the third argument of a `SA_SIGINFO` handler (see # Safety): the kernel has put a whole `ucontext_t` there,
    // which stays until the handler returns.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    BREAKPOINTS.with_borrow_mut(|breakpoints| {
        if let Some(breakpoints) = breakpoints {
            breakpoints.plant_behind(machine.pc as usize, &machine.regs);
        }
    });
}

/// What the instruction at `before.pc`, in compiled code, has done.
pub(super) fn step(before: Registers, now: Registers) -> Step {
    let was_in_host =
        BREAKPOINTS.with_borrow(|breakpoints| breakpoints.as_ref().is_some_and(|breakpoints| breakpoints.is_in_host));
    match Kind::of(word_at(before.pc)) {
        _ if was_in_host => Step::ThroughHost,
        Kind::Call(_) | Kind::CallOf(_) => Step::Call { return_pc: now.lr, above: before.sp - 1 },
        Kind::Return(_) => Step::Return,
        _ => Step::Other,
    }
}

/// What an instruction may go on to: how far away, in bytes, or in the register of that number.
enum Kind {
    Call(usize),
    CallOf(usize),
    Jump(usize),
    JumpTo(usize),
    Return(usize),
    /// That, or the next instruction.
    Branch(usize),
    Next,
}

impl Kind {
    fn of(word: u32) -> Self {
        let register = (word >> 5 & 31) as usize;
        let offset = |low: u32, bits: u32| {
            let shifted = (word << (32 - bits - low)) as i32 >> (32 - bits);
            (shifted as isize * 4) as usize
        };
        match word {
            _ if word & 0xfc00_0000 == 0x9400_0000 => Self::Call(offset(0, 26)),
            _ if word & 0xfc00_0000 == 0x1400_0000 => Self::Jump(offset(0, 26)),
            _ if word & 0xffff_fc1f == 0xd63f_0000 => Self::CallOf(register),
            _ if word & 0xffff_fc1f == 0xd61f_0000 => Self::JumpTo(register),
            _ if word & 0xffff_fc1f == 0xd65f_0000 => Self::Return(register),
            // `retaa` and `retab`: the register is the link register, with a signature.
            0xd65f_0bff | 0xd65f_0fff => Self::Return(30),
            // `b.cond`, `cbz` and `cbnz`; `tbz` and `tbnz`.
            _ if word & 0xff00_0010 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 => Self::Branch(offset(5, 19)),
            _ if word & 0x7e00_0000 == 0x3600_0000 => Self::Branch(offset(5, 14)),
            _ => Self::Next,
        }
    }
}

impl Breakpoints {
    /// Plants them wherever the instruction at `pc` goes on to.
    fn plant_behind(&mut self, pc: usize, registers: &[u64; 31]) {
        // The zero register is not among them.
        let held = |register: usize| {
            let held = registers.get(register).map_or(0, |held| *held as usize);
            wlprof_walk::return_address(held)
        };
        let (first, second) = match Kind::of(word_at(pc)) {
            Kind::Call(offset) | Kind::Jump(offset) => (pc.wrapping_add(offset), None),
            Kind::CallOf(register) | Kind::JumpTo(register) | Kind::Return(register) => (held(register), None),
            Kind::Branch(offset) => (pc + 4, Some(pc.wrapping_add(offset))),
            Kind::Next => (pc + 4, None),
        };
        self.is_in_host = !self.text.contains(&first);
        if self.is_in_host {
            self.plant_everywhere_but(pc);
        } else {
            [Some(first), second].into_iter().flatten().for_each(|at| self.plant(at));
        }
    }

    /// Plants them everywhere but at `pc`, which is to run.
    fn plant_everywhere_but(&mut self, pc: usize) {
        (self.text.start..self.text.end - 3).step_by(4).filter(|at| *at != pc).for_each(|at| self.plant(at));
    }

    fn plant(&mut self, at: usize) {
        if self.text.contains(&at) {
            self.planted.push((at, word_at(at)));
            write(at, BREAKPOINT);
        }
    }

    fn remove(&mut self) {
        // The last first: where two were planted at one place, the first knows what stood there.
        while let Some((at, word)) = self.planted.pop() {
            write(at, word);
        }
    }
}

fn word_at(address: usize) -> u32 {
    // SAFETY: a word of the module's code, which is mapped and readable.
    unsafe { (address as *const u32).read_volatile() }
}

/// Writes an instruction, so that this thread runs it.
fn write(at: usize, word: u32) {
    // SAFETY: a word of the test's own module, which has been made writable and is run by this thread alone. What the data cache
    // has is written out, and the instruction cache told.
    unsafe {
        (at as *mut u32).write_volatile(word);
        std::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", "isb", in(reg) at, options(nostack));
    }
}
