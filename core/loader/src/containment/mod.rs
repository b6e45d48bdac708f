//! Calls into a plugin end, whatever the plugin does, and leave the process as it was: one that crashes, does not come back or
//! would end the process is left, and its library is not called any more.
//!
//! # Security
//! This contains mistakes. What a plugin overwrites of wlprof's memory before it crashes cannot be known. A lock that is held
//! when a call is left stays locked, so it is left in the plugin's own code, or where wlprof's returns to that; elsewhere, as in
//! a lock that the plugin waits for, only if it is never seen there.
//! Elsewhere than on Linux, on x86-64 and aarch64, calls are not contained.

// Where calls are not contained, none is left.
#![cfg_attr(not(all(target_os = "linux", any(target_arch = "aarch64", target_arch = "x86_64"))), allow(dead_code))]

mod ended;
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "aarch64", target_arch = "x86_64"))),
    path = "uncontained.rs"
)]
mod recovery;
mod slot;
mod watchdog;

pub(super) use ended::RetiredPart;
pub(super) use recovery::{OwnStack, end_process, fetch, in_host};

use libloading::Library;
use recovery::{Changes, Handlers, SavedContext};
use slot::Slot;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What a plugin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Nothing yet: the system loads it, and runs its constructors.
    Open,
    /// Reading what the plugin says of itself.
    Load,
    Detect,
    Attach,
    Walk,
    Threads,
    Symbolize,
    Categorize,
    Labels,
    Warnings,
    LibraryFolder,
    Walker,
    Allocators,
    SwitchHeapProfilerOn,
    HeapProfile,
    Destroy,
}

impl Activity {
    const ALL: [Self; 16] = [
        Self::Open,
        Self::Load,
        Self::Detect,
        Self::Attach,
        Self::Walk,
        Self::Threads,
        Self::Symbolize,
        Self::Categorize,
        Self::Labels,
        Self::Warnings,
        Self::LibraryFolder,
        Self::Walker,
        Self::Allocators,
        Self::SwitchHeapProfilerOn,
        Self::HeapProfile,
        Self::Destroy,
    ];

    /// How long it may take, in seconds. Walks take microseconds and hold up the guest; tables of large modules take a while
    /// to read.
    fn limit_s(self) -> u64 {
        match self {
            Self::Walk | Self::Threads => 2,
            _ => 15,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Open => "a constructor",
            Self::Load => "its description",
            Self::Detect => "detect",
            Self::Attach => "attach",
            Self::Walk => "walk",
            Self::Threads => "threads",
            Self::Symbolize => "symbolize",
            Self::Categorize => "categorize",
            Self::Labels => "labels",
            Self::Warnings => "warnings",
            Self::LibraryFolder => "library_folder",
            Self::Walker => "walker",
            Self::Allocators => "allocators",
            Self::SwitchHeapProfilerOn => "switch_heap_profiler_on",
            Self::HeapProfile => "heap_profile",
            Self::Destroy => "destroy",
        }
    }

    /// What is put back after it. A walk takes about a microsecond, as long as a few system calls; and in a signal handler,
    /// or where that is blocked, whoever called puts the mask back.
    fn kept(self) -> SavedContext {
        match self {
            Self::Walk => SavedContext::FloatingPoint,
            Self::Symbolize | Self::Categorize | Self::Labels | Self::Threads | Self::Walker | Self::HeapProfile => {
                SavedContext::Mask
            }
            _ => SavedContext::Handlers,
        }
    }
}

/// Why a call was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbortReason {
    /// A crash raised this signal.
    Crash(i32),
    /// It did not come back.
    TooLong,
    /// It called `exit`.
    Exit,
    /// An exception or the end of the thread (`pthread_exit`) came out of it.
    Unwound,
}

/// How a plugin failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    activity: Activity,
    /// `None` if the plugin said so itself.
    left: Option<AbortReason>,
    /// The call could not even be left.
    is_stuck: bool,
}

/// What a plugin is called, and the minor version of the ABI that it was built for.
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) abi_minor: u32,
}

/// Programs and walkers of one plugin that wait for their end.
const MOST_WAITING: usize = 64;

/// The library of a plugin. It stays loaded for good: it may have threads of its own, or have left addresses behind.
pub(super) struct PluginLibrary {
    file_name: String,
    /// Once it has been read.
    identity: OnceLock<Identity>,
    /// Whether all that it changes of the process is looked for in every call.
    is_checked: bool,
    code: Vec<Range<usize>>,
    failure: OnceLock<Failure>,
    /// What is not asked any more and waits for its end, programs after their walkers.
    ended: Mutex<VecDeque<RetiredPart>>,
    /// What each activity changed of the process.
    changes: [AtomicU8; Activity::ALL.len()],
}

impl PluginLibrary {
    /// Has the system load the library at `path`. `load` gives an address in it as well, which is passed on.
    ///
    /// # Errors
    /// Those of `load`.
    pub(super) fn open<E>(
        path: &Path,
        is_checked: bool,
        load: impl FnOnce() -> Result<(Library, usize), E>,
    ) -> Result<(Arc<Self>, usize), E> {
        recovery::prepare();
        watchdog::start();
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let slot = watchdog::watch_loading(&file_name);
        slot.enter(Activity::Open);
        let (loaded, changes) = recovery::loading(path, load);
        slot.leave();
        let (library, within) = loaded?;
        std::mem::forget(library);
        let library = Self {
            file_name,
            identity: OnceLock::new(),
            is_checked,
            code: recovery::code_around(within),
            failure: OnceLock::new(),
            ended: Mutex::default(),
            changes: Default::default(),
        };
        library.note(Activity::Open, changes);
        Ok((Arc::new(library), within))
    }

    /// To be called once, with what the plugin says of itself.
    pub(super) fn identify(&self, identity: Identity) {
        let _ = self.identity.set(identity);
    }

    /// What it is called; its file's name until that is known.
    pub(super) fn name(&self) -> &str {
        self.identity.get().map_or(&self.file_name, |identity| &identity.name)
    }

    /// Minor version of the ABI that it was built for; 0 until that is known.
    pub(super) fn abi_minor(&self) -> u32 {
        self.identity.get().map_or(0, |identity| identity.abi_minor)
    }

    /// Takes note that the plugin said of itself that it failed.
    pub(super) fn failed_by_its_own_account(&self, activity: Activity) {
        let _ = self.failure.set(Failure { activity, left: None, is_stuck: false });
    }

    /// Puts aside what is not asked any more, to be ended when nobody needs anything of the process. A guest that goes on makes many walkers
    /// and gives them up: of more than a few the first is ended at once.
    ///
    /// # Safety
    /// No call may use it, now or later. The walkers of a program must have been put aside before.
    pub(super) unsafe fn is_over(self: &Arc<Self>, ended: RetiredPart) {
        let mut waiting = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(ended);
        let first = if waiting.len() > MOST_WAITING { waiting.pop_front() } else { None };
        drop(waiting);
        // SAFETY: no call uses it, and a program's walkers came and went before it (see # Safety).
        first.into_iter().for_each(|first| unsafe { first.destroy(&Calls::new(self.clone())) });
    }

    /// Ends what waits for it.
    pub(super) fn end_all(self: &Arc<Self>) {
        let waiting = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        let calls = Calls::new(self.clone());
        // SAFETY: no call uses any of them, and programs come after their walkers: see `is_over`.
        waiting.into_iter().for_each(|ended| unsafe { ended.destroy(&calls) });
    }

    fn note(&self, activity: Activity, changes: Changes) {
        self.changes[activity as usize].fetch_or(changes.0, Ordering::Relaxed);
    }

    /// What of the process the plugin changed and should not have, in a sentence each. All of it has been put back.
    pub(super) fn changes(&self) -> Vec<String> {
        let changed = |activity: Activity| Changes(self.changes[activity as usize].load(Ordering::Relaxed));
        let what = |activity: Activity| {
            changed(activity).names().map(move |what| format!("{} changes {what}", activity.name()))
        };
        Activity::ALL.into_iter().flat_map(what).collect()
    }

    /// Why the plugin is not called any more, in a sentence; `None` if it is.
    pub(super) fn failure(&self) -> Option<String> {
        let Failure { activity, left, is_stuck } = self.failure.get()?;
        let (name, call, limit) = (self.name(), activity.name(), activity.limit_s());
        let how = match *left {
            None => format!("failed in {call} (in Rust: by a panic)"),
            Some(AbortReason::Crash(signal)) => format!("crashed in {call}: {}", recovery::crash(signal)),
            Some(AbortReason::TooLong) => format!("did not come back from {call} within {limit} s"),
            Some(AbortReason::Exit) => format!("called exit in {call}"),
            Some(AbortReason::Unwound) => {
                format!("threw an exception out of {call}, or ended the thread there (pthread_exit)")
            }
        };
        let consequence = match activity {
            _ if *is_stuck => ", and blocks signals, so that the call cannot be left; the run ends with it",
            Activity::Open | Activity::Load | Activity::Destroy => "",
            Activity::Walk => "; it is not asked any more, and stacks are wasm frames from then on",
            _ => "; it is not asked any more",
        };
        Some(format!("plugin {name} {how}{consequence}"))
    }
}

/// Calls into one plugin that never overlap.
pub(super) struct Calls {
    library: Arc<PluginLibrary>,
    slot: Arc<Slot>,
    /// Used where there is little, in signal handlers.
    stack: Option<OwnStack>,
    /// Who handled signals when this was readied.
    handlers: OnceLock<Box<Handlers>>,
}

impl Calls {
    pub(super) fn new(library: Arc<PluginLibrary>) -> Self {
        let slot = watchdog::watch_calls(&library);
        Self { library, slot, stack: None, handlers: OnceLock::new() }
    }

    /// Has calls in signal handlers run on this stack.
    pub(super) fn with_stack(self, stack: OwnStack) -> Self {
        Self { stack: Some(stack), ..self }
    }

    /// Readies this thread and this process for walks, where memory may be allocated.
    pub(super) fn ready(&self) {
        recovery::watch_thread_at_times();
        self.handlers.get_or_init(|| Box::new(Handlers::now()));
    }

    /// What `run` gives, which calls the plugin. `None` if the plugin has failed, now or before.
    ///
    /// `run` may be left anywhere: it must hold nothing that has to be given back.
    #[inline]
    pub(super) fn call<T>(&self, activity: Activity, run: impl FnOnce() -> T) -> Option<T> {
        let library = &*self.library;
        if library.failure.get().is_some() {
            return None;
        }
        match activity {
            // Where memory may be allocated, `ready` has done it.
            Activity::Walk => {}
            // For each instance of a module.
            Activity::Walker | Activity::Destroy => recovery::watch_thread_at_times(),
            _ => recovery::watch_thread(),
        }
        let kept = if library.is_checked { SavedContext::Handlers } else { activity.kept() };
        let (outcome, changes) = recovery::keeping(kept, || {
            self.slot.enter(activity);
            let outcome = recovery::call(&self.slot, &library.code, self.stack.as_ref(), run);
            self.slot.leave();
            outcome
        });
        if changes.any() {
            library.note(activity, changes);
        }
        let failed = |left| {
            let _ = library.failure.set(Failure { activity, left: Some(left), is_stuck: false });
            // A walk that comes back is believed to have left them alone.
            self.handlers.get().inspect(|handlers| handlers.put_back_functions());
        };
        outcome.map_err(failed).ok()
    }
}
