//! Languages and walkers behind the C ABI, as the rest of wlprof sees them.

use super::containment::{Activity, Calls, EndedWalker, OwnStack, PluginLibrary, fetch};
use super::heap::{HostAllocators, HostBuckets, HostPatches};
use super::host::{HostFrames, HostGuest, HostLabels, HostModule, HostTexts, MOST_FRAMES};
use super::size_fits;
use super::stack_room::StackRoom;
use super::threads::HostThreads;
use std::mem::MaybeUninit;
use std::sync::Arc;
use wlprof_plugin::abi;
use wlprof_plugin::{
    Allocator, AttachError, Category, Detection, FrameKey, FrameSink, GuestMemory, HeapBucket, Label, Language,
    MemoryPatch, ModuleView, SourceFrame, ThreadStack, Truncation, Walker, WasmFrame,
};

/// A language of a loaded plugin.
pub struct ForeignLanguage {
    name: String,
    /// The folder of its programs' library, then the files by which that is known.
    program_library: Vec<String>,
    language: *const abi::Language,
    library: Arc<PluginLibrary>,
}

// SAFETY: the ABI has languages be constant, and their functions called from any thread.
unsafe impl Send for ForeignLanguage {}
// SAFETY: the ABI has languages be constant, and their functions called from any thread.
unsafe impl Sync for ForeignLanguage {}

impl ForeignLanguage {
    /// # Safety
    /// `language` must point to a whole language, as the ABI has it, in `library`, and `name` must be its name.
    pub(super) unsafe fn new(language: *const abi::Language, name: String, library: Arc<PluginLibrary>) -> Self {
        // SAFETY: `language` points to a whole language (see # Safety), and its library stays loaded for good.
        let library_folder = unsafe { (*language).library_folder };
        let mut program_library = Vec::new();
        if let Some(library_folder) = library_folder {
            let receiver = HostTexts::new(&mut program_library);
            // SAFETY: `library_folder` is a function of this language, called with it. The receiver lives until the call has ended.
            let ask = || unsafe { library_folder(language, &receiver.abi) };
            Calls::new(library.clone()).call(Activity::LibraryFolder, ask);
        }
        Self { name, program_library, language, library }
    }

    /// Why the plugin is not asked any more; `None` if it is.
    pub fn failure(&self) -> Option<String> {
        self.library.failure()
    }

    /// What the plugin changed of the process and should not have, in a sentence each.
    pub fn changes(&self) -> Vec<String> {
        self.library.changes()
    }
}

impl Language for ForeignLanguage {
    fn name(&self) -> &str {
        &self.name
    }

    fn library_folder(&self) -> Option<&str> {
        self.program_library.first().map(String::as_str)
    }

    fn library_files(&self) -> Vec<&str> {
        self.program_library.iter().skip(1).map(String::as_str).collect()
    }

    fn detect(&self, module: &dyn ModuleView) -> Detection {
        let mut answers = Vec::new();
        let (module, receiver) = (HostModule::new(module), HostTexts::new(&mut answers));
        // SAFETY: the library that `language` points into stays loaded for good.
        let detection = unsafe { (*self.language).detect }.and_then(|detect| {
            // SAFETY: `detect` is a function of this language, called with it. Module and receiver live until the call has ended.
            let ask = || unsafe { detect(self.language, &module.abi, &receiver.abi) };
            Calls::new(self.library.clone()).call(Activity::Detect, ask)
        });
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| self.name.clone());
        match detection {
            Some(abi::DETECTION_YES) => Detection::Yes(next()),
            Some(abi::DETECTION_FAILED) => {
                self.library.failed_by_its_own_account(Activity::Detect);
                Detection::No
            }
            Some(abi::DETECTION_UNSUPPORTED) => Detection::Unsupported { found: next(), supported: next() },
            _ => Detection::No,
        }
    }

    fn attach(&self, module: &dyn ModuleView) -> Result<Box<dyn Walker>, AttachError> {
        let mut errors = Vec::new();
        let calls = Calls::new(self.library.clone());
        let read = {
            let (module, receiver) = (HostModule::new(module), HostTexts::new(&mut errors));
            // SAFETY: the library that `language` points into stays loaded for good.
            let attach = unsafe { (*self.language).attach };
            let attach = attach.ok_or_else(|| AttachError("the plugin has no `attach`".to_owned()))?;
            let minor = self.library.abi_minor();
            calls.call(Activity::Attach, || {
                // SAFETY: `attach` is a function of this language, called with it. Module and receiver live until the call has ended.
                let walker = unsafe { attach(self.language, &module.abi, &receiver.abi) };
                // SAFETY: `walker` is not null, and the language has just made it; a crash in it is contained, since this runs in
                // `Calls::call`.
                (!walker.is_null()).then(|| unsafe { ReadWalker::read(walker, minor) })
            })
        };
        match read {
            Some(Some(walker)) => Ok(Box::new(ForeignWalker::new(walker?, calls)?)),
            Some(None) => {
                let reason = errors.pop().unwrap_or_else(|| "the plugin does not say why it cannot walk it".to_owned());
                Err(AttachError(reason))
            }
            None => Err(AttachError(self.library.failure().unwrap_or_default())),
        }
    }
}

/// The most globals that a walker may ask for.
const MOST_GLOBALS: usize = 1 << 12;

/// What a plugin says of a new walker, read once.
struct ReadWalker {
    walker: *mut abi::Walker,
    abi: abi::Walker,
    wanted_globals: Vec<u32>,
}

impl ReadWalker {
    /// # Safety
    /// `walker` must be one that the plugin has made and not destroyed, or this must run in `Calls::call`, which contains a crash.
    unsafe fn read(walker: *mut abi::Walker, abi_minor: u32) -> Result<Self, AttachError> {
        // SAFETY: `walker` points to a walker, which begins with its size, or a crash is contained (see # Safety). The rest is believed to
        // be there only if the size says so.
        let size = unsafe { (*walker).size };
        size_fits::<abi::Walker>(size, abi_minor, "wlprof_walker_t").map_err(AttachError)?;
        let mut abi = MaybeUninit::<abi::Walker>::zeroed();
        let known = size.min(size_of::<abi::Walker>());
        // SAFETY: the walker has `size` bytes, or a crash is contained (see # Safety). No more than a whole `abi::Walker` is copied, for
        // which there is room.
        unsafe { walker.cast::<u8>().copy_to_nonoverlapping(abi.as_mut_ptr().cast(), known) };
        // SAFETY: the fields are numbers, pointers and functions that may be missing: zeroes are valid for them, and so is what was copied.
        let abi = unsafe { abi.assume_init() };
        if abi.flags & abi::WALKER_READS_GUEST != 0 && abi.walk.is_none() {
            return Err(AttachError("the plugin's walker says that it reads the guest and has no `walk`".to_owned()));
        }
        let count = abi.wanted_global_count;
        if count > MOST_GLOBALS || (count > 0 && abi.wanted_globals.is_null()) {
            return Err(AttachError(format!(
                "the plugin's walker wants {count} globals at {:p} (supported: up to {MOST_GLOBALS}, not at null)",
                abi.wanted_globals
            )));
        }
        // SAFETY: by the ABI there are `count` indices at `wanted_globals`, which is not null (checked), or a crash is contained
        // (see # Safety).
        let wanted_globals = (0..count).map(|index| unsafe { abi.wanted_globals.add(index).read() }).collect();
        Ok(Self { walker, abi, wanted_globals })
    }
}

/// Bytes of a walker, and of the room for frames, that nearly every walk needs.
const FETCHED: usize = 256;

/// A walker of a loaded plugin.
struct ForeignWalker {
    walker: *mut abi::Walker,
    /// A copy of what it is, that nobody changes.
    abi: abi::Walker,
    wanted_globals: Vec<u32>,
    /// Room for one walk, so that it allocates nothing.
    frames: StackRoom,
    /// Walks in which it said that it failed.
    failed_walks: u32,
    /// It gave more for one frame than is taken.
    has_too_many_frames: bool,
    /// It came of another, with which it shares what names need.
    is_fresh: bool,
    calls: Calls,
}

// SAFETY: the ABI has a walker be called from any thread, one call at a time.
unsafe impl Send for ForeignWalker {}

impl ForeignWalker {
    fn new(read: ReadWalker, calls: Calls) -> Result<Self, AttachError> {
        let frames = StackRoom::new(FrameSink::CAPACITY).map_err(|error| AttachError(error.to_string()))?;
        let stack = OwnStack::new().map_err(|error| AttachError(error.to_string()))?;
        let ReadWalker { walker, abi, wanted_globals } = read;
        let calls = calls.with_stack(stack);
        let (failed_walks, has_too_many_frames, is_fresh) = (0, false, false);
        Ok(Self { walker, abi, wanted_globals, frames, failed_walks, has_too_many_frames, is_fresh, calls })
    }
}

/// It is put aside, and ended when nobody needs anything of the process any more; at once if it is one of many, which a guest
/// that goes on makes and gives up.
impl Drop for ForeignWalker {
    fn drop(&mut self) {
        let Some(destroy) = self.abi.destroy else { return };
        // SAFETY: this owns the walker and is about to go; calls into it borrow this.
        let ended = unsafe { EndedWalker::new(self.walker, destroy) };
        if self.is_fresh {
            ended.destroy(&self.calls);
        } else {
            self.calls.library().walker_is_over(ended);
        }
    }
}

impl Walker for ForeignWalker {
    fn reads_guest(&self) -> bool {
        self.abi.flags & abi::WALKER_READS_GUEST != 0
    }

    fn walks_without_allocating(&self) -> bool {
        self.abi.flags & abi::WALKER_WALKS_WITHOUT_ALLOCATING != 0
    }

    fn fresh(&self) -> Option<Box<dyn Walker>> {
        let (fresh, library) = (self.abi.fresh?, self.calls.library());
        let read = self.calls.call(Activity::Fresh, || {
            // SAFETY: the walker is not destroyed before `self` goes. `self` cannot be shared between threads, so no other call uses the
            // walker.
            let walker = unsafe { fresh(self.walker) };
            // SAFETY: `walker` is not null, and the plugin has just made it; a crash in it is contained, since this runs in `Calls::call`.
            (!walker.is_null()).then(|| unsafe { ReadWalker::read(walker, library.abi_minor()) })
        });
        // One that cannot be is no better than a crash.
        let read = read??.inspect_err(|_| library.failed_by_its_own_account(Activity::Fresh)).ok()?;
        let mut walker = Self::new(read, Calls::new(library.clone())).ok()?;
        walker.is_fresh = true;
        Some(Box::new(walker))
    }

    fn wanted_globals(&self) -> &[u32] {
        &self.wanted_globals
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let walk = self.abi.walk.ok_or(Truncation::NoStack)?;
        // Since the last walk the guest has had the processor's caches.
        fetch(self.walker, FETCHED);
        fetch(self.frames.as_ptr(), FETCHED);
        let mut label_keys = [0; FrameSink::LABEL_CAPACITY - 1];
        let mut stack = abi::Stack {
            size: size_of::<abi::Stack>(),
            frames: self.frames.as_mut_ptr(),
            capacity: self.frames.len(),
            length: 0,
            labels: 0,
            has_labels: 0,
            may_allocate: out.may_allocate(),
            label_keys: label_keys.as_mut_ptr(),
            label_capacity: label_keys.len(),
            label_count: 0,
        };
        let guest = HostGuest::new(guest);
        if out.may_allocate() {
            self.calls.ready();
        }
        // SAFETY: the walker is not destroyed before `self` goes, and no other call borrows `self`. Guest, frames and all that `stack`
        // points to live until the call has ended.
        let ask = || unsafe { walk(self.walker, &guest.abi, wasm.as_ptr(), wasm.len(), &mut stack) };
        let end = self.calls.call(Activity::Walk, ask).ok_or(Truncation::Failed)?;
        self.failed_walks += u32::from(end == abi::WALK_END_FAILED);
        // An end or a length that cannot be says that nothing else is to be believed.
        let (frames, label_keys) = (self.frames.get(..stack.length), label_keys.get(..stack.label_count));
        let (Some(walked), Some(frames), Some(label_keys)) = (abi::walk_end_of(end), frames, label_keys) else {
            return Err(Truncation::Inconsistent);
        };
        if walked.is_err_and(|reason| !reason.keeps_frames()) {
            return walked;
        }
        for frame in frames {
            match frame.kind {
                abi::FRAME_KIND_OWN => out.push(frame.value)?,
                abi::FRAME_KIND_WASM if frame.value < wasm.len() as u64 => out.push_wasm(frame.value as usize)?,
                abi::FRAME_KIND_ELIDED => out.push_elided()?,
                // No kind of frame, or none of the stack's.
                _ => {
                    out.clear();
                    return Err(Truncation::Inconsistent);
                }
            }
        }
        if stack.has_labels != 0 {
            out.set_labels(stack.labels);
        }
        // There is room: for the one above and as many as it was told of.
        let _ = label_keys.iter().all(|&key| out.add_labels(key));
        walked
    }

    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        let Some(threads) = self.abi.threads else { return };
        let (guest, receiver) = (HostGuest::new(guest), HostThreads::new(out));
        // SAFETY: the walker is not destroyed before `self` goes, and no other call borrows `self`. Guest, frames and receiver live until
        // the call has ended.
        let ask = || unsafe { threads(self.walker, &guest.abi, wasm.as_ptr(), wasm.len(), &receiver.abi) };
        self.calls.call(Activity::Threads, ask);
    }

    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        let Some(symbolize) = self.abi.symbolize else { return };
        let receiver = HostFrames::new(out);
        // SAFETY: the walker is not destroyed before `self` goes, and no other call borrows `self`. The receiver lives until the call has
        // ended.
        self.calls.call(Activity::Symbolize, || unsafe { symbolize(self.walker, frame.into(), &receiver.abi) });
        self.has_too_many_frames |= receiver.is_full();
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        let (categorize, frame) = (self.abi.categorize?, abi::SourceFrame::of(frame));
        // SAFETY: the walker is not destroyed before `self` goes, and the frame lives until the call has ended.
        let category = self.calls.call(Activity::Categorize, || unsafe { categorize(self.walker, &frame) });
        category.and_then(abi::category_of)
    }

    fn labels(&mut self, key: u64, out: &mut Vec<Label>) {
        let Some(labels) = self.abi.labels else { return };
        let receiver = HostLabels::new(out);
        // SAFETY: the walker is not destroyed before `self` goes, and no other call borrows `self`. The receiver lives until the call has
        // ended.
        self.calls.call(Activity::Labels, || unsafe { labels(self.walker, key, &receiver.abi) });
    }

    fn allocators(&self, module: &dyn ModuleView, missed: &mut Vec<String>) -> Vec<Allocator> {
        let mut found = Vec::new();
        if let Some(allocators) = self.abi.allocators {
            let (module, receiver) = (HostModule::new(module), HostAllocators::new(&mut found));
            let missed = HostTexts::new(missed);
            // SAFETY: the walker is not destroyed before `self` goes. Module and receivers live until the call has ended.
            let ask = || unsafe { allocators(self.walker, &module.abi, &receiver.abi, &missed.abi) };
            // Some of what belongs together is worse than nothing.
            // Of more than are taken none is used: they are far more than an allocator has.
            if self.calls.call(Activity::Allocators, ask).is_none() {
                found.clear();
            }
        }
        found
    }

    fn switch_heap_profiler_on(&self, rate: u64) -> Vec<MemoryPatch> {
        let Some(switch_on) = self.abi.switch_heap_profiler_on else { return Vec::new() };
        let mut patches = Vec::new();
        let receiver = HostPatches::new(&mut patches);
        // SAFETY: the walker is not destroyed before `self` goes, and the receiver lives until the call has ended.
        let ask = || unsafe { switch_on(self.walker, rate, &receiver.abi) };
        // As for allocators.
        if self.calls.call(Activity::SwitchHeapProfilerOn, ask).is_none() || receiver.is_short() {
            patches.clear();
        }
        patches
    }

    fn heap_profile(&mut self, guest: &dyn GuestMemory, out: &mut Vec<HeapBucket>) -> Result<u64, Truncation> {
        let Some(heap_profile) = self.abi.heap_profile else { return Ok(0) };
        let (guest, receiver, mut rate) = (HostGuest::new(guest), HostBuckets::new(out), 0);
        // SAFETY: the walker is not destroyed before `self` goes, and no other call borrows `self`. Guest, receiver and `rate` live until
        // the call has ended.
        let ask = || unsafe { heap_profile(self.walker, &guest.abi, &receiver.abi, &mut rate) };
        let end = self.calls.call(Activity::HeapProfile, ask).ok_or(Truncation::Failed)?;
        if receiver.is_short() {
            return Err(Truncation::TooDeep);
        }
        abi::walk_end_of(end).unwrap_or(Err(Truncation::Inconsistent)).map(|()| rate)
    }

    fn warnings(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if let Some(warnings) = self.abi.warnings {
            let receiver = HostTexts::new(&mut texts);
            // SAFETY: the walker is not destroyed before `self` goes, and the receiver lives until the call has ended.
            self.calls.call(Activity::Warnings, || unsafe { warnings(self.walker, &receiver.abi) });
        }
        let library = self.calls.library();
        if self.failed_walks > 0 {
            texts.push(format!(
                "plugin {} failed in {} walks (in Rust: by a panic); after three it is not asked for stacks any more",
                library.name(),
                self.failed_walks
            ));
        }
        if self.has_too_many_frames {
            texts.push(format!(
                "plugin {} names more than {MOST_FRAMES} functions for one frame; the rest is left out",
                library.name()
            ));
        }
        texts.extend(library.failure());
        texts
    }
}
