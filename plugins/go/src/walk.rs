//! One walk: from the wasm stack, SP and g of a stopped guest to the frames of its goroutine.
//!
//! The goroutine's stack in linear memory is the truth. Wasm's own stack is only as deep as the last goroutine switch:
//! below `wasm_pc_f_loop`, which resumes functions by their return addresses, it says nothing. It says where the leaf
//! is and, as far as it goes, which return addresses are right ([`crate::leaf`]).

use crate::{
    body::Place,
    call_sites::Step,
    code::{Code, Role},
    layout::{self, G, Layout},
    leaf::{self, Fit},
    pclntab,
};
use wlprof_plugin::{FrameSink, GuestMemory, SinkEntry, Truncation, WasmFrame};

/// A goroutine's stack, the scheduler's, and back: more switches on one stack are a cycle.
const MOST_SWITCHES: usize = 8;

/// How the walks of a recording went, for tests and for warnings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// All walks.
    pub walks: u64,
    /// Those that reached a function which Go marks as the root of stacks.
    pub rooted: u64,
    /// Those that met a guest about to run another goroutine than the one on the wasm stack.
    pub switching: u64,
    /// Those whose leaf could not be placed on Go's stack; they show the part that is on the wasm stack.
    pub unplaced: u64,
}

/// Everything one walk works with.
pub(crate) struct Walk<'a> {
    pub(crate) code: &'a mut Code,
    pub(crate) layout: &'a Layout,
    pub(crate) statistics: &'a mut Statistics,
    pub(crate) guest: &'a dyn GuestMemory,
    pub(crate) wasm: &'a [WasmFrame],
    pub(crate) out: &'a mut FrameSink,
}

impl Walk<'_> {
    /// Walks the stack that `sp` and `g` belong to.
    pub(crate) fn run(&mut self, sp: u64, g: G) -> Result<(), Truncation> {
        self.statistics.walks += 1;
        let walked = self.walk_wasm(sp, g);
        self.statistics.rooted += u64::from(walked.is_ok());
        walked
    }

    /// Walks the stack of goroutine `sleeper`, for which the scheduler waits in the host: the call, and then the goroutine.
    pub(crate) fn run_asleep(&mut self, sleeper: G) -> Result<(), Truncation> {
        self.statistics.walks += 1;
        if let Some(call) = self.wasm.first().and_then(|frame| self.code.pc(*frame)) {
            self.out.push(call)?;
        }
        let walked = self.scheduled(sleeper);
        self.statistics.rooted += u64::from(walked.is_ok());
        walked
    }

    fn walk_wasm(&mut self, sp: u64, g: G) -> Result<(), Truncation> {
        for (at, &frame) in self.wasm.iter().enumerate() {
            match self.code.role(frame) {
                Role::Host => self.out.push_wasm(at)?,
                Role::Bare(index) => self.out.push(pclntab::pc(index, 0))?,
                Role::Export(index) => return self.out.push(pclntab::pc(index, 0)),
                Role::Loop => return self.resume(sp, g),
                Role::Go(index) => return self.walk_leaf(at, index, sp, g),
            }
        }
        Err(Truncation::NoStack)
    }

    /// Walks from the innermost Go frame: tries where its return address may be until the whole stack holds.
    fn walk_leaf(&mut self, at: usize, index: u32, sp: u64, g: G) -> Result<(), Truncation> {
        let frame = self.wasm[at];
        let body = self.code.body(index).ok_or(Truncation::Inconsistent)?;
        let place = body.state(frame.code_offset).place;
        let leaf = self.code.pc(frame).ok_or(Truncation::Inconsistent)?;
        if self.code.table.function(index).is_some_and(|function| function.is_top_frame()) {
            return self.out.push(leaf);
        }
        let expected = leaf::expected(self.code, &self.wasm[at + 1..]);
        let before = self.out.len();
        for wanted in [Fit::ThisCall, Fit::AnyCall] {
            for depth in leaf::depths(&body, frame) {
                let (fit, (depth, return_pc)) = leaf::candidate(self.code, self.guest, index, sp, depth, expected);
                if fit != wanted {
                    continue;
                }
                let above = sp.wrapping_add_signed(i64::from(depth)).wrapping_add(8);
                if let Some(walked) = self.attempt(at, leaf, return_pc, above, g) {
                    return walked;
                }
                self.out.truncate(before);
            }
            let special = self.code.special;
            if wanted == Fit::ThisCall && special.systemstack == Some(index) {
                // SP is the scheduler's already or still, g is either's: it returns on the goroutine's stack.
                let curg = self.user_goroutine(g).unwrap_or(g);
                let base = layout::scheduled(self.guest, curg)?.0;
                let (fit, (_, return_pc)) = leaf::candidate(self.code, self.guest, index, base, 0, expected);
                if fit == Fit::ThisCall
                    && let Some(walked) = self.attempt(at, leaf, return_pc, base.wrapping_add(8), curg)
                {
                    return walked;
                }
                self.out.truncate(before);
            }
            if matches!(place, Place::AfterCall | Place::Unwinding)
                && leaf::resumed(self.code, self.guest, sp).is_some()
            {
                // Just after a call, the goroutine may have been switched.
                break;
            }
        }
        self.without_depth(at, index, sp, g)
    }

    /// Walks from `leaf`, wasm frame `at`, by a return address that may be its own. `None` if the stack does not hold: it
    /// does not end as stacks do, or goes where the wasm stack says it does not.
    fn attempt(&mut self, at: usize, leaf: u64, return_pc: u64, above: u64, g: G) -> Option<Result<(), Truncation>> {
        let before = self.out.len();
        let walked = self.out.push(leaf).and_then(|()| self.unwind(return_pc, above, g));
        if !matches!(walked, Ok(()) | Err(Truncation::TooDeep)) {
            return None;
        }
        // The caller's caller: the caller itself is what the return address was chosen by.
        if let (Some(&caller), Some(&next)) = (self.wasm.get(at + 1), self.wasm.get(at + 2))
            && let (Role::Go(_), Role::Go(_)) = (self.code.role(caller), self.code.role(next))
            && self.code.call(caller).is_some_and(|call| call.return_pc.is_some())
            && let Some(return_pc) = self.code.call(next).and_then(|call| call.return_pc)
            && let Some(SinkEntry::Own(frame)) = self.out.get(before + 2)
            && frame >> 16 == return_pc >> 16
            && pclntab::block(frame) != pclntab::block(return_pc).saturating_sub(1)
        {
            return None;
        }
        Some(walked)
    }

    /// The leaf has no return address at any depth it may have: the stack is just being switched, or is broken.
    fn without_depth(&mut self, at: usize, index: u32, sp: u64, g: G) -> Result<(), Truncation> {
        let special = self.code.special;
        if special.mcall == Some(index) {
            return self.out.push(pclntab::pc(index, 0));
        }
        if special.morestack == Some(index) {
            let curg = self.user_goroutine(g).ok_or(Truncation::NoStack)?;
            return self.scheduled(curg);
        }
        let is_switch = special.gogo == Some(index)
            || self.code.body(index).is_some_and(|body| {
                let state = body.state(self.wasm[at].code_offset);
                matches!(state.place, Place::AfterCall | Place::Unwinding) || state.depth.is_none()
            });
        if is_switch && leaf::resumed(self.code, self.guest, sp).is_some() {
            return self.resume(sp, g);
        }
        self.statistics.unplaced += 1;
        for &frame in &self.wasm[at..] {
            if self.code.role(frame) == Role::Loop {
                break;
            }
            if let Some(pc) = self.code.pc(frame) {
                self.out.push(pc)?;
            }
        }
        Err(Truncation::Inconsistent)
    }

    /// Walks the stack of a goroutine that is about to be resumed, by the pc that was left below its stack pointer.
    fn resume(&mut self, sp: u64, g: G) -> Result<(), Truncation> {
        self.statistics.switching += 1;
        let pc = leaf::resumed(self.code, self.guest, sp).ok_or(Truncation::NoStack)?;
        self.unwind(pc, sp, g)
    }

    /// Walks the stack of a goroutine that is not running.
    pub(crate) fn scheduled(&mut self, g: G) -> Result<(), Truncation> {
        let (sp, pc) = layout::scheduled(self.guest, g)?;
        self.unwind(pc, sp, g)
    }

    /// The goroutine on whose behalf the scheduler's stack is in use.
    fn user_goroutine(&self, g: G) -> Option<G> {
        let is_g0 = layout::is_g0(self.guest, g).ok()?;
        if is_g0 { self.layout.curg(self.guest, g).ok()? } else { None }
    }

    /// Walks from a pc at which a function goes on with stack pointer `sp`.
    fn unwind(&mut self, mut pc: u64, mut sp: u64, mut g: G) -> Result<(), Truncation> {
        let mut switches = 0;
        let mut barriers = 0;
        loop {
            let site = self.code.call_site(pc).ok_or(Truncation::Inconsistent)?;
            let above = |size: u32| sp.checked_add(u64::from(size)).ok_or(Truncation::BadPointer);
            let mut slot = match site.step {
                Step::Up(size) | Step::Systemstack(size) => above(size)?,
                Step::WriteBarrier | Step::Morestack | Step::Root | Step::Unknown => sp,
            };
            if let Step::Morestack | Step::Systemstack(_) = site.step
                && let Some(user) = self.user_goroutine(g)
            {
                switches += 1;
                if switches > MOST_SWITCHES {
                    return Err(Truncation::Cycle);
                }
                g = user;
                let scheduled = layout::scheduled(self.guest, user)?;
                if site.step == Step::Morestack {
                    // It does not return: the function that needed more stack starts again. Go hides it, too.
                    (sp, pc) = scheduled;
                    continue;
                }
                slot = scheduled.0;
            }
            if site.step == Step::Morestack {
                return Ok(());
            }
            self.out.push(site.frame)?;
            match site.step {
                Step::Root => return Ok(()),
                Step::Unknown => return Err(Truncation::Inconsistent),
                // The barrier's own code writes no pointers.
                Step::WriteBarrier if barriers > 0 => return Err(Truncation::Cycle),
                Step::WriteBarrier => {
                    barriers += 1;
                    slot = self.below_write_barrier(site.function, sp)?;
                }
                Step::Up(_) | Step::Systemstack(_) | Step::Morestack => {}
            }
            pc = self.guest.read_u64(slot)?;
            if pclntab::block(pc) == 0 && self.code.table.index(pc) != self.code.special.mstart {
                // Nothing returns to the beginning of a function, but `mstart` is planted so.
                return Err(Truncation::Inconsistent);
            }
            sp = slot.checked_add(8).ok_or(Truncation::BadPointer)?;
        }
    }

    /// The write barrier calls Go code, but was itself called without a return address. Its caller is on the wasm
    /// stack, and so is everything between. Returns where the caller has its return address.
    fn below_write_barrier(&mut self, barrier: u32, sp: u64) -> Result<u64, Truncation> {
        let at = self.wasm.iter().position(|frame| self.code.own(*frame) == Some(barrier));
        for &frame in self.wasm.get(at.map_or(usize::MAX, |at| at + 1)..).unwrap_or_default() {
            match self.code.role(frame) {
                Role::Bare(index) => self.out.push(pclntab::pc(index, 0))?,
                Role::Go(index) => {
                    let body = self.code.body(index).ok_or(Truncation::Inconsistent)?;
                    self.out.push(pclntab::pc(index, body.block(frame.code_offset)))?;
                    let depth = body.state(frame.code_offset).depth.ok_or(Truncation::Inconsistent)?;
                    return Ok(sp.wrapping_add_signed(i64::from(depth)));
                }
                _ => break,
            }
        }
        Err(Truncation::Inconsistent)
    }
}
