//! What samples of a profile count, by the names that pprof's readers know.

use wlprof_recording::{Clock, Recording};

/// A name and a unit.
pub(crate) type ValueType = (&'static str, &'static str);

const CPU_TYPES: [ValueType; 2] = [("samples", "count"), ("cpu", "nanoseconds")];
const WALL_TYPES: [ValueType; 2] = [("samples", "count"), ("wall", "nanoseconds")];
const MEMORY_TYPES: [ValueType; 4] =
    [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")];

/// What each sample of a pushed profile has a value of, in order.
pub(crate) fn pushed_types(recording: &Recording) -> &'static [ValueType] {
    match (recording.part, recording.meta.clock) {
        (Some(_), _) => &MEMORY_TYPES,
        (None, Clock::Cpu) => &CPU_TYPES,
        (None, Clock::Wall) => &WALL_TYPES,
    }
}

/// What lies between two samples.
pub(crate) fn period_type(recording: &Recording) -> ValueType {
    match (recording.part, recording.meta.clock) {
        (Some(_), _) => ("space", "bytes"),
        (None, Clock::Cpu) => CPU_TYPES[1],
        (None, Clock::Wall) => WALL_TYPES[1],
    }
}

/// How much of it; 0 if that is not known.
pub(crate) fn period(recording: &Recording) -> i64 {
    let allowed_hz = recording.meta.allowed_hz;
    if recording.part.is_some() {
        let rates = recording.stores.iter().filter_map(|store| Some(store.heap.as_ref()?.rate));
        rates.max().unwrap_or_default().try_into().unwrap_or(i64::MAX)
    } else if allowed_hz > 0.0 {
        (1e9 / allowed_hz) as i64
    } else {
        0
    }
}
