//! The walker of one module: keeps what walks have in common.

use crate::{
    decoded::DecodedTables,
    goroutines, heap_buckets,
    heap_stacks::Stacks,
    idle::Idle,
    labels::LabelSets,
    layout::{self, G, LAYOUTS, Layout},
    program::Program,
    symbols,
    walk::{Statistics, Walk},
};
use std::cell::Cell;
use wlprof_plugin::{
    FrameKey, FrameSink, GuestMemory, HeapBucket, Label, MemoryPatch, SourceFrame, ThreadStack, Truncation, Walker,
    WasmFrame,
};

/// `SP`, an i32, and `g`, an i64; the compiler gives them these numbers and no name.
const GLOBALS: [u32; 2] = [0, 2];

/// Walks of goroutines that fit no row after which a program's runtime is held to be another one. Before the runtime is set
/// up, and for some instructions while it changes a goroutine's state, those of every release fit none.
const MANY_MISFITS: u64 = 10;

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
    program: Program,
    layout: Layout,
    /// Whether [`Layout::fits`] held; until then labels are not read.
    layout_fits: bool,
    /// Whole stacks of goroutines under which no row fitted.
    misfits: u64,
    labels: LabelSets,
    idle: Idle,
    statistics: Statistics,
    tables: DecodedTables,
    /// Whether the runtime's own heap profile was asked for.
    wants_heap_profile: Cell<bool>,
}

impl GoWalker {
    pub(crate) fn new(program: Program, layout: Layout) -> Self {
        let tables = DecodedTables::new(program.table.image.size());
        let (labels, statistics) = (LabelSets::default(), Statistics::default());
        Self {
            program,
            layout,
            layout_fits: false,
            misfits: 0,
            labels,
            idle: Idle::default(),
            statistics,
            tables,
            wants_heap_profile: Cell::new(false),
        }
    }

    /// For another instance of the module.
    pub fn fresh_walker(&self) -> Self {
        let Self { program, layout, labels, idle, .. } = self;
        let tables = DecodedTables::new(program.table.image.size());
        Self {
            program: program.fresh(),
            // What fits here will there, if it is the module's: it is tried first.
            layout: *layout,
            layout_fits: false,
            misfits: 0,
            labels: labels.fresh(),
            idle: idle.fresh(),
            statistics: Statistics::default(),
            tables,
            wants_heap_profile: Cell::new(false),
        }
    }

    #[cfg(test)]
    pub(crate) fn program(&mut self) -> &mut Program {
        &mut self.program
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
        let mut idle = std::mem::take(&mut self.idle);
        let mut walk = self.walk_of(guest, wasm, out);
        let sleeper = if Idle::holds(&walk, g) { idle.waits_for(&mut walk) } else { Ok(None) };
        self.idle = idle;
        sleeper
    }

    fn walk_of<'a>(
        &'a mut self,
        guest: &'a dyn GuestMemory,
        wasm: &'a [WasmFrame],
        out: &'a mut FrameSink,
    ) -> Walk<'a> {
        Walk { program: &mut self.program, layout: &self.layout, statistics: &mut self.statistics, guest, wasm, out }
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
    fn reads_guest(&self) -> bool {
        true
    }

    fn walks_without_allocating(&self) -> bool {
        true
    }

    fn fresh(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(self.fresh_walker()))
    }

    fn wanted_globals(&self) -> &[u32] {
        &GLOBALS
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let (sp, g) = registers(guest).ok_or(Truncation::NoStack)?;
        let is_misfit = self.check_layout(guest, g);
        self.program.begin_walk(out.may_allocate());
        let sleeper = self.sleeper(guest, wasm, out, g)?;
        if self.layout_fits
            && let Some(key) = self.labels.key(guest, &self.layout, sleeper.unwrap_or(g), out.may_allocate())?
        {
            out.set_labels(key);
        }
        let mut walk = self.walk_of(guest, wasm, out);
        let walked = match sleeper {
            Some(sleeper) => walk.run_asleep(sleeper),
            None => walk.run(sp, g),
        };
        self.misfits += u64::from(is_misfit && walked.is_ok());
        if self.program.was_refused() && !out.may_allocate() { Err(Truncation::WouldAllocate) } else { walked }
    }

    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        if let Some((sp, g)) = registers(guest) {
            self.check_layout(guest, g);
            self.program.begin_walk(true);
            goroutines::all(self.walk_of(guest, wasm, &mut FrameSink::new()), sp, g, out);
        }
    }

    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        let pc = match frame {
            FrameKey::Own(pc) => Some(pc),
            FrameKey::Wasm(frame) => self.program.pc(frame),
            FrameKey::Elided => None,
        };
        if let Some(pc) = pc {
            symbols::frames(&self.program, &mut self.tables, pc, out);
        }
    }

    fn labels(&mut self, key: u64, out: &mut Vec<Label>) {
        self.labels.spell(key, out);
    }

    fn switch_heap_profiler_on(&self, rate: u64) -> Vec<MemoryPatch> {
        self.wants_heap_profile.set(true);
        self.program.heap_profiler.as_ref().map_or_else(|_| Vec::new(), |profiler| profiler.patches(rate))
    }

    fn heap_profile(&mut self, guest: &dyn GuestMemory, out: &mut Vec<HeapBucket>) -> Result<u64, Truncation> {
        self.wants_heap_profile.set(true);
        let Ok(profiler) = self.program.heap_profiler else { return Ok(0) };
        let rate = guest.read_u64(profiler.rate)?;
        if rate.cast_signed() <= 0 {
            // It is off, so there are no buckets, or those of a program that turned it off on purpose.
            return Ok(0);
        }
        self.program.begin_walk(true);
        let mut stacks = Stacks::new(&mut self.program, &mut self.tables);
        heap_buckets::for_each(&profiler, guest, |pcs, counts| {
            let heap_buckets::Counts { allocated_blocks, freed_blocks, allocated_bytes, freed_bytes } = counts;
            let frames = stacks.frames(pcs)?;
            out.push(HeapBucket { frames, allocated_blocks, allocated_bytes, freed_blocks, freed_bytes });
            Ok(())
        })?;
        Ok(rate)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Statistics { walks, unplaced, .. } = self.statistics;
        if unplaced > 0 {
            warnings.push(format!(
                "{unplaced} of {walks} Go stacks could not be followed in the guest's memory and show only what was on \
                 the wasm stack"
            ));
        }
        if !self.layout_fits && self.misfits >= MANY_MISFITS {
            warnings.push(
                "the Go runtime's structures are not laid out as in any release from 1.21 to 1.27: samples have no \
                 goroutine"
                    .to_owned(),
            );
        }
        if let (true, Err(why)) = (self.wants_heap_profile.get(), &self.program.heap_profiler) {
            warnings.push(format!("there is no heap profile of Go's own runtime: {why}"));
        }
        if self.program.moduledata.gofunc.is_none() {
            warnings
                .push("Go's tree of inlined calls was not found: lines of inlined code lack their function".to_owned());
        }
        if self.tables.gave_up() {
            let text = "Go's tables of lines say far more than fits in the module, and reading them was given up: functions read \
                        after that have names alone";
            warnings.push(text.to_owned());
        }
        warnings
    }
}
