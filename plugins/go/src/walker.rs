//! The walker of one memory: keeps what walks have in common.

use crate::{
    code::Code,
    goroutines, heap_buckets,
    heap_stacks::Stacks,
    idle::Idle,
    labels::LabelSets,
    layout::{self, G, LAYOUTS, Layout},
    program::{Counts, GoProgram, ProgramTables},
    walk::{Statistics, Walk},
};
use std::sync::atomic::Ordering;
use wlprof_plugin::{FrameSink, GuestMemory, HeapBucket, ThreadStack, Truncation, Walker, WasmFrame};

/// `SP`, an i32, and `g`, an i64; the compiler gives them these numbers and no name.
pub(crate) const GLOBALS: [u32; 2] = [0, 2];

/// Reads the stacks of a Go program.
///
/// # Accuracy
/// Functions and callers' lines are exact. Go's tables have no line for most instructions, only for the points where a
/// function can be resumed, about one for each basic block and each call; so the line of the innermost frame is the
/// last of its block. Code that takes a function from one block to another is on no line.
///
/// While the scheduler waits, having nothing to run, the stack is that of the goroutine whose sleep ends first; where none sleeps it
/// is the scheduler's.
#[derive(Debug)]
pub struct GoWalker {
    program: GoProgram,
    code: Code,
    layout: Layout,
    /// Whether [`Layout::fits`] held; until then labels are not read.
    layout_fits: bool,
    labels: LabelSets,
    idle: Idle,
    statistics: Statistics,
}

impl GoWalker {
    pub(crate) fn new(program: GoProgram) -> Self {
        let ProgramTables { tables, layout, sets, counts, .. } = &*program.0;
        let all_goroutines = Some(counts.all_goroutines.load(Ordering::Relaxed)).filter(|address| *address != 0);
        let (code, labels) = (Code::new(tables.clone()), LabelSets::new(sets.clone()));
        let (layout, idle, statistics) = (*layout, Idle::new(all_goroutines), Statistics::default());
        Self { program, code, layout, layout_fits: false, labels, idle, statistics }
    }

    /// Returns the program that made it, which names what it finds.
    pub fn program(&self) -> &GoProgram {
        &self.program
    }

    /// How the walks went so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Tries the rows until one fits. Gives whether none does for `g`, a goroutine.
    fn check_layout(&mut self, guest: &dyn GuestMemory, g: G) -> bool {
        if self.layout_fits || layout::is_g0(guest, g) != Ok(false) {
            return false;
        }
        let rows = std::iter::once(self.layout).chain(LAYOUTS);
        if let Some(row) = rows.into_iter().find(|row| row.fits(guest, g)) {
            self.layout = row;
            self.layout_fits = true;
            self.counts().layout_fits.store(true, Ordering::Relaxed);
        }
        !self.layout_fits
    }

    /// The goroutine that `g`, the scheduler, waits for.
    fn sleeper(
        &mut self,
        guest: &dyn GuestMemory,
        wasm: &[WasmFrame],
        out: &mut FrameSink,
        g: G,
    ) -> Result<Option<G>, Truncation> {
        let mut idle = self.idle;
        let mut walk = self.walk_of(guest, wasm, out);
        let sleeper = if Idle::holds(&walk, g) { idle.waits_for(&mut walk) } else { Ok(None) };
        if idle.found() != self.idle.found() {
            self.counts().all_goroutines.store(idle.found().unwrap_or(0), Ordering::Relaxed);
        }
        self.idle = idle;
        sleeper
    }

    fn counts(&self) -> &Counts {
        &self.program.0.counts
    }

    fn walk_of<'a>(
        &'a mut self,
        guest: &'a dyn GuestMemory,
        wasm: &'a [WasmFrame],
        out: &'a mut FrameSink,
    ) -> Walk<'a> {
        Walk { code: &mut self.code, layout: &self.layout, statistics: &mut self.statistics, guest, wasm, out }
    }
}

/// SP and g; `None` before the program has set them.
fn registers(guest: &dyn GuestMemory) -> Option<(u64, G)> {
    match (guest.global(GLOBALS[0])?, guest.global(GLOBALS[1])?) {
        (0, _) | (_, 0) => None,
        (sp, g) => Some((sp & u64::from(u32::MAX), G(g))),
    }
}

impl Walker for GoWalker {
    fn walks_without_allocating(&self) -> bool {
        true
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let (sp, g) = registers(guest).ok_or(Truncation::NoStack)?;
        let is_misfit = self.check_layout(guest, g);
        self.code.begin_walk(out.may_allocate());
        let sleeper = self.sleeper(guest, wasm, out, g)?;
        if self.layout_fits
            && let Some(key) = self.labels.key(guest, &self.layout, sleeper.unwrap_or(g), out.may_allocate())?
        {
            out.set_labels(key);
        }
        let before = self.statistics;
        let mut walk = self.walk_of(guest, wasm, out);
        let walked = match sleeper {
            Some(sleeper) => walk.run_asleep(sleeper),
            None => walk.run(sp, g),
        };
        let Statistics { unplaced, .. } = self.statistics;
        let counts = self.counts();
        counts.walks.fetch_add(1, Ordering::Relaxed);
        if unplaced > before.unplaced {
            counts.unplaced.fetch_add(1, Ordering::Relaxed);
        }
        if is_misfit && walked.is_ok() {
            counts.misfits.fetch_add(1, Ordering::Relaxed);
        }
        if self.code.was_refused() && !out.may_allocate() { Err(Truncation::WouldAllocate) } else { walked }
    }

    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        if let Some((sp, g)) = registers(guest) {
            self.check_layout(guest, g);
            self.code.begin_walk(true);
            goroutines::all(self.walk_of(guest, wasm, &mut FrameSink::new()), sp, g, out);
        }
    }

    fn heap_profile(&mut self, guest: &dyn GuestMemory, out: &mut Vec<HeapBucket>) -> Result<u64, Truncation> {
        self.counts().wants_heap_profile.store(true, Ordering::Relaxed);
        let Ok(profiler) = self.code.heap_profiler else { return Ok(0) };
        let rate = guest.read_u64(profiler.rate)?;
        if rate.cast_signed() <= 0 {
            // It is off, so there are no buckets, or those of a program that turned it off on purpose.
            return Ok(0);
        }
        self.code.begin_walk(true);
        let mut naming = self.program.naming();
        let mut stacks = Stacks::new(&mut self.code, &mut naming.tables);
        heap_buckets::for_each(&profiler, guest, |pcs, counts| {
            let heap_buckets::Counts { allocated_blocks, freed_blocks, allocated_bytes, freed_bytes } = counts;
            let frames = stacks.frames(pcs)?;
            out.push(HeapBucket { frames, allocated_blocks, allocated_bytes, freed_blocks, freed_bytes });
            Ok(())
        })?;
        Ok(rate)
    }
}
