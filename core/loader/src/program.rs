//! Programs behind the C ABI, as the rest of wlprof sees them.

use super::containment::{Activity, Calls, OwnStack, PluginLibrary, RetiredPart};
use super::heap::{HostAllocators, HostPatches};
use super::host::{HostFrames, HostLabels, HostModule, HostTexts, MOST_FRAMES};
use super::size_fits;
use super::walker::{ForeignWalker, ReadWalker};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use wlprof_plugin::abi;
use wlprof_plugin::{
    Allocator, AttachError, Category, FrameKey, Label, MemoryPatch, ModuleView, Program, SourceFrame, Walker,
};

/// The most globals that a program may ask for.
const MOST_GLOBALS: usize = 1 << 12;

/// What a plugin says of a new program, read once.
pub(super) struct ReadProgram {
    program: *mut abi::Program,
    abi: abi::Program,
    wanted_globals: Vec<u32>,
}

impl ReadProgram {
    /// # Safety
    /// `program` must be one that the plugin has made and not destroyed, or this must run in `Calls::call`, which contains a crash.
    pub(super) unsafe fn read(program: *mut abi::Program, abi_minor: u32) -> Result<Self, AttachError> {
        // SAFETY: `program` points to a program, which begins with its size, or a crash is contained (see # Safety). The rest is believed
        // to be there only if the size says so.
        let size = unsafe { (*program).size };
        size_fits::<abi::Program>(size, abi_minor, "wlprof_program_t").map_err(AttachError)?;
        let mut abi = MaybeUninit::<abi::Program>::zeroed();
        // SAFETY: the program has at least the size of an `abi::Program` (checked), or a crash is contained (see # Safety).
        unsafe { program.copy_to_nonoverlapping(abi.as_mut_ptr(), 1) };
        // SAFETY: the fields are numbers, pointers and functions that may be missing: what was copied is valid for them.
        let abi = unsafe { abi.assume_init() };
        let count = abi.wanted_global_count;
        if count > MOST_GLOBALS || (count > 0 && abi.wanted_globals.is_null()) {
            return Err(AttachError(format!(
                "the plugin's program wants {count} globals at {:p} (supported: up to {MOST_GLOBALS}, not at null)",
                abi.wanted_globals
            )));
        }
        // SAFETY: by the ABI there are `count` indices at `wanted_globals`, which is not null (checked), or a crash is contained
        // (see # Safety).
        let wanted_globals = (0..count).map(|index| unsafe { abi.wanted_globals.add(index).read() }).collect();
        Ok(Self { program, abi, wanted_globals })
    }
}

/// A program of a loaded plugin, as it and its walkers have it.
pub(super) struct Handle {
    program: *mut abi::Program,
    /// A copy of what it is, that nobody changes.
    abi: abi::Program,
    pub(super) library: Arc<PluginLibrary>,
    /// Walks in which it said that it failed.
    pub(super) failed_walks: AtomicU32,
    /// It gave more for one frame than is taken.
    has_too_many_frames: AtomicBool,
}

// SAFETY: the ABI has a program be called from any thread. One call at a time: see `ForeignProgram::calls`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Put aside once its walkers are, which have it.
impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(destroy) = self.abi.destroy {
            // SAFETY: this has the program and is about to go; calls into it borrow this, and walkers, which are put aside first, have it.
            unsafe { self.library.is_over(RetiredPart::Program(self.program, destroy)) };
        }
    }
}

/// A program of a loaded plugin.
pub(super) struct ForeignProgram {
    handle: Arc<Handle>,
    wanted_globals: Vec<u32>,
    has_walkers: bool,
    /// Locked during a call: those into one program do not overlap. No walk waits for it.
    calls: Mutex<Calls>,
}

impl ForeignProgram {
    /// Makes a walker as well, to see whether that works.
    pub(super) fn new(read: ReadProgram, library: &Arc<PluginLibrary>) -> Result<Self, AttachError> {
        let ReadProgram { program, abi, wanted_globals } = read;
        let library = library.clone();
        let (failed_walks, has_too_many_frames) = (AtomicU32::new(0), AtomicBool::new(false));
        let handle = Arc::new(Handle { program, abi, library, failed_walks, has_too_many_frames });
        let stack = OwnStack::new().map_err(|error| AttachError(error.to_string()))?;
        let calls = Mutex::new(Calls::new(handle.library.clone()).with_stack(stack));
        let mut program = Self { handle, wanted_globals, has_walkers: true, calls };
        program.has_walkers = program.try_walker()?.is_some();
        Ok(program)
    }

    /// What `ask` gives, which calls the program. `None` if the plugin has failed, now or before.
    fn call<T>(&self, activity: Activity, ask: impl FnOnce() -> T) -> Option<T> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).call(activity, ask)
    }

    /// A new walker; `None` if there are none.
    fn try_walker(&self) -> Result<Option<ForeignWalker>, AttachError> {
        let (Handle { program, abi, library, .. }, true) = (&*self.handle, self.has_walkers) else { return Ok(None) };
        let Some(walker) = abi.walker else { return Ok(None) };
        let read = self.call(Activity::Walker, || {
            // SAFETY: the program is not destroyed before the handle goes.
            let walker = unsafe { walker(*program) };
            // SAFETY: `walker` is not null, and the plugin has just made it; a crash in it is contained, since this runs in `Calls::call`.
            (!walker.is_null()).then(|| unsafe { ReadWalker::read(walker, library.abi_minor()) })
        });
        let read = read.ok_or_else(|| AttachError(library.failure().unwrap_or_default()))?;
        read.map(|read| ForeignWalker::new(read?, &self.handle)).transpose()
    }
}

impl Program for ForeignProgram {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        // One that cannot be is no better than a crash.
        let made = self.try_walker().inspect_err(|_| self.handle.library.failed_by_its_own_account(Activity::Walker));
        Some(Box::new(made.ok()??))
    }

    fn wanted_globals(&self) -> &[u32] {
        &self.wanted_globals
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        let Handle { program, abi, has_too_many_frames, .. } = &*self.handle;
        let Some(symbolize) = abi.symbolize else { return };
        let receiver = HostFrames::new(out);
        // SAFETY: the program is not destroyed before the handle goes. The receiver lives until the call has ended.
        self.call(Activity::Symbolize, || unsafe { symbolize(*program, frame.into(), &receiver.abi) });
        has_too_many_frames.fetch_or(receiver.is_full(), Ordering::Relaxed);
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        let Handle { program, abi, .. } = &*self.handle;
        let (categorize, frame) = (abi.categorize?, abi::SourceFrame::of(frame));
        // SAFETY: the program is not destroyed before the handle goes. The frame lives until the call has ended.
        let category = self.call(Activity::Categorize, || unsafe { categorize(*program, &frame) });
        category.and_then(abi::category_of)
    }

    fn labels(&self, key: u64, out: &mut Vec<Label>) {
        let Handle { program, abi, .. } = &*self.handle;
        let Some(labels) = abi.labels else { return };
        let receiver = HostLabels::new(out);
        // SAFETY: the program is not destroyed before the handle goes. The receiver lives until the call has ended.
        self.call(Activity::Labels, || unsafe { labels(*program, key, &receiver.abi) });
    }

    fn allocators(&self, module: &dyn ModuleView, missed: &mut Vec<String>) -> Vec<Allocator> {
        let Handle { program, abi, .. } = &*self.handle;
        let mut found = Vec::new();
        if let Some(allocators) = abi.allocators {
            let (module, receiver) = (HostModule::new(module), HostAllocators::new(&mut found));
            let missed = HostTexts::new(missed);
            // SAFETY: the program is not destroyed before the handle goes. Module and receivers live until the call has ended.
            let ask = || unsafe { allocators(*program, &module.abi, &receiver.abi, &missed.abi) };
            // Some of what belongs together is worse than nothing.
            // Of more than are taken none is used: they are far more than an allocator has.
            if self.call(Activity::Allocators, ask).is_none() {
                found.clear();
            }
        }
        found
    }

    fn switch_heap_profiler_on(&self, rate: u64) -> Vec<MemoryPatch> {
        let Handle { program, abi, .. } = &*self.handle;
        let Some(switch_on) = abi.switch_heap_profiler_on else { return Vec::new() };
        let mut patches = Vec::new();
        let receiver = HostPatches::new(&mut patches);
        // SAFETY: the program is not destroyed before the handle goes. The receiver lives until the call has ended.
        let ask = || unsafe { switch_on(*program, rate, &receiver.abi) };
        // As for allocators.
        if self.call(Activity::SwitchHeapProfilerOn, ask).is_none() || receiver.is_short() {
            patches.clear();
        }
        patches
    }

    fn warnings(&self) -> Vec<String> {
        let Handle { program, abi, library, failed_walks, has_too_many_frames } = &*self.handle;
        let mut texts = Vec::new();
        if let Some(warnings) = abi.warnings {
            let receiver = HostTexts::new(&mut texts);
            // SAFETY: the program is not destroyed before the handle goes. The receiver lives until the call has ended.
            self.call(Activity::Warnings, || unsafe { warnings(*program, &receiver.abi) });
        }
        let failed_walks = failed_walks.load(Ordering::Relaxed);
        if failed_walks > 0 {
            texts.push(format!(
                "plugin {} failed in {failed_walks} walks (in Rust: by a panic); after three it is not asked for stacks any more",
                library.name(),
            ));
        }
        if has_too_many_frames.load(Ordering::Relaxed) {
            texts.push(format!(
                "plugin {} names more than {MOST_FRAMES} functions for one frame; the rest is left out",
                library.name()
            ));
        }
        texts.extend(library.failure());
        texts
    }
}
