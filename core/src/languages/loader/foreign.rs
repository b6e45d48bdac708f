//! Languages and walkers behind the C ABI, as the rest of wlprof sees them.

use super::host::{HostFrames, HostGuest, HostLabels, HostModule, HostTexts};
use super::threads::HostThreads;
use libloading::Library;
use std::sync::Arc;
use wlprof_plugin::abi;
use wlprof_plugin::{
    AttachError, Category, Detection, FrameKey, FrameSink, GuestMemory, Label, Language, ModuleView, SourceFrame,
    ThreadStack, WalkEnd, Walker, WasmFrame,
};

/// A language of a loaded plugin.
pub struct ForeignLanguage {
    name: String,
    library_folder: Option<String>,
    language: *const abi::Language,
    /// Stays loaded for as long as anything of it is in use.
    library: Arc<Library>,
}

// SAFETY: the ABI has languages be constant, and their functions called from any thread.
unsafe impl Send for ForeignLanguage {}
// SAFETY: as above.
unsafe impl Sync for ForeignLanguage {}

impl ForeignLanguage {
    /// # Safety
    /// `language` is a whole one, as the ABI says, in `library`.
    pub(super) unsafe fn new(language: *const abi::Language, library: Arc<Library>) -> Self {
        let mut folders = Vec::new();
        // SAFETY: the caller's promise.
        let name = unsafe {
            if let Some(folder) = (*language).library_folder {
                folder(language, &HostTexts::new(&mut folders).abi);
            }
            (*language).name.text().into_owned()
        };
        Self { name, library_folder: folders.pop(), language, library }
    }
}

impl Language for ForeignLanguage {
    fn name(&self) -> &str {
        &self.name
    }

    fn library_folder(&self) -> Option<&str> {
        self.library_folder.as_deref()
    }

    fn detect(&self, module: &dyn ModuleView) -> Detection {
        let mut answers = Vec::new();
        // SAFETY: the language is loaded, and what it is given is there for the call.
        let detection = unsafe {
            ((*self.language).detect)(self.language, &HostModule::new(module).abi, &HostTexts::new(&mut answers).abi)
        };
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| self.name.clone());
        match detection {
            abi::detection::YES => Detection::Yes(next()),
            abi::detection::UNSUPPORTED => Detection::Unsupported { found: next(), supported: next() },
            _ => Detection::No,
        }
    }

    fn attach(&self, module: &dyn ModuleView) -> Result<Box<dyn Walker>, AttachError> {
        let mut errors = Vec::new();
        // SAFETY: as for `detect`.
        let walker = unsafe {
            ((*self.language).attach)(self.language, &HostModule::new(module).abi, &HostTexts::new(&mut errors).abi)
        };
        if walker.is_null() {
            let reason = errors.pop().unwrap_or_else(|| "the plugin does not say why it cannot walk it".to_owned());
            return Err(AttachError(reason));
        }
        // SAFETY: it is a new walker of this library's.
        unsafe { ForeignWalker::new(walker, self.library.clone()) }.map(|walker| Box::new(walker) as Box<dyn Walker>)
    }
}

/// A walker of a loaded plugin.
struct ForeignWalker {
    walker: *mut abi::Walker,
    wanted_globals: Vec<u32>,
    /// Room for one walk, so that it allocates nothing.
    wasm: Vec<abi::WasmFrame>,
    frames: Vec<abi::StackFrame>,
    _library: Arc<Library>,
}

// SAFETY: the ABI has a walker be called from any thread, one call at a time.
unsafe impl Send for ForeignWalker {}

impl ForeignWalker {
    /// # Safety
    /// `walker` is as the ABI says, and nobody else's.
    unsafe fn new(walker: *mut abi::Walker, library: Arc<Library>) -> Result<Self, AttachError> {
        // SAFETY: the caller's promise.
        let abi = unsafe { &*walker };
        if abi.size < size_of::<abi::Walker>() {
            return Err(AttachError(format!("the plugin's walker has {} bytes, too few", abi.size)));
        }
        let wanted_globals = match abi.wanted_global_count {
            0 => Vec::new(),
            // SAFETY: as above.
            count => unsafe { std::slice::from_raw_parts(abi.wanted_globals, count) }.to_vec(),
        };
        let nothing = abi::StackFrame { kind: 0, reserved: 0, value: 0 };
        Ok(Self {
            walker,
            wanted_globals,
            wasm: Vec::with_capacity(FrameSink::CAPACITY),
            frames: vec![nothing; FrameSink::CAPACITY],
            _library: library,
        })
    }

    fn abi(&self) -> &abi::Walker {
        // SAFETY: it lives as long as this.
        unsafe { &*self.walker }
    }

    fn take_wasm(&mut self, wasm: &[WasmFrame]) {
        self.wasm.clear();
        self.wasm.extend(wasm.iter().take(FrameSink::CAPACITY).map(|&frame| abi::WasmFrame::from(frame)));
    }
}

impl Drop for ForeignWalker {
    fn drop(&mut self) {
        // SAFETY: it is this one's own and no call uses it.
        unsafe { (self.abi().destroy)(self.walker) };
    }
}

impl Walker for ForeignWalker {
    fn reads_guest(&self) -> bool {
        self.abi().flags & abi::walker_flags::READS_GUEST != 0
    }

    fn walks_without_allocating(&self) -> bool {
        self.abi().flags & abi::walker_flags::WALKS_WITHOUT_ALLOCATING != 0
    }

    fn wanted_globals(&self) -> &[u32] {
        &self.wanted_globals
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> WalkEnd {
        let Some(walk) = self.abi().walk else { return WalkEnd::NoStack };
        self.take_wasm(wasm);
        let mut stack = abi::Stack {
            size: size_of::<abi::Stack>(),
            frames: self.frames.as_mut_ptr(),
            capacity: self.frames.len(),
            length: 0,
            labels: 0,
            has_labels: false,
            may_allocate: out.may_allocate(),
        };
        let guest = HostGuest::new(guest);
        // SAFETY: what it is given is there for the call.
        let end = unsafe { walk(self.walker, &guest.abi, self.wasm.as_ptr(), self.wasm.len(), &mut stack) };
        // A length that cannot be says that nothing else is to be believed.
        let Some(frames) = self.frames.get(..stack.length) else { return WalkEnd::Inconsistent };
        let fits = frames.iter().all(|frame| match frame.kind {
            abi::frame_kind::WASM => out.push_wasm(frame.value as usize),
            _ => out.push(frame.value),
        });
        if stack.has_labels {
            out.set_labels(stack.labels);
        }
        if end == abi::walk_end::FAILED {
            // The sampler counts panics, and asks no more after some. Without the panic hook: this may be a signal handler.
            std::panic::resume_unwind(Box::new(()));
        }
        if fits { abi::walk_end_of(end).unwrap_or(WalkEnd::Inconsistent) } else { WalkEnd::TooDeep }
    }

    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        let Some(threads) = self.abi().threads else { return };
        self.take_wasm(wasm);
        let guest = HostGuest::new(guest);
        // SAFETY: what it is given is there for the call.
        unsafe { threads(self.walker, &guest.abi, self.wasm.as_ptr(), self.wasm.len(), &HostThreads::new(out).abi) };
    }

    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        // SAFETY: as above.
        unsafe { (self.abi().symbolize)(self.walker, frame.into(), &HostFrames::new(out).abi) };
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        let categorize = self.abi().categorize?;
        let frame = abi::SourceFrame::of(frame);
        // SAFETY: as above.
        abi::category_of(unsafe { categorize(self.walker, &frame) })
    }

    fn labels(&mut self, key: u64, out: &mut Vec<Label>) {
        if let Some(labels) = self.abi().labels {
            // SAFETY: as above.
            unsafe { labels(self.walker, key, &HostLabels::new(out).abi) };
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if let Some(warnings) = self.abi().warnings {
            // SAFETY: as above.
            unsafe { warnings(self.walker, &HostTexts::new(&mut texts).abi) };
        }
        texts
    }
}
