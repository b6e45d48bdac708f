//! Stacks of all threads that a guest has at one moment, besides the running one.

use crate::{FrameKey, Label, Truncation};

/// A thread of the language, such as a goroutine or a Python thread.
///
/// ```
/// use wlprof_plugin::{FrameKey, ThreadStack};
///
/// let waiting = ThreadStack {
///     name: "goroutine 17".to_owned(),
///     state: "chan receive".to_owned(),
///     is_running: false,
///     frames: vec![FrameKey::Own(0x1234)],
///     walked: Ok(()),
///     creator: None,
///     labels: Vec::new(),
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStack {
    /// The language's name for it, as in `goroutine 7`. Untrusted text.
    pub name: String,
    /// The thread's activity, as in `running` or `chan receive`. Untrusted text.
    pub state: String,
    /// `true` for the thread that the guest runs right now.
    pub is_running: bool,
    /// Frames of its stack, leaf first.
    pub frames: Vec<FrameKey>,
    /// `Ok` if the stack was walked to the root; otherwise the reason why not.
    pub walked: Result<(), Truncation>,
    /// The thread that started it, and the statement that did so.
    pub creator: Option<Creator>,
    /// Labels of the thread.
    pub labels: Vec<Label>,
}

/// The creator of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creator {
    /// Name of the thread that started it, which may be over.
    pub name: String,
    /// The statement that started the thread.
    pub frame: FrameKey,
}
