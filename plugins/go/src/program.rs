//! What is known of one module: it makes walkers of its instances and names what they find.

use crate::{
    code::{Code, Tables},
    decoded::DecodedTables,
    labels::KeptSets,
    layout::Layout,
    symbols,
    walker::{GLOBALS, GoWalker},
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wlprof_plugin::{FrameKey, Label, MemoryPatch, Program, SourceFrame, Walker};

/// Walks of goroutines that fit no row after which a program's runtime is held to be another one. Before the runtime is set
/// up, and for some instructions while it changes a goroutine's state, those of every release fit none.
const MANY_MISFITS: u64 = 10;

/// A Go program: the tables of a module, and the labels that were seen in its instances.
#[derive(Clone, Debug)]
pub struct GoProgram(pub(crate) Arc<ProgramTables>);

/// What walkers share.
#[derive(Debug)]
pub(crate) struct ProgramTables {
    pub(crate) tables: Arc<Tables>,
    /// The row that is tried first.
    pub(crate) layout: Layout,
    pub(crate) sets: Arc<KeptSets>,
    pub(crate) counts: Counts,
    /// Locked to name frames and to read heap profiles, and not in walks.
    naming: Mutex<Naming>,
}

/// What was seen in all walks.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) walks: AtomicU64,
    pub(crate) unplaced: AtomicU64,
    /// Whole stacks of goroutines under which no row fitted.
    pub(crate) misfits: AtomicU64,
    /// Whether a row fitted in any instance.
    pub(crate) layout_fits: AtomicBool,
    /// Whether the runtime's own heap profile was asked for.
    pub(crate) wants_heap_profile: AtomicBool,
    /// Where an instance has its list of goroutines; 0 if it was not looked for.
    pub(crate) all_goroutines: AtomicU64,
}

/// What naming has read so far.
#[derive(Debug)]
pub(crate) struct Naming {
    pub(crate) code: Code,
    pub(crate) tables: DecodedTables,
}

impl GoProgram {
    pub(crate) fn new(tables: Tables, layout: Layout) -> Self {
        let tables = Arc::new(tables);
        let decoded = DecodedTables::new(tables.table.image.size());
        let naming = Mutex::new(Naming { code: Code::new(tables.clone()), tables: decoded });
        Self(Arc::new(ProgramTables { tables, layout, sets: Arc::default(), counts: Counts::default(), naming }))
    }

    /// Makes a walker, whose further abilities can be used.
    pub fn new_walker(&self) -> GoWalker {
        GoWalker::new(self.clone())
    }

    pub(crate) fn naming(&self) -> MutexGuard<'_, Naming> {
        self.0.naming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Program for GoProgram {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(self.new_walker()))
    }

    fn wanted_globals(&self) -> &[u32] {
        &GLOBALS
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        let Naming { code, tables } = &mut *self.naming();
        let pc = match frame {
            FrameKey::Own(pc) => Some(pc),
            FrameKey::Wasm(frame) => {
                // As much may be read as in a walk.
                code.begin_walk(true);
                code.pc(frame)
            }
            FrameKey::Elided => None,
        };
        if let Some(pc) = pc {
            symbols::frames(code, tables, pc, out);
        }
    }

    fn labels(&self, key: u64, out: &mut Vec<Label>) {
        self.0.sets.spell(key, out);
    }

    fn switch_heap_profiler_on(&self, rate: u64) -> Vec<MemoryPatch> {
        self.0.counts.wants_heap_profile.store(true, Ordering::Relaxed);
        self.0.tables.heap_profiler.as_ref().map_or_else(|_| Vec::new(), |profiler| profiler.patches(rate))
    }

    fn warnings(&self) -> Vec<String> {
        let ProgramTables { tables, counts, .. } = &*self.0;
        let mut warnings = Vec::new();
        let [walks, unplaced, misfits] =
            [&counts.walks, &counts.unplaced, &counts.misfits].map(|count| count.load(Ordering::Relaxed));
        if unplaced > 0 {
            warnings.push(format!(
                "{unplaced} of {walks} Go stacks could not be followed in the guest's memory and show only what was on \
                 the wasm stack"
            ));
        }
        if !counts.layout_fits.load(Ordering::Relaxed) && misfits >= MANY_MISFITS {
            warnings.push(
                "the Go runtime's structures are not laid out as in any release from 1.21 to 1.27: samples have no \
                 goroutine"
                    .to_owned(),
            );
        }
        if let (true, Err(why)) = (counts.wants_heap_profile.load(Ordering::Relaxed), &tables.heap_profiler) {
            warnings.push(format!("there is no heap profile of Go's own runtime: {why}"));
        }
        if tables.moduledata.gofunc.is_none() {
            warnings
                .push("Go's tree of inlined calls was not found: lines of inlined code lack their function".to_owned());
        }
        if self.naming().tables.gave_up() {
            let text = "Go's tables of lines say far more than fits in the module, and reading them was given up: functions read \
                        after that have names alone";
            warnings.push(text.to_owned());
        }
        warnings
    }
}
