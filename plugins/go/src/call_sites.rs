//! What walking needs to know of a return address, kept so that a frame costs one look-up and one read of memory.

use crate::{
    code::Special,
    pclntab::{self, Pclntab},
};

/// Places of the cache: a power of two. Deep recursion and wide programs alike return to few places.
const PLACES: usize = 1 << 13;
/// So many are enough for an instance that runs but a moment. They grow when more are needed.
const FEW_PLACES: usize = 1 << 8;

/// How a frame leads on to its caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This many bytes above its stack pointer is its return address.
    Up(u32),
    /// It is a root: nothing called it, or it has left its caller for good.
    Root,
    /// `runtime.systemstack`: its caller is on the goroutine's stack, or this many bytes above.
    Systemstack(u32),
    /// `runtime.morestack`: it is not shown, and what needed more stack is scheduled to start again.
    Morestack,
    /// The write barrier, which was called without a return address.
    WriteBarrier,
    /// The tables have no frame size here.
    Unknown,
}

/// A place that a function goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSite {
    /// The return address itself.
    pc: u64,
    /// The frame to show: the same function at the block that makes the call.
    pub(crate) frame: u64,
    /// Which of the module's own functions it is in.
    pub(crate) function: u32,
    pub(crate) step: Step,
}

/// The call sites seen, each in the one place it can have. There are a power of two of places.
#[derive(Debug)]
pub(crate) struct CallSites {
    places: Vec<Option<CallSite>>,
}

impl Default for CallSites {
    fn default() -> Self {
        Self { places: vec![None; FEW_PLACES] }
    }
}

impl CallSites {
    fn place(&self, pc: u64) -> usize {
        mixed(pc) & (self.places.len() - 1)
    }

    /// The call site that `pc` returns to, if it is there.
    pub(crate) fn get(&self, pc: u64) -> Option<CallSite> {
        self.places[self.place(pc)].filter(|site| site.pc == pc)
    }

    /// Puts a call site in place of another, or makes room for both if it may allocate.
    pub(crate) fn insert(&mut self, site: CallSite, may_allocate: bool) {
        let place = self.place(site.pc);
        if may_allocate && self.places.len() < PLACES && self.places[place].is_some_and(|other| other.pc != site.pc) {
            let sites = std::mem::take(&mut self.places);
            self.places = vec![None; 2 * sites.len()];
            for site in sites.into_iter().flatten() {
                let place = self.place(site.pc);
                self.places[place] = Some(site);
            }
        }
        let place = self.place(site.pc);
        self.places[place] = Some(site);
    }
}

/// Functions are 2^16 apart and blocks are few: mixes the two.
fn mixed(pc: u64) -> usize {
    ((pc >> 16).wrapping_mul(97) ^ pc & 0xffff) as usize
}

impl CallSite {
    /// Reads what `pc` returns to; `None` if there is no such function. `is_export`: the host calls it.
    pub(crate) fn read(pc: u64, table: &Pclntab, special: &Special, is_export: bool) -> Option<Self> {
        let index = table.index(pc)?;
        let function = table.function(index)?;
        // The call is one block before the one it returns to. Blocks 0 are entries that nothing returned to yet.
        let block = pclntab::block(pc).saturating_sub(1);
        let is = |special: Option<u32>| special == Some(index);
        let step = if is(special.morestack) {
            Step::Morestack
        } else if function.is_top_frame() || is(special.mcall) || is_export {
            Step::Root
        } else if is(special.write_barrier) {
            Step::WriteBarrier
        } else {
            match table.frame_size(&function, block) {
                Some(size) if is(special.systemstack) => Step::Systemstack(size),
                Some(size) => Step::Up(size),
                None => Step::Unknown,
            }
        };
        Some(Self { pc, frame: pclntab::pc(index, block), function: index, step })
    }
}
