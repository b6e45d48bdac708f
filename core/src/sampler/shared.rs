//! What the samplers of a session share: the modules that are loaded, and the recorder.

use super::heap::Heaps;
use super::kept::OpenWindows;
use super::options::SamplerOptions;
use super::unloading::UnloadQueue;
use crate::machine_code::GuestCode;
use std::collections::BTreeSet;
use std::iter::repeat_with;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use wasmtime_environ::wasmparser::Operator;
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, Program};
use wlprof_recording::{Module, ModuleId, Origin, Recorder};
use wlprof_walk::{CodeMap, FrameWord, MappedCode, NativePc};

/// A module whose code may be sampled.
pub(crate) struct LoadedModule {
    pub(crate) id: ModuleId,
    pub(super) image: Arc<ModuleImage>,
    /// The others that work on its memory.
    siblings: OnceLock<Vec<Weak<LoadedModule>>>,
    /// What its language knows of it.
    pub(super) program: Option<Arc<dyn Program>>,
    /// Its language has stacks of its own.
    pub(super) has_language: bool,
}

impl LoadedModule {
    /// Without an id yet.
    pub(super) fn new(image: Arc<ModuleImage>, program: Option<Arc<dyn Program>>) -> Self {
        let has_language = program.as_ref().is_some_and(|program| program.walker().is_some());
        Self { id: 0, image, siblings: OnceLock::new(), program, has_language }
    }

    /// The other modules whose code works on the same memory, as plugins number them.
    pub(super) fn siblings(&self) -> Vec<Arc<LoadedModule>> {
        self.siblings.get().into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Those of code that is loaded elsewhere, by their numbers, without a language.
    #[cfg(test)]
    pub(super) fn all_of(guest: &GuestCode) -> Vec<Arc<Self>> {
        let of = |(id, image): (ModuleId, &Arc<ModuleImage>)| Self { id, ..Self::new(image.clone(), None) };
        let all: Vec<_> = (0..).zip(&guest.images).map(of).map(Arc::new).collect();
        Self::tell_siblings(&all);
        all
    }

    /// Tells all modules of a program, by their numbers, which others work on their memories.
    fn tell_siblings(all: &[Arc<Self>]) {
        for module in all {
            let siblings = module.image.siblings().iter().filter_map(|sibling| all.get(*sibling as usize));
            let _ = module.siblings.set(siblings.map(Arc::downgrade).collect());
        }
    }

    /// What stands in the place of a module that has gone, for the next one to take.
    fn vacant(id: ModuleId) -> Self {
        const EMPTY: &[u8] = b"\0asm\x01\0\0\0";
        let image = ModuleImage::parse(EMPTY.to_vec(), "").expect("it is a module");
        Self { id, ..Self::new(Arc::new(image), None) }
    }
}

/// What samplers and the session share.
pub(super) struct Shared {
    pub(super) options: SamplerOptions,
    pub(super) code: CodeMap,
    /// By their ids.
    modules: RwLock<Vec<Arc<LoadedModule>>>,
    /// Those that are to go.
    pub(super) unloading: UnloadQueue,
    /// A module's language has stacks of its own: handlers ask what frames are, then.
    has_language: AtomicBool,
    /// How many want modules to keep their ids.
    ids_held: AtomicUsize,
    /// What the guests of stores have allocated.
    pub(super) heaps: Heaps,
    recorder: Mutex<Recorder>,
    /// Locked while the recorder is, or alone.
    kept: Mutex<OpenWindows>,
}

impl Shared {
    pub(super) fn new(options: SamplerOptions, mut recorder: Recorder) -> Self {
        let kept = OpenWindows::past(options.keep);
        recorder.keep_from(kept.first_ns(0), None);
        Self {
            kept: Mutex::new(kept),
            options,
            code: CodeMap::default(),
            modules: RwLock::default(),
            has_language: AtomicBool::new(false),
            unloading: UnloadQueue::default(),
            ids_held: AtomicUsize::new(0),
            heaps: Heaps::default(),
            recorder: Mutex::new(recorder),
        }
    }

    /// What the recording says of a module.
    pub(super) fn description(image: &ModuleImage) -> Module {
        Module { name: image.name().to_owned(), build_id: image.build_id() }
    }

    /// Has code be sampled from here on, and gives its modules. `programs` are what their languages know of them, in their order.
    pub(super) fn load(&self, guest: &GuestCode, programs: Vec<Option<Arc<dyn Program>>>) -> Vec<Arc<LoadedModule>> {
        // What takes time, or may panic, comes before anybody has to wait, and before there is an id.
        let programs = programs.into_iter().chain(repeat_with(|| None));
        let new = guest.images.iter().zip(programs);
        let mut new: Vec<_> = new.map(|(image, program)| LoadedModule::new(image.clone(), program)).collect();
        let has_language = new.iter().any(|module| module.has_language);
        // Walkers are given wasm frames while the guest stands still: the maps must be there then, of all modules.
        let had_language = self.has_language.fetch_or(has_language, Ordering::Relaxed);
        let code = MappedCode::new(&guest.mapped_image(), had_language || has_language);
        // Locked in this order, as by whoever forgets modules.
        let mut recorder = self.recorder();
        if self.unloading.is_over() {
            new.iter_mut().for_each(|module| module.id = ModuleId::MAX);
            return new.into_iter().map(Arc::new).collect();
        }
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        let mut add = |mut module: LoadedModule| {
            module.id = recorder.module(Self::description(&module.image));
            let module = Arc::new(module);
            match modules.get_mut(module.id as usize) {
                Some(vacant) => *vacant = module.clone(),
                None => modules.push(module.clone()),
            }
            module
        };
        let loaded: Vec<_> = new.into_iter().map(&mut add).collect();
        LoadedModule::tell_siblings(&loaded);
        drop((recorder, modules));
        self.code.add(loaded.iter().map(|module| module.id).collect(), code);
        if has_language && !had_language {
            self.code.prepare_origins();
        }
        loaded
    }

    /// Takes modules, whose code is not found any more and which nobody has, out of `ids` if nothing in the recorder is of them, and gives
    /// them to the caller. Others may have their ids from here on.
    pub(super) fn forget(&self, ids: &mut BTreeSet<ModuleId>, recorder: &mut Recorder) -> Vec<Arc<LoadedModule>> {
        // Locked meanwhile: whoever loads a module puts it where one of these was, and whoever holds ids comes before or after.
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        if self.are_ids_held() {
            return Vec::new();
        }
        let forgotten = recorder.forget_modules(ids).into_iter();
        let vacant = |id: ModuleId| Arc::new(LoadedModule::vacant(id));
        forgotten.map(|id| std::mem::replace(&mut modules[id as usize], vacant(id))).collect()
    }

    /// Whether nothing can be forgotten now.
    pub(super) fn are_ids_held(&self) -> bool {
        self.ids_held.load(Ordering::Relaxed) > 0
    }

    /// Whether nobody has the module any more: no store is walked with it.
    pub(super) fn is_free(&self, id: ModuleId) -> bool {
        let modules = self.modules.read().unwrap_or_else(PoisonError::into_inner);
        modules.get(id as usize).is_none_or(|module| Arc::strong_count(module) == 1)
    }

    /// Has all modules keep their ids until what this gives is dropped, which must be soon: modules that are gone stay until then.
    pub(super) fn hold_ids(&self) -> HeldIds<'_> {
        let _no_one_forgets = self.modules.read().unwrap_or_else(PoisonError::into_inner);
        self.ids_held.fetch_add(1, Ordering::Relaxed);
        HeldIds(&self.ids_held)
    }

    /// Lets go of modules when nothing is recorded any more, of which nobody will ask for names. Their ids stay.
    pub(super) fn remove_unnamed(&self, ids: &[ModuleId]) {
        if ids.is_empty() {
            return;
        }
        self.code.remove(ids);
        // If somebody is reading still, the next one's removal lets go of it.
        self.code.free_removed();
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            if let Some(module) = modules.get_mut(*id as usize) {
                *module = Arc::new(LoadedModule::vacant(*id));
            }
        }
    }

    /// All modules, by their ids.
    pub(super) fn modules(&self) -> Vec<Arc<LoadedModule>> {
        self.modules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The module of that id.
    pub(super) fn module(&self, id: ModuleId) -> Option<Arc<LoadedModule>> {
        self.modules.read().unwrap_or_else(PoisonError::into_inner).get(id as usize).cloned()
    }

    /// The first byte of the wasm instruction at `pc`. Async-signal-safe.
    pub(super) fn opcode_at(&self, pc: NativePc) -> Option<u8> {
        let code = self.code.read();
        let Origin::Wasm { function, code_offset, .. } = code.origin(pc)? else { return None };
        code.image(pc)?.code_at(function, code_offset)?.first().copied()
    }

    /// The function that the `call` instruction at `pc` calls; `None` if it is no such instruction.
    pub(super) fn called_at(&self, pc: NativePc) -> Option<(ModuleId, u32)> {
        let code = self.code.read();
        let Origin::Wasm { module, function, code_offset } = code.origin(pc)? else { return None };
        match code.image(pc)?.operator_at(function, code_offset)? {
            Operator::Call { function_index } => Some((module, function_index)),
            _ => None,
        }
    }

    /// The import that a call which returns to `pc` is of, as in `module.name`.
    pub(super) fn import_called_from(&self, pc: usize) -> Option<String> {
        let (module, function) = self.called_at(FrameWord::return_address(pc).native_pc())?;
        self.module(module)?.image.import_name(function)
    }

    /// What of the run is kept for who may look at it.
    pub(super) fn kept(&self) -> MutexGuard<'_, OpenWindows> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recorder. A panic of another thread while it held it has lost at most one sample.
    pub(super) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody for whom modules keep their ids.
pub(crate) struct HeldIds<'a>(&'a AtomicUsize);

impl Drop for HeldIds<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
