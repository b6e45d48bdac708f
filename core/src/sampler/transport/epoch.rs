//! The epoch sampler: the guest calls back at checks compiled into it, and is read there.
//!
//! # Accuracy
//! Checks stand at function entries and loop heads only, so time in straight-line code is charged to whatever check
//! comes next, often in another function: a function without loops may show 0 % of the 75 % it uses. Where the module's code
//! shows that the caller of a function that has not begun was the only one to run, the time is the caller's; samples that may be another's
//! are marked ([`State::Entering`](wlprof_recording::State), [`State::Returned`](wlprof_recording::State); `drain/checks.rs`). A tick in a
//! host call is answered when that is left, by the call hook, and one before it, in the guest, when it is made. Ticks come at random instants of
//! the guest's running: `ticker.rs`.
//!
//! # Overhead
//! The checks slow a guest before any sample is taken: hardly where loops are long, by a half and more where calls are many.
//!
//! # Security
//! As for the signal sampler: what is read of Wasmtime's internals is checked first.

use crate::sampler::os::thread_watch::SEES_THREADS;
use crate::sampler::running::{StoreState, ThreadSlot, Transport};
use crate::sampler::timing::{Answers, Delays};
use std::io;
use std::sync::Arc;
use wasmtime::{Store, UpdateDeadline};

/// Threads are not interrupted: their guests call back.
pub(in crate::sampler) struct EpochTransport(pub(in crate::sampler) Arc<Delays>);

impl Transport for EpochTransport {
    fn take_up(&self) -> io::Result<Arc<ThreadSlot>> {
        let slot = Arc::new(ThreadSlot::new(None, Some(Answers::new(self.0.clone())))?);
        slot.make_own();
        Ok(slot)
    }

    fn interrupt_ns(&self) -> u64 {
        0
    }
}

/// Has the guest of `store`, which is not sampled, never stop at its checks: a new store's deadline has passed.
pub(in crate::sampler) fn let_run<T: 'static>(store: &mut Store<T>) {
    // Added to the engine's epoch.
    store.set_epoch_deadline(u64::MAX / 2);
}

/// Has the guest of `store` call back at its next check after a tick, and read there.
pub(in crate::sampler) fn call_back<T: 'static>(store: &mut Store<T>, state: Arc<StoreState>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        state.calls_back();
        Ok(UpdateDeadline::Continue(1))
    });
}

/// What the user should know of samples at checks whose answers came so late.
pub(in crate::sampler) fn notes(delays: &Delays) -> Vec<String> {
    let mut note =
        "taken with the epoch sampler: time in straight-line code shows at the next loop head, function entry or host call".to_owned();
    if let Some((half_ns, most_ns)) = delays.percentiles() {
        let us = |ns: u64| ns as f64 / 1e3;
        note += &format!(
            "; half of those in the guest's code came within {:.1} µs, 99 % within {:.1} µs",
            us(half_ns),
            us(most_ns)
        );
    }
    let mut notes = vec![note];
    if !SEES_THREADS {
        let note = "whether the guest waits is not seen on this system: ticks while it does count as lost";
        notes.push(note.to_owned());
    }
    notes
}
