//! Calls into a plugin end, whatever the plugin does: one that crashes or does not come back is left from a signal handler,
//! and its library is not called any more.
//!
//! # Security
//! This contains mistakes. What a plugin overwrites of wlprof's memory before it crashes cannot be known, nor can a stack
//! overflow in [`Activity::Walk`] be survived, which has no other stack to be handled on. A lock that is held when a call is
//! left stays locked, so it is left in the plugin's own code, or where wlprof's returns to that; elsewhere, as in a lock that
//! the plugin waits for, only if it is never seen there.
//! Elsewhere than on Linux and x86-64 calls are not contained.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod recovery;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod recovery {
    //! Calls that are left to end by themselves.
    use super::Slot;
    use std::ops::Range;

    pub(super) fn prepare() {}

    pub(super) fn interrupt(_thread: i32) {}

    pub(super) fn code_around(_address: usize) -> Vec<Range<usize>> {
        Vec::new()
    }

    pub(super) fn call<T>(_slot: &Slot, _code: &[Range<usize>], run: impl FnOnce() -> T) -> Result<T, i32> {
        Ok(run())
    }

    pub(in super::super) fn in_host<T: Copy>(run: impl FnOnce() -> T) -> T {
        run()
    }

    pub(in super::super) fn loading<T>(_path: &std::path::Path, load: impl FnOnce() -> T) -> T {
        load()
    }
}
mod watchdog;

pub(super) use recovery::{in_host, loading};

use libloading::Library;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use watchdog::Slot;

/// What a plugin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
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
    Destroy,
}

impl Activity {
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
            Self::Destroy => "destroy",
        }
    }
}

/// How a plugin failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    activity: Activity,
    /// Of a crash; the watchdog's own if it did not come back. `None` if the plugin said so itself.
    signal: Option<i32>,
}

/// The library of a plugin. It stays loaded for good: it may have threads of its own, or have left addresses behind.
pub(super) struct PluginLibrary {
    /// What the plugin is called.
    pub(super) name: String,
    /// Minor version of the ABI that it was built for.
    pub(super) abi_minor: u32,
    code: Vec<Range<usize>>,
    failure: OnceLock<Failure>,
}

impl PluginLibrary {
    /// Takes a library with code around the address `within` it.
    pub(super) fn new(name: String, library: Library, within: usize) -> Self {
        recovery::prepare();
        watchdog::start();
        std::mem::forget(library);
        Self { name, abi_minor: 0, code: recovery::code_around(within), failure: OnceLock::new() }
    }

    /// What `run` gives, which reads what the plugin is. `None` if that crashes.
    pub(super) fn call_first<T>(&self, run: impl FnOnce() -> T) -> Option<T> {
        self.call(&watchdog::watch(), Activity::Load, run)
    }

    fn call<T>(&self, slot: &Slot, activity: Activity, run: impl FnOnce() -> T) -> Option<T> {
        if self.failure.get().is_some() {
            return None;
        }
        slot.enter(activity.limit_s());
        let outcome = recovery::call(slot, &self.code, run);
        slot.leave();
        outcome.map_err(|signal| self.failure.set(Failure { activity, signal: Some(signal) })).ok()
    }

    /// Takes note that the plugin said of itself that it failed.
    pub(super) fn failed_by_its_own_account(&self, activity: Activity) {
        let _ = self.failure.set(Failure { activity, signal: None });
    }

    /// Why the plugin is not called any more, in a sentence; `None` if it is.
    pub(super) fn failure(&self) -> Option<String> {
        let Failure { activity, signal } = self.failure.get()?;
        let (name, call, limit) = (&self.name, activity.name(), activity.limit_s());
        let how = match *signal {
            None => format!("failed in {call} (in Rust: by a panic)"),
            Some(libc::SIGSEGV) => format!("crashed in {call}: it used an address that is not its own (SIGSEGV)"),
            Some(libc::SIGBUS) => format!("crashed in {call}: it used an address that is not its own (SIGBUS)"),
            Some(libc::SIGFPE) => format!("crashed in {call}: it divided by zero (SIGFPE)"),
            Some(libc::SIGILL) => format!("crashed in {call}: it ran into an illegal instruction (SIGILL)"),
            Some(_) => format!("did not come back from {call} within {limit} s"),
        };
        let consequence = match activity {
            Activity::Load | Activity::Destroy => "",
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
}

impl Calls {
    pub(super) fn new(library: Arc<PluginLibrary>) -> Self {
        Self { library, slot: watchdog::watch() }
    }

    /// The library that is called.
    pub(super) fn library(&self) -> &Arc<PluginLibrary> {
        &self.library
    }

    /// What `run` gives, which calls the plugin. `None` if the plugin has failed, now or before.
    ///
    /// `run` may be left anywhere: it must hold nothing that has to be given back.
    #[inline]
    pub(super) fn call<T>(&self, activity: Activity, run: impl FnOnce() -> T) -> Option<T> {
        self.library.call(&self.slot, activity, run)
    }
}
