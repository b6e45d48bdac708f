//! What answers are made of, and how many at a time.

use crate::live_guest::LiveGuest;
use crate::pushing::PushCounter;
use crate::window_profiles::{GuestView, WindowProfiles};
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, watch};
use wlprof_symbols::Symbols;

/// Answers that are made at a time: each takes a processor and the memory of a profile.
const MAKERS: usize = 2;
/// Windows that are open at a time. Some connections are left for what is answered at once.
const WINDOWS: usize = 48;

/// What answers are made of.
pub(super) struct State {
    pub(super) guest: Arc<dyn LiveGuest>,
    /// The guest's name and its arguments.
    pub(super) command: Vec<String>,
    pub(super) profiles: WindowProfiles,
    /// What is pushed meanwhile.
    pub(super) pushed: Option<PushCounter>,
    /// Made when stacks are first asked for, of as many modules as there were.
    pub(super) symbols: Mutex<Option<(usize, Symbols)>>,
    pub(super) windows: Arc<Semaphore>,
    /// For what reads the guest: one at a time.
    pub(super) readers: Arc<Semaphore>,
    /// For what only counts.
    pub(super) counters: Arc<Semaphore>,
    pub(super) makers: Arc<Semaphore>,
    /// What the guest allocates is profiled.
    pub(super) profiles_memory: bool,
    /// Turns true when the guest has ended.
    pub(super) is_over: watch::Receiver<bool>,
}

impl State {
    pub(super) fn new(
        guest: Arc<dyn LiveGuest>,
        command: Vec<String>,
        shown: GuestView,
        pushed: Option<PushCounter>,
        is_over: watch::Receiver<bool>,
    ) -> Self {
        Self {
            profiles_memory: shown.profiles_memory,
            profiles: WindowProfiles::new(shown),
            guest,
            command,
            pushed,
            symbols: Mutex::new(None),
            windows: Arc::new(Semaphore::new(WINDOWS)),
            readers: Arc::new(Semaphore::new(1)),
            counters: Arc::new(Semaphore::new(1)),
            makers: Arc::new(Semaphore::new(MAKERS)),
            is_over,
        }
    }
}
