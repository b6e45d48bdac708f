//! Whom the scheduler waits for: a goroutine that sleeps is on no thread, and the host is waited for on the scheduler's stack.

use crate::{
    goroutines,
    layout::{self, G},
    walk::Walk,
};
use wlprof_plugin::Truncation;

/// Goroutines looked at for one sample, each with one read.
const MOST_LOOKED_AT: usize = 1024;
/// Searches for the list of goroutines: a program whose runtime is laid out in another way has none.
const MOST_SEARCHES: u32 = 4;
/// Reads of one of them. From another thread each is a system call.
const MOST_SEARCH_READS: u64 = 1 << 14;
/// Releases have some forty reasons to wait.
const MOST_REASONS: u8 = 64;
const RUNNABLE: u32 = 1;
const WAITING: u32 = 4;

/// What is the same for as long as the program runs.
#[derive(Clone, Copy, Debug)]
struct ProgramConstants {
    /// Address of the variable `runtime.allgs`.
    all_goroutines: u64,
    /// Number of what goroutines that sleep wait for.
    sleep: u8,
}

/// Finds the goroutine that the scheduler waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Idle {
    known: Option<ProgramConstants>,
    /// Where another instance has the variable.
    hint: Option<u64>,
    searches: u32,
}

impl Idle {
    /// Of an instance of a module whose variables are where another instance has them, if one was looked into: `all_goroutines`.
    pub(crate) fn new(all_goroutines: Option<u64>) -> Self {
        Self { hint: all_goroutines, ..Self::default() }
    }

    /// Where the variable with the list of goroutines is, if it was found.
    pub(crate) fn found(&self) -> Option<u64> {
        self.known.map(|known| known.all_goroutines)
    }

    /// Whether the program stands in the call by which its scheduler waits, having nothing to run.
    pub(crate) fn holds(walk: &Walk<'_>, g: G) -> bool {
        let leaf = walk.wasm.first().and_then(|frame| walk.code.own(*frame));
        leaf.is_some_and(|leaf| walk.code.special.poll == Some(leaf))
            && layout::is_g0(walk.guest, g) == Ok(true)
            && walk.layout.curg(walk.guest, g) == Ok(None)
    }

    /// The goroutine whose sleep ends first. `None` if none sleeps, or one can run: then the scheduler is not waiting.
    ///
    /// # Errors
    /// If the list of goroutines has to be searched for, and may not be now.
    pub(crate) fn waits_for(&mut self, walk: &mut Walk<'_>) -> Result<Option<G>, Truncation> {
        let Some(known) = self.known(walk)? else { return Ok(None) };
        let mut first: Option<(u64, G)> = None;
        let mut words = [0; 8 * MOST_LOOKED_AT];
        for g in goroutines::at_variable(walk.guest, known.all_goroutines, &mut words) {
            let Ok(rest) = walk.layout.rest(walk.guest, g) else { return Ok(None) };
            if rest.status == RUNNABLE {
                return Ok(None);
            }
            // The runtime's own that sleep say no time: nobody waits for them.
            if (rest.status, rest.waitreason) == (WAITING, known.sleep)
                && let Some(until) = walk.layout.sleeps_until(walk.guest, &rest)
                && first.is_none_or(|(earliest, _)| until < earliest)
            {
                first = Some((until, g));
            }
        }
        Ok(first.map(|(_, g)| g))
    }

    fn known(&mut self, walk: &mut Walk<'_>) -> Result<Option<ProgramConstants>, Truncation> {
        // Another guest's memory may have misled the search.
        self.known = self.known.filter(|known| goroutines::begins_at(walk.guest, walk.layout, known.all_goroutines));
        if self.known.is_none() && self.searches < MOST_SEARCHES {
            if !walk.out.may_allocate() {
                return Err(Truncation::WouldAllocate);
            }
            self.searches += 1;
            self.known = search(walk, self.hint);
        }
        Ok(self.known)
    }
}

fn search(walk: &mut Walk<'_>, hint: Option<u64>) -> Option<ProgramConstants> {
    let sleep = (0..MOST_REASONS).find(|&at| walk.code.wait_reason(at).as_deref() == Some("sleep"))?;
    let hint = hint.filter(|at| goroutines::begins_at(walk.guest, walk.layout, *at));
    Some(ProgramConstants { all_goroutines: hint.or_else(|| goroutines::variable(walk, MOST_SEARCH_READS))?, sleep })
}
