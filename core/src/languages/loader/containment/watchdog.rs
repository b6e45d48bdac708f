//! Sees which calls into plugins take too long, from a thread of its own.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How often it looks. Calls are measured in such rounds, not by a clock: one goes on while the process is stopped, by
/// Ctrl-Z or a debugger, and the plugin does nothing meanwhile.
const INTERVAL: Duration = Duration::from_millis(100);
const ROUNDS_A_SECOND: u64 = 10;
/// In how many rounds a call is tried to be left in the plugin's own code before it is left anywhere outside wlprof's.
const PATIENCE: u64 = 2 * ROUNDS_A_SECOND;

/// Where calls that never overlap say when they begin and end. Two stores each: a walk is some thousand instructions.
#[derive(Default)]
pub(super) struct Slot {
    /// Odd during a call, another number for each.
    sequence: AtomicU64,
    thread: AtomicI32,
    limit_s: AtomicU64,
    /// The call that is to be left; 0 for none.
    condemned: AtomicU64,
    out_of_patience: AtomicBool,
}

impl Slot {
    pub(super) fn enter(&self, limit_s: u64) {
        self.thread.store(thread_id(), Ordering::Relaxed);
        self.limit_s.store(limit_s, Ordering::Relaxed);
        // Nobody else writes it.
        self.sequence.store(self.sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Makes its thread look whether it is to leave the call.
    pub(super) fn interrupt(&self) {
        super::recovery::interrupt(self.thread.load(Ordering::Relaxed));
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

/// A slot that is watched for as long as it is there.
pub(super) fn watch() -> Arc<Slot> {
    let slot = Arc::new(Slot::default());
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&slot));
    slot
}

/// Starts the thread, once in the life of the process.
pub(super) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // Without it plugins are not watched, which those that work need not be.
        let _ = thread::Builder::new().name("wlprof-plugins".to_owned()).spawn(run);
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
            if let Some(over) = rounds.checked_sub(slot.limit_s.load(Ordering::Relaxed) * ROUNDS_A_SECOND) {
                slot.out_of_patience.store(over > PATIENCE, Ordering::Relaxed);
                slot.condemned.store(*sequence, Ordering::Release);
                slot.interrupt();
            }
        }
    }
}
