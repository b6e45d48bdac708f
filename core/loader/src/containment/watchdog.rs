//! Sees which calls into plugins take too long, from a thread of its own.

use super::recovery;
use super::slot::{Callee, Slot};
use super::{AbortReason, Activity, Failure, PluginLibrary};
use std::sync::atomic::Ordering;
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
struct CallInProgress {
    slot: Arc<Slot>,
    sequence: u64,
    rounds: u64,
}

fn run() {
    let mut seen: Vec<CallInProgress> = Vec::new();
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
            CallInProgress { rounds: same.map_or(0, |seen| seen.rounds + 1), slot, sequence }
        }));
        for CallInProgress { slot, sequence, rounds } in &seen {
            if let Some(over) = rounds.checked_sub(slot.activity().limit_s() * ROUNDS_A_SECOND) {
                slot.condemn(*sequence, over > PATIENCE);
                recovery::interrupt(slot.thread());
                if over > PATIENCE {
                    insist(slot, *sequence);
                }
            }
        }
    }
}

/// Ends the process if call `number`, which its thread does not leave when it is asked to, cannot be left: constructors run inside the
/// system's loader, and a thread that blocks all signals cannot be asked.
fn insist(slot: &Slot, number: u64) {
    let is_stuck = slot.activity() == Activity::Open || recovery::is_out_of_reach(slot.thread());
    if is_stuck && slot.sequence.load(Ordering::Acquire) == number {
        give_up(slot);
    }
}

/// Ends the process, whose thread is stuck in a plugin: with a profile, if it is the guest's thread.
fn give_up(slot: &Slot) {
    let activity = slot.activity();
    let sentence = match &slot.callee {
        Callee::File(name) => {
            format!("plugin {name} did not come back from {} within {} s", activity.name(), activity.limit_s())
        }
        Callee::Library(library) => {
            let failure = Failure { activity, left: Some(AbortReason::TooLong), is_stuck: true };
            if library.failure.set(failure).is_err() {
                // As the end of a process takes time, too.
                return;
            }
            library.failure().unwrap_or_default()
        }
    };
    let is_naming = matches!(activity, Activity::Symbolize | Activity::Labels);
    recovery::end_stuck_process(slot.thread(), is_naming, &sentence);
}
