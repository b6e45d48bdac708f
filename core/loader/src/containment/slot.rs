//! Where calls into a plugin say that they go on, and where they are told that they are to end: what those who make calls and the
//! watchdog have in common.

use super::{Activity, PluginLibrary, recovery};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Where calls that never overlap say when they begin and end. Some stores each: a walk is some thousand instructions.
pub(super) struct Slot {
    /// Whose calls they are.
    pub(super) callee: Callee,
    /// Odd during a call, another number for each.
    pub(super) sequence: AtomicU64,
    thread: AtomicI32,
    activity: AtomicUsize,
    /// The call that is to be left; 0 for none.
    condemned: AtomicU64,
    out_of_patience: AtomicBool,
}

pub(super) enum Callee {
    /// A library that is being loaded, by the name of its file.
    File(String),
    Library(Arc<PluginLibrary>),
}

impl Slot {
    pub(super) fn new(callee: Callee) -> Self {
        Self {
            callee,
            sequence: AtomicU64::new(0),
            thread: AtomicI32::new(0),
            activity: AtomicUsize::new(0),
            condemned: AtomicU64::new(0),
            out_of_patience: AtomicBool::new(false),
        }
    }

    pub(super) fn enter(&self, activity: Activity) {
        self.thread.store(recovery::thread_id(), Ordering::Relaxed);
        self.activity.store(activity as usize, Ordering::Relaxed);
        // Nobody else writes it.
        self.sequence.store(self.sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(super) fn leave(&self) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The thread whose calls they are, by the kernel's number for it.
    pub(super) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    pub(super) fn activity(&self) -> Activity {
        Activity::ALL[self.activity.load(Ordering::Relaxed)]
    }

    /// Has call `number` be left as soon as it can be.
    pub(super) fn condemn(&self, number: u64, is_out_of_patience: bool) {
        self.out_of_patience.store(is_out_of_patience, Ordering::Relaxed);
        self.condemned.store(number, Ordering::Release);
    }

    /// Whether the call that is going on is to be left.
    pub(super) fn is_condemned(&self) -> bool {
        self.condemned.load(Ordering::Acquire) == self.sequence.load(Ordering::Relaxed)
    }

    /// Whether it is to be left in code that is not the plugin's own, too.
    pub(super) fn is_out_of_patience(&self) -> bool {
        self.out_of_patience.load(Ordering::Relaxed)
    }
}
