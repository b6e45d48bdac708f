//! Samples of threads that call back: of ticks that they were asked to answer, or of instants in the kernel, where no signal is sent. They call
//! back at checks, and where the guest calls the host or the host returns.

use super::super::super::os::clock::{at_least_a_step, own_cpu_ns};
use super::super::super::os::own_thread::SignalBlocked;
use super::super::super::os::thread_watch::SEES_THREADS;
use super::super::super::timing::{Answers, Due, add};
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
            && let Some(asked_ns) = answers.answer_at_check()
        {
            answers.note_delay(asked_ns);
            self.sample_ticked(slot, answers, asked_ns, Place::AtCheck);
        }
    }

    /// The guest calls the host: it is sampled, if it is due in it and no signal has done so. Called by the call hook.
    pub(super) fn leaves_guest(&self, slot: &ThreadSlot) {
        let Some(answers) = &slot.answers else {
            // The instant may be one in the host call before, or of a signal that is on its way and finds the thread in this one.
            if slot.has_passed_in_guest() {
                self.sample_unsignalled(slot, Place::AtCall);
            }
            return;
        };
        if self.activations.overflow() {
            // Nothing is known of the call. Where it is a check, it is answered there.
            return;
        }
        if let Some(asked_ns) = answers.cross(false)
            && self.is_in_host_call()
        {
            answers.note_delay(asked_ns);
            self.sample_ticked(slot, answers, asked_ns, Place::AtCheck);
        }
    }

    /// A host call returns, or calls wasm: it is sampled, if it is due in it and no signal has done so. Called by the call hook, while what the
    /// store says is of the host call.
    pub(super) fn leaves_host(&self, slot: &ThreadSlot) {
        let Some(answers) = &slot.answers else {
            if slot.has_passed_in_call() {
                self.sample_unsignalled(slot, Place::InHostCall);
            }
            return;
        };
        if let Some(asked_ns) = answers.cross(true)
            && self.is_in_host_call()
        {
            self.sample_ticked(slot, answers, asked_ns, Place::InHostCall);
        }
    }

    fn is_in_host_call(&self) -> bool {
        // SAFETY: the store's own call hook or check asks this, so the store is alive.
        unsafe { self.entry() }.is_some_and(|entry| entry.host_call() != 0)
    }

    /// Samples instants that have passed in the kernel: in the host call that this thread is in, or in the guest before it.
    #[cold]
    #[inline(never)]
    fn sample_unsignalled(&self, slot: &ThreadSlot, place: Place) {
        if !self.is_in_host_call() {
            // The host has not been called by wasm, or nothing is known of the call.
            return slot.pass_over();
        }
        let began_ns = own_cpu_ns();
        let _no_signal = SignalBlocked::new();
        // Others may read a guest that is in a host call.
        let _locked = self.lock();
        // Whoever ends sampling waits for the lock, and then gives the rings to the drain.
        if slot.is_stopped() {
            return;
        }
        if let Some(due) = slot.unsignalled(began_ns, matches!(place, Place::AtCall)) {
            // SAFETY: this thread runs the store and is in the call whose stack is walked, the handler cannot interrupt it, and the store
            // is locked.
            unsafe { self.sample(slot, place, began_ns, due) };
        }
        slot.charge(began_ns, self.has_walk_panicked());
        // SAFETY: this is the slot's thread, and the signal is blocked.
        unsafe { slot.goes_on(began_ns) };
    }

    #[cold]
    #[inline(never)]
    fn sample_ticked(&self, slot: &ThreadSlot, answers: &Answers, asked_ns: u64, place: Place) {
        let _no_signal = SignalBlocked::new();
        // Others may read a guest that is in a host call, which a check is as well.
        let _locked = self.lock();
        let cpu_ns = own_cpu_ns();
        let was_counted = slot.count_time(cpu_ns);
        // Whoever ends sampling waits for the lock, and then gives the rings to the drain.
        if slot.is_stopped() || !was_counted {
            return;
        }
        let (all_ns, since_ns) = slot.sampleable_ns(cpu_ns);
        // Where nobody sees whether a thread waits, ticks that came while it did are among them.
        let asked_ns = if SEES_THREADS { asked_ns } else { asked_ns.min(at_least_a_step(since_ns)) };
        let weight_ns = answers.conserved.give(asked_ns, all_ns);
        let period_ns = (1e9 / self.shared.options.rate_hz) as u64;
        // SAFETY: this thread runs the store and is in the call whose stack is walked, nothing interrupts it to push into its ring, and the
        // store is locked.
        unsafe { self.sample(slot, place, cpu_ns, Due { weight_ns, used_ns: weight_ns, period_ns }) };
        slot.charge(cpu_ns, self.has_walk_panicked());
        slot.leave_out(cpu_ns);
        answers.goes_on();
    }

    /// Takes a sample of this thread, which began at `cpu_ns`.
    ///
    /// # Safety
    /// As for [`collect`].
    unsafe fn sample(&self, slot: &ThreadSlot, place: Place, cpu_ns: u64, due: Due) {
        let Due { weight_ns, used_ns, period_ns } = due;
        // SAFETY: this is the store's thread, with the signal blocked and the store locked (see # Safety).
        if !unsafe { collect(&Snapshot { place, cpu_ns, weight_ns, used_ns, period_ns }, self, &slot.ring) } {
            add(&slot.ring_full, 1);
        }
    }
}
