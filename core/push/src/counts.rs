//! What has become of windows.

use std::collections::BTreeMap;
use std::fmt;

/// Why a window was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The queue was full: the oldest went.
    QueueFull,
    /// It was older than servers take.
    TooOld,
    /// The server refused it for good.
    Refused,
    /// The server takes nothing at that address, or from that sender. In a queue on disk it is left for the next process.
    NotAllowed,
    /// It was more than the server takes, and could not be split any more.
    TooLarge,
    /// The program ended before the server took it.
    Ended,
    /// What the queue on disk had of it could not be read.
    Unreadable,
}

impl DropReason {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::QueueFull, Self::TooOld, Self::Refused, Self::NotAllowed, Self::TooLarge, Self::Ended, Self::Unreadable];

    /// Returns its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::TooOld => "too_old",
            Self::Refused => "refused",
            Self::NotAllowed => "not_allowed",
            Self::TooLarge => "too_large",
            Self::Ended => "ended",
            Self::Unreadable => "unreadable",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "the queue was full",
            Self::TooOld => "older than servers take",
            Self::Refused => "refused by the server",
            Self::NotAllowed => "the server takes none at that address or with these credentials",
            Self::TooLarge => "larger than the server takes",
            Self::Ended => "not delivered before the end",
            Self::Unreadable => "unreadable in the queue",
        })
    }
}

/// What has become of windows so far.
///
/// ```
/// let counts = wlprof_push::PushCounts::default();
/// assert_eq!((counts.delivered, counts.dropped_in_all()), (0, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushCounts {
    /// Windows that a server has taken.
    pub delivered: u64,
    /// Windows that had nothing in them, and were not sent.
    pub empty: u64,
    /// Windows that no server has taken, by the reason.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Requests that had no answer, or one that asked for another attempt.
    pub failed_requests: u64,
    /// Bytes of the bodies of all requests.
    pub sent_bytes: u64,
    /// Windows that wait now.
    pub queued: u64,
    /// Bytes that they take.
    pub queued_bytes: u64,
}

impl PushCounts {
    /// Returns how many windows no server has taken.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.values().sum()
    }
}
