//! Finds the host calls that lasted from one tick to another.

use super::FrameId;
use super::numbers::Numbers;
use serde::{Deserialize, Serialize};

/// A host call that at least two ticks saw.
///
/// # Accuracy
/// `start_ns` and `end_ns` are the first and the last tick inside the call, so the call itself is up to one sampling
/// interval longer at either end. Calls between two ticks are not listed; their time is in the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCallSpan {
    /// The host call's frame.
    pub frame: FrameId,
    /// Nanoseconds since sampling began.
    pub start_ns: u64,
    /// Nanoseconds since sampling began.
    pub end_ns: u64,
    /// Whether the thread was found waiting in it.
    pub blocked: bool,
}

/// Joins sightings of the same host call.
#[derive(Debug, Default)]
pub(super) struct HostCallTracker {
    current: Option<(u64, HostCallSpan)>,
}

impl HostCallTracker {
    /// Adds a sighting of host call number `call` at `time_ns` and returns the span that this ends, if any.
    pub(super) fn see(&mut self, call: u64, frame: FrameId, time_ns: u64, blocked: bool) -> Option<HostCallSpan> {
        match &mut self.current {
            Some((number, span)) if *number == call && span.frame == frame => {
                span.end_ns = time_ns;
                span.blocked |= blocked;
                None
            }
            _ => {
                let ended = self.finish();
                self.current = Some((call, HostCallSpan { frame, start_ns: time_ns, end_ns: time_ns, blocked }));
                ended
            }
        }
    }

    /// The frame of the current call.
    pub(super) fn frame(&self) -> Option<FrameId> {
        self.current.map(|(_, span)| span.frame)
    }

    /// Gives it its new number.
    pub(super) fn renumber(&mut self, frames: &Numbers) {
        self.current.iter_mut().for_each(|(_, span)| span.frame = frames.new_of(span.frame));
    }

    /// Ends the current span. A call seen once has no length and gives none.
    pub(super) fn finish(&mut self) -> Option<HostCallSpan> {
        self.current.take().map(|(_, span)| span).filter(|span| span.end_ns > span.start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sightings_of_one_call_join_and_single_sightings_vanish() {
        let mut tracker = HostCallTracker::default();
        assert_eq!(tracker.see(1, 9, 10, false), None);
        assert_eq!(tracker.see(1, 9, 20, true), None);
        assert_eq!(
            tracker.see(2, 9, 30, false),
            Some(HostCallSpan { frame: 9, start_ns: 10, end_ns: 20, blocked: true })
        );
        assert_eq!(tracker.see(3, 9, 40, false), None);
        assert_eq!(tracker.finish(), None);
    }
}
