//! All that the guest's threads have on their stacks at one moment.

use crate::recording::{LanguageTruncation, Origin};
use wlprof_plugin::{Label, SourceFrame};

/// A thread of the guest's language, or the guest itself if its language has none.
#[derive(Clone, Debug)]
pub struct DumpedThread {
    /// What the language calls it, as in `goroutine 7`. Untrusted text.
    pub name: String,
    /// What it does or waits for. Untrusted text.
    pub state: String,
    /// Leaf first.
    pub frames: Vec<DumpedFrame>,
    /// Why the stack is not whole, if it is not.
    pub truncation: Option<LanguageTruncation>,
    /// Who started it, and where.
    pub creator: Option<(String, Vec<DumpedFrame>)>,
    /// What the program says of it.
    pub labels: Vec<Label>,
}

/// A frame of a [`DumpedThread`].
#[derive(Clone, Debug)]
pub enum DumpedFrame {
    /// Named by the language.
    Source(SourceFrame),
    /// A wasm frame, still to be named.
    Wasm(Origin),
}
