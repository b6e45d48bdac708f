//! All that the guest's threads have on their stacks at one moment.

use wlprof_plugin::{Label, SourceFrame};
use wlprof_recording::{LanguageTruncation, Origin};

/// The stacks of a guest.
///
/// ```
/// fn print(dump: &wlprof_walk::Dump) {
///     for thread in &dump.threads {
///         println!("{} [{}]: {} frames", thread.name, thread.state, thread.frames.len());
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// Threads of the guest's language, or the guest itself if that has none.
    pub threads: Vec<DumpedThread>,
    /// The distinct frames on their stacks.
    pub frames: Vec<DumpedFrame>,
    /// Why they are not the language's, if they should be.
    pub note: Option<String>,
}

impl Dump {
    /// The wasm stack of one thread, leaf first.
    pub fn of_wasm(name: &str, state: &str, frames: impl IntoIterator<Item = Origin>) -> Self {
        let frames: Vec<DumpedFrame> = frames.into_iter().map(DumpedFrame::Unnamed).collect();
        let thread = DumpedThread {
            name: name.to_owned(),
            state: state.to_owned(),
            is_running: true,
            frames: (0..).take(frames.len()).collect(),
            truncation: None,
            creator: None,
            labels: Vec::new(),
        };
        Self { threads: vec![thread], frames, note: None }
    }

    /// Puts the stacks of two guests together.
    pub fn and(mut self, mut other: Self) -> Self {
        let first = self.frames.len() as DumpedFrameId;
        for thread in &mut other.threads {
            thread.frames.iter_mut().for_each(|frame| *frame += first);
            thread.creator.iter_mut().for_each(|(_, frame)| *frame += first);
        }
        self.threads.append(&mut other.threads);
        self.frames.append(&mut other.frames);
        self.note = self.note.or(other.note);
        self
    }
}

/// Index into [`Dump::frames`].
pub type DumpedFrameId = u32;

/// A thread of the guest's language, or the guest itself.
#[derive(Clone, Debug)]
pub struct DumpedThread {
    /// What the language calls it, as in `goroutine 7`. Untrusted text.
    pub name: String,
    /// What it does or waits for. Untrusted text.
    pub state: String,
    /// Whether it is what the guest runs at that moment.
    pub is_running: bool,
    /// Leaf first.
    pub frames: Vec<DumpedFrameId>,
    /// Why the stack is not whole, if it is not.
    pub truncation: Option<LanguageTruncation>,
    /// Who started it, and where.
    pub creator: Option<(String, DumpedFrameId)>,
    /// What the program says of it.
    pub labels: Vec<Label>,
}

/// A frame of a [`Dump`].
#[derive(Clone, Debug)]
pub enum DumpedFrame {
    /// Named by the language: innermost inlined call first.
    Source(Vec<SourceFrame>),
    /// Still to be named: a wasm frame, or what stands for frames.
    Unnamed(Origin),
}
