//! The stacks that a guest has at one moment, beside the running one.

use crate::{FrameKey, Label, Truncation};

/// A thread of the language's own: a goroutine, a Python thread.
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
    /// What the language calls it, as in `goroutine 7`. Untrusted text.
    pub name: String,
    /// What it does or waits for, as in `running` or `chan receive`. Untrusted text.
    pub state: String,
    /// Whether it is what the guest runs right now.
    pub is_running: bool,
    /// Its frames, leaf first.
    pub frames: Vec<FrameKey>,
    /// Whether its stack was walked to the root, or why not.
    pub walked: Result<(), Truncation>,
    /// Who started it, and where that stands.
    pub creator: Option<Creator>,
    /// What else it belongs to.
    pub labels: Vec<Label>,
}

/// Who started a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creator {
    /// The starting thread's name. It may be over.
    pub name: String,
    /// The statement that started the thread.
    pub frame: FrameKey,
}
