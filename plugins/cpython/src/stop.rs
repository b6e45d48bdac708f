//! A reason to end a walk, so that `?` can be used on reads.

use wlprof_plugin::{OutOfBounds, WalkEnd};

/// Why a walk cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop(pub(crate) WalkEnd);

/// What was read is not what CPython keeps there.
pub(crate) const INCONSISTENT: Stop = Stop(WalkEnd::Inconsistent);

impl From<OutOfBounds> for Stop {
    fn from(_: OutOfBounds) -> Self {
        Self(WalkEnd::BadPointer)
    }
}
