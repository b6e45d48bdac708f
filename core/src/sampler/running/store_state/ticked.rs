//! Samples where the guest calls the host or the host returns, of threads that are read where they call back: of ticks that came before
//! it did.

use super::super::super::os::clock::{at_least_a_step, monotonic_ns, own_cpu_ns};
use super::super::super::os::own_thread::SignalBlocked;
use super::super::super::reading::{Entry, Header, Kind, Reading, Reads};
use super::super::super::timing::add;
use super::super::slot::ThreadSlot;
use super::StoreState;
use crate::recording::State;

impl StoreState {
    /// The thread goes from the guest to the host or back: what it leaves is sampled, if any tick came in it. `state` says what that is.
    /// To Wasmtime the callback of a check is a call of the host as well, so that most samples at checks are taken here.
    /// To be called by the call hook, while what the store says is of the host call.
    pub(super) fn crosses(&self, slot: &ThreadSlot, state: State) {
        if state.is_guest() && self.activations.overflow() {
            // Nothing is known of the call. Where it is a check, it is answered there.
            return;
        }
        if let Some(answers) = &slot.answers
            && let Some(most_ns) = answers.cross()
            // SAFETY: the hook runs within the store, which is there.
            && let Some(entry) = unsafe { self.entry() }.filter(|entry| entry.host_call() != 0)
        {
            if state.is_guest() {
                answers.note_delay(most_ns);
            }
            self.sample_at_host_call(&entry, slot, most_ns, state);
            answers.goes_on();
        }
    }

    #[cold]
    #[inline(never)]
    fn sample_at_host_call(&self, entry: &Entry<'_>, slot: &ThreadSlot, most_ns: u64, state: State) {
        let _no_signal = SignalBlocked::new();
        let _locked = self.lock();
        let cpu_ns = own_cpu_ns();
        let was_counted = slot.count_time(cpu_ns);
        // Whoever ends sampling waits for the lock, and then gives the rings to the drain.
        if slot.is_stopped() || !was_counted {
            return;
        }
        let weight_ns = slot.since_check_ns(cpu_ns).min(at_least_a_step(most_ns));
        let header = Header {
            time_ns: monotonic_ns(),
            cpu_ns,
            weight_ns,
            used_ns: weight_ns,
            period_ns: (1e9 / self.shared.options.rate_hz) as u64,
            store: self.number,
            entry: entry.number(),
            host_call: if state.is_guest() { 0 } else { entry.host_call() },
            pause_ns: 0,
            // SAFETY: this is the store's thread.
            memory_bytes: unsafe { self.memory_bytes(Some(entry)) },
            state,
            kind: Kind::Sample,
        };
        if state.is_guest() {
            // Before the walk, so that it counts as part of the pause.
            // SAFETY: this is the guest's thread, the guest stands still in wasm, and the store is locked: nobody else has the walker.
            unsafe { self.name_frames() };
        }
        let stack = self.stack(Reads::InPlace);
        // SAFETY: this thread is in the host call whose stack is walked, nothing interrupts it to push into its ring, and the store is
        // locked.
        let pushed = unsafe {
            slot.ring.push(|words| {
                header.write(
                    words,
                    |frames| {
                        let walked = stack.walk_blocked(frames);
                        if state.is_guest() {
                            // A call is like a check: what may have run before it is known.
                            frames.leaf_is_at_check();
                        }
                        walked
                    },
                    |frames, words| self.collect_language(frames, Reading::Standing, words),
                    |header| header.pause_ns = own_cpu_ns().saturating_sub(cpu_ns),
                )
            })
        };
        if !pushed {
            add(&slot.ring_full, 1);
        }
        slot.charge(cpu_ns, self.has_walk_panicked());
        slot.leave_out(cpu_ns);
    }
}
