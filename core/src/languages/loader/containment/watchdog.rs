//! Sees which calls into plugins take too long, from a thread of its own.

use super::recovery::{self, Condemned, Forced};
use super::{Activity, Failure, Left, PluginLibrary};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How often it looks. Calls are measured in such rounds, not by a clock: one goes on while the process is stopped, by
/// Ctrl-Z or a debugger, and the plugin does nothing meanwhile.
const INTERVAL: Duration = Duration::from_millis(100);
const ROUNDS_A_SECOND: u64 = 10;
/// In how many rounds a call is tried to be left in the plugin's own code before it is left anywhere outside wlprof's.
const PATIENCE: u64 = 2 * ROUNDS_A_SECOND;

/// Where calls that never overlap say when they begin and end. Some stores each: a walk is some thousand instructions.
pub(super) struct Slot {
    /// Whose calls they are.
    callee: Callee,
    /// Odd during a call, another number for each.
    sequence: AtomicU64,
    thread: AtomicI32,
    activity: AtomicUsize,
    /// Where `recovery` keeps what it knows of the call.
    call: AtomicUsize,
    /// The call that is to be left; 0 for none.
    condemned: AtomicU64,
    out_of_patience: AtomicBool,
}

enum Callee {
    /// A library that is being loaded, by the name of its file.
    File(String),
    Library(Arc<PluginLibrary>),
}

impl Slot {
    fn new(callee: Callee) -> Self {
        Self {
            callee,
            sequence: AtomicU64::new(0),
            thread: AtomicI32::new(0),
            activity: AtomicUsize::new(0),
            call: AtomicUsize::new(0),
            condemned: AtomicU64::new(0),
            out_of_patience: AtomicBool::new(false),
        }
    }

    pub(super) fn enter(&self, activity: Activity) {
        self.thread.store(thread_id(), Ordering::Relaxed);
        self.activity.store(activity as usize, Ordering::Relaxed);
        // Nobody else writes it.
        self.sequence.store(self.sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The call has begun that `call` is the address of.
    pub(super) fn begins(&self, call: usize) {
        self.call.store(call, Ordering::Release);
    }

    /// Makes its thread look whether it is to leave the call.
    pub(super) fn interrupt(&self) {
        recovery::interrupt(self.thread.load(Ordering::Relaxed));
    }

    pub(super) fn leave(&self) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Whether the call that is going on is to be left.
    pub(super) fn is_condemned(&self) -> bool {
        self.condemned.load(Ordering::Acquire) == self.sequence.load(Ordering::Relaxed)
    }

    /// Whether it is to be left in code that is not the plugin's own, too.
    pub(super) fn is_out_of_patience(&self) -> bool {
        self.out_of_patience.load(Ordering::Relaxed)
    }

    fn activity(&self) -> Activity {
        Activity::ALL[self.activity.load(Ordering::Relaxed)]
    }

    /// Leaves a call that the thread itself does not leave when it is asked to, or ends the process.
    fn insist(&self, number: u64) {
        let thread = self.thread.load(Ordering::Relaxed);
        if self.activity() == Activity::Open {
            // Constructors run inside the system's loader.
            self.give_up();
        } else if recovery::is_out_of_reach(thread) {
            let call = self.call.load(Ordering::Acquire);
            let condemned = Condemned { thread, call, sequence: &self.sequence, number };
            if recovery::leave_by_force(&condemned) == Forced::Forbidden {
                self.give_up();
            }
        }
    }

    /// Ends the process, whose thread is stuck in a plugin: with a profile, if it is the guest's thread.
    fn give_up(&self) {
        let activity = self.activity();
        let sentence = match &self.callee {
            Callee::File(name) => {
                format!("plugin {name} did not come back from {} within {} s", activity.name(), activity.limit_s())
            }
            Callee::Library(library) => {
                let failure = Failure { activity, left: Some(Left::TooLong), is_stuck: true };
                if library.failure.set(failure).is_err() {
                    // As the end of a process takes time, too.
                    return;
                }
                library.failure().unwrap_or_default()
            }
        };
        recovery::end_stuck_process(self.thread.load(Ordering::Relaxed), &sentence);
    }
}

/// The calling thread's number, as the kernel has it. Asked for once: it is a system call.
fn thread_id() -> i32 {
    thread_local! { static ID: std::cell::Cell<i32> = const { std::cell::Cell::new(0) } }
    if ID.get() == 0 {
        // SAFETY: asks for a number.
        ID.set(unsafe { libc::syscall(libc::SYS_gettid) } as i32);
    }
    ID.get()
}

static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

/// A slot for loading a library, which is watched for as long as it is there.
pub(super) fn watch_loading(file_name: &str) -> Arc<Slot> {
    watch(Callee::File(file_name.to_owned()))
}

/// A slot for calls of a library, likewise.
pub(super) fn watch_calls(library: &Arc<PluginLibrary>) -> Arc<Slot> {
    watch(Callee::Library(library.clone()))
}

fn watch(callee: Callee) -> Arc<Slot> {
    let slot = Arc::new(Slot::new(callee));
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&slot));
    slot
}

/// Starts the thread, once in the life of the process.
pub(super) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let (begun, has_begun) = channel();
        let watch = move || {
            let _ = begun.send(());
            run();
        };
        // Without it plugins are not watched, which those that work need not be.
        if thread::Builder::new().name("wlprof-plugins".to_owned()).spawn(watch).is_ok() {
            // A thread that begins may need the lock that the system holds while it loads a library, with its constructors.
            let _ = has_begun.recv();
        }
    });
}

/// A call that was going on when the watchdog last looked.
struct Seen {
    slot: Arc<Slot>,
    sequence: u64,
    rounds: u64,
}

fn run() {
    let mut seen: Vec<Seen> = Vec::new();
    loop {
        thread::sleep(INTERVAL);
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.strong_count() > 0);
        let going_on: Vec<(Arc<Slot>, u64)> = slots
            .iter()
            .filter_map(Weak::upgrade)
            .map(|slot| (slot.sequence.load(Ordering::Acquire), slot))
            .filter_map(|(sequence, slot)| (sequence % 2 == 1).then_some((slot, sequence)))
            .collect();
        drop(slots);
        let before = std::mem::take(&mut seen);
        seen.extend(going_on.into_iter().map(|(slot, sequence)| {
            let same = before.iter().find(|seen| Arc::ptr_eq(&seen.slot, &slot) && seen.sequence == sequence);
            Seen { rounds: same.map_or(0, |seen| seen.rounds + 1), slot, sequence }
        }));
        for Seen { slot, sequence, rounds } in &seen {
            if let Some(over) = rounds.checked_sub(slot.activity().limit_s() * ROUNDS_A_SECOND) {
                slot.out_of_patience.store(over > PATIENCE, Ordering::Relaxed);
                slot.condemned.store(*sequence, Ordering::Release);
                slot.interrupt();
                if over > PATIENCE {
                    slot.insist(*sequence);
                }
            }
        }
    }
}
