//! Makes one record of a guest, its wasm stack and its language's: from its own thread where it stands still, or from another
//! while it waits.

use super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::reading::{Header, Kind, Reading, Reads, Ring};
use super::store_state::StoreState;
use std::cell::Cell;
use wlprof_recording::State;
use wlprof_walk::Registers;

/// Where a thread stands still.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) enum Place {
    /// It was interrupted in compiled code.
    InWasm(Registers),
    /// It was interrupted in host code.
    InHost(Registers),
    /// Its wasm has called back, at a check compiled into it, or calls the host, which is like a check: what may have run before it is known.
    AtCheck,
    /// Its wasm calls the host, and was sampled before that.
    AtCall,
    /// A host call of its wasm is about to return, or to call wasm.
    InHostCall,
}

/// A thread that stands still, and what the sample of it is to say.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct Snapshot {
    pub(in crate::sampler) place: Place,
    /// The thread's CPU time when it was stopped.
    pub(in crate::sampler) cpu_ns: u64,
    /// The time that the sample stands for.
    pub(in crate::sampler) weight_ns: u64,
    /// Of that, CPU time.
    pub(in crate::sampler) used_ns: u64,
    /// Time between samples now.
    pub(in crate::sampler) period_ns: u64,
}

/// What is known of a thread that waits, seen from another thread.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct Sighting {
    /// The waiting thread's CPU time.
    pub(in crate::sampler) cpu_ns: u64,
    /// The time that the sample stands for; 0 if this is only a sighting.
    pub(in crate::sampler) weight_ns: u64,
    /// Time between samples now.
    pub(in crate::sampler) period_ns: u64,
}

/// Reads a thread that stands still and runs `store`, and pushes the sample into the thread's `ring`. `false` if the ring is full.
/// Async-signal-safe.
///
/// # Safety
/// * Call this on the thread that runs `store`: in the handler that interrupted it, at a check or in the call hook.
/// * Registers in `snapshot` must be those that the handler found.
/// * Nothing else may push into `ring` meanwhile.
/// * Nobody else may use the store's walker meanwhile. Inside a host call others may: this does not touch it there.
pub(in crate::sampler) unsafe fn collect(snapshot: &Snapshot, store: &StoreState, ring: &Ring) -> bool {
    let Snapshot { place, cpu_ns, weight_ns, used_ns, period_ns } = *snapshot;
    let in_guest = matches!(place, Place::InWasm(_) | Place::AtCheck | Place::AtCall);
    // SAFETY: this is the thread that runs the store, so the store is alive (see # Safety).
    let entry = unsafe { store.entry() };
    let header = Header {
        time_ns: monotonic_ns(),
        cpu_ns,
        weight_ns,
        used_ns,
        period_ns,
        store: store.number,
        entry: entry.map_or(0, |entry| entry.number()),
        host_call: entry.filter(|_| !in_guest).map_or(0, |entry| entry.host_call()),
        pause_ns: 0,
        // SAFETY: this is the thread that runs the store (see # Safety), and `entry` is open on it.
        memory_bytes: unsafe { store.memory_bytes(entry.as_ref()) },
        state: if in_guest { State::Guest } else { State::Host },
        kind: Kind::Sample,
    };
    let kind = Cell::new(Kind::Sample);
    let stack = store.stack(Reads::InPlace);
    // SAFETY: nothing else pushes into `ring`. This thread runs the store and stands still, with these registers if it was interrupted
    // (see # Safety).
    unsafe {
        ring.push(|words| {
            header.write(
                words,
                |frames| match place {
                    Place::InWasm(registers) | Place::InHost(registers) => stack.walk(registers, frames),
                    Place::AtCheck => {
                        let walked = stack.walk_blocked(frames);
                        frames.leaf_is_at_check();
                        walked
                    }
                    Place::AtCall => {
                        let walked = stack.walk_blocked(frames);
                        frames.leaf_calls_later();
                        walked
                    }
                    Place::InHostCall => stack.walk_blocked(frames),
                },
                |frames, words| {
                    if in_guest || matches!(place, Place::InHostCall) {
                        return store.collect_language(frames, Reading::Standing, words);
                    }
                    if let Some(reading) = store.between_wasm_and_host_call(frames) {
                        return store.collect_language(frames, reading, words);
                    }
                    kind.set(store.kind_of_host_sample(entry.as_ref()));
                    0
                },
                |header| {
                    header.kind = kind.get();
                    header.pause_ns = own_cpu_ns().saturating_sub(cpu_ns);
                },
            )
        })
    }
}

/// Reads, from another thread, where the guest of `store` waits. Writes a record into `words` and gives its length; `None` if the
/// guest does not wait any more.
///
/// The caller has seen the thread blocked. If it wakes during the walk the frames mean nothing, so `still_blocked` is asked
/// afterwards.
pub(in crate::sampler) fn collect_blocked(
    sighting: Sighting,
    store: &StoreState,
    words: &mut [u64],
    still_blocked: impl FnOnce() -> bool,
) -> Option<usize> {
    // If another thread holds the lock, the guest is awake or stuck in a plugin: nothing to wait for.
    let _locked = store.try_lock()?;
    if !store.is_alive() {
        return None;
    }
    // SAFETY: the store is locked and alive (checked): `StoreState::close`, which comes before it goes, waits for the lock.
    let entry = unsafe { store.waiting_entry() };
    let header = Header {
        time_ns: monotonic_ns(),
        cpu_ns: sighting.cpu_ns,
        weight_ns: sighting.weight_ns,
        used_ns: 0,
        period_ns: sighting.period_ns,
        store: store.number,
        entry: entry.map_or(0, |entry| entry.number()),
        host_call: entry.map_or(0, |entry| entry.host_call()),
        pause_ns: 0,
        memory_bytes: store.memory_bytes_beside(),
        state: State::Blocked,
        kind: Kind::Sighting,
    };
    let stack = store.stack(Reads::ThroughKernel);
    let mut is_there = false;
    let length = header.write(
        words,
        // SAFETY: the store is locked and alive (checked), and its stacks are read through the kernel.
        |frames| unsafe { stack.walk_blocked(frames) },
        |_, _| 0,
        |header| {
            is_there = still_blocked();
            if is_there && sighting.weight_ns > 0 {
                header.kind = store.kind_of_host_sample(entry.as_ref());
            }
        },
    );
    is_there.then_some(length)
}
