//! What of a run that goes on is kept for who may still look at it: from when on, and what had been counted by then.

use super::running::SlotTotals;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wlprof_recording::Truncation;

/// Marks that are set in the time that is kept: windows into the past begin at one.
const MARKS: u32 = 60;
/// Marks are not set more often than this.
const MIN_BETWEEN: Duration = Duration::from_millis(250);

/// What had been counted at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    /// Since the first guest began, in nanoseconds.
    pub(super) time_ns: u64,
    pub(super) totals: SlotTotals,
    /// Incomplete stacks.
    pub(super) truncated: BTreeMap<Truncation, u64>,
}

/// Windows that are open, and the past that is kept for others.
#[derive(Debug, Default)]
pub(super) struct OpenWindows {
    /// When the windows that are open began, and the block of samples that each begins with if it follows another.
    open: Vec<(u64, Option<u64>)>,
    /// How much of the past is kept; none unless told so.
    past_ns: Option<u64>,
    /// In order of time.
    marks: VecDeque<Mark>,
}

impl OpenWindows {
    /// Keeps so much of the past.
    pub(super) fn past(past: Option<Duration>) -> Self {
        let past_ns = past.map(|past| u64::try_from(past.as_nanos()).unwrap_or(u64::MAX));
        // Before the first guest begins nothing has been counted.
        Self { past_ns, marks: past_ns.map(|_| Mark::default()).into_iter().collect(), ..Self::default() }
    }

    /// A window that begins at `from_ns` is open.
    pub(super) fn open(&mut self, from_ns: u64, follows: Option<u64>) {
        self.open.push((from_ns, follows));
    }

    /// One that began at `from_ns` is not any more.
    pub(super) fn close(&mut self, from_ns: u64, follows: Option<u64>) {
        if let Some(index) = self.open.iter().position(|open| *open == (from_ns, follows)) {
            self.open.swap_remove(index);
        }
    }

    /// From when on samples are kept, at `now_ns`; `None` if none are.
    pub(super) fn first_ns(&self, now_ns: u64) -> Option<u64> {
        let past = self.past_ns.map(|past_ns| now_ns.saturating_sub(past_ns));
        // The oldest mark at or before it is where a window of all that is kept begins.
        let past = past.map(|past| self.since(past).map_or(past, |mark| mark.time_ns.min(past)));
        self.open.iter().map(|(from_ns, _)| *from_ns).chain(past).min()
    }

    /// From which block of samples on late ones are kept.
    pub(super) fn late_from(&self) -> Option<u64> {
        self.open.iter().filter_map(|(_, follows)| *follows).min()
    }

    /// Whether a mark is to be set at `now_ns`.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        let Some(past_ns) = self.past_ns else { return false };
        let between_ns = (past_ns / u64::from(MARKS)).max(MIN_BETWEEN.as_nanos() as u64);
        self.marks.back().is_none_or(|last| last.time_ns + between_ns <= now_ns)
    }

    /// Sets one, and lets go of those that nobody can ask for any more.
    pub(super) fn mark(&mut self, mark: Mark) {
        let oldest_ns = mark.time_ns.saturating_sub(self.past_ns.unwrap_or(0));
        self.marks.push_back(mark);
        while self.marks.get(1).is_some_and(|second| second.time_ns <= oldest_ns) {
            self.marks.pop_front();
        }
    }

    /// The last mark by `from_ns`, or the first there is.
    pub(super) fn since(&self, from_ns: u64) -> Option<&Mark> {
        let after = self.marks.partition_point(|mark| mark.time_ns <= from_ns);
        self.marks.get(after.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: u64) -> Mark {
        Mark { time_ns, ..Mark::default() }
    }

    #[test]
    fn a_window_into_the_past_begins_at_the_last_mark_before() {
        const S: u64 = 1_000_000_000;
        let mut kept = OpenWindows::past(Some(Duration::from_secs(60)));
        assert!(kept.first_ns(5) == Some(0) && !kept.is_due(5));
        for second in 1..100 {
            assert!(kept.is_due(second * S), "{second}");
            kept.mark(at(second * S));
            assert!(!kept.is_due(second * S + S / 2), "{second}");
        }
        assert_eq!(kept.since(90 * S + 1).map(|mark| mark.time_ns), Some(90 * S));
        assert_eq!(kept.since(0).map(|mark| mark.time_ns), Some(39 * S), "what is older is not kept");
        assert!(kept.marks.len() <= 62, "{}", kept.marks.len());
        assert_eq!(kept.first_ns(99 * S + 5), Some(39 * S), "whole from a mark on");
    }

    #[test]
    fn what_open_windows_want_is_kept_whatever_its_age() {
        let mut kept = OpenWindows::past(None);
        assert_eq!((kept.first_ns(50), kept.is_due(50)), (None, false));
        kept.open(7, Some(5));
        kept.open(3, None);
        assert_eq!(kept.first_ns(50), Some(3));
        kept.close(3, None);
        assert_eq!(kept.first_ns(50), Some(7));
        assert_eq!(kept.late_from(), Some(5));
        kept.close(7, Some(5));
        assert_eq!((kept.first_ns(50), kept.late_from()), (None, None));
    }
}
