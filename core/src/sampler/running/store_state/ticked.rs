//! Samples of threads that are read where they call back: of ticks that came before they did. They call back at checks, and where the guest
//! calls the host or the host returns.

use super::super::super::os::clock::{at_least_a_step, own_cpu_ns};
use super::super::super::os::own_thread::SignalBlocked;
use super::super::super::timing::add;
use super::super::{Place, Snapshot, ThreadSlot, collect};
use super::StoreState;

impl StoreState {
    /// The guest has called back at a check: it is sampled, if any tick came in it. To Wasmtime that is a call of the host as well, so that
    /// the call hook has answered most: not where more wasm is open than there is room for, and not ticks since then.
    pub(in crate::sampler) fn calls_back(&self) {
        self.at_check.set(true);
        if let Some(slot) = self.slot()
            && let Some(answers) = &slot.answers
            // A store that was left alone for a while calls back at its first check, whenever the tick was.
            && let Some(most_ns) = answers.answer_at_check()
        {
            answers.note_delay(most_ns);
            self.sample_ticked(slot, most_ns, Place::AtCheck);
        }
    }

    /// The guest calls the host: it is sampled, if any tick came in it. To be called by the call hook.
    pub(super) fn leaves_guest(&self, slot: &ThreadSlot) {
        if self.activations.overflow() {
            // Nothing is known of the call. Where it is a check, it is answered there.
            return;
        }
        if let Some(answers) = &slot.answers
            && let Some(most_ns) = answers.cross()
            && self.is_in_host_call()
        {
            answers.note_delay(most_ns);
            self.sample_ticked(slot, most_ns, Place::AtCheck);
        }
    }

    /// A host call returns, or calls wasm: it is sampled, if any tick came in it. To be called by the call hook, while what the store says
    /// is of the host call.
    pub(super) fn leaves_host(&self, slot: &ThreadSlot) {
        if let Some(answers) = &slot.answers
            && let Some(most_ns) = answers.cross()
            && self.is_in_host_call()
        {
            self.sample_ticked(slot, most_ns, Place::InHostCall);
        }
    }

    fn is_in_host_call(&self) -> bool {
        // SAFETY: the hook runs within the store, which is there.
        unsafe { self.entry() }.is_some_and(|entry| entry.host_call() != 0)
    }

    #[cold]
    #[inline(never)]
    fn sample_ticked(&self, slot: &ThreadSlot, most_ns: u64, place: Place) {
        let _no_signal = SignalBlocked::new();
        // Others may read a guest that is in a host call, which a check is as well.
        let _locked = self.lock();
        let cpu_ns = own_cpu_ns();
        let was_counted = slot.count_time(cpu_ns);
        // Whoever ends sampling waits for the lock, and then gives the rings to the drain.
        if slot.is_stopped() || !was_counted {
            return;
        }
        let weight_ns = slot.since_check_ns(cpu_ns).min(at_least_a_step(most_ns));
        let period_ns = (1e9 / self.shared.options.rate_hz) as u64;
        let snapshot = Snapshot { place, cpu_ns, weight_ns, used_ns: weight_ns, period_ns };
        // SAFETY: this thread runs the store and is in the call whose stack is walked, nothing interrupts it to push into its ring, and the
        // store is locked.
        if !unsafe { collect(&snapshot, self, &slot.ring) } {
            add(&slot.ring_full, 1);
        }
        slot.charge(cpu_ns, self.has_walk_panicked());
        slot.leave_out(cpu_ns);
        if let Some(answers) = &slot.answers {
            answers.goes_on();
        }
    }
}
