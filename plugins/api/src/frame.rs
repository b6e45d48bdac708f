//! Input and output of a walk: wasm frames, frame keys, and the reasons why a walk ends before the root.

pub use crate::abi::WasmFrame;

use crate::OutOfBounds;
use std::{error::Error, fmt};

impl WasmFrame {
    /// Makes a frame in the module that was attached.
    pub const fn attached(function: u32, code_offset: u32) -> Self {
        Self { module: 0, function, code_offset }
    }

    /// Returns whether the frame is in the module that was attached.
    ///
    /// Function indices and code offsets of other frames refer to other code.
    pub const fn is_attached(self) -> bool {
        self.module == 0
    }
}

/// Identifies a frame until it is symbolized.
///
/// ```
/// use wlprof_plugin::{FrameKey, SinkEntry, WasmFrame};
///
/// let wasm = [WasmFrame::attached(7, 40)];
/// assert_eq!(SinkEntry::Wasm(0).key(&wasm), Some(FrameKey::Wasm(wasm[0])));
/// assert_eq!(SinkEntry::Own(3).key(&wasm), Some(FrameKey::Own(3)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKey {
    /// A wasm frame, as the sampler found it.
    Wasm(WasmFrame),
    /// A frame of the plugin's own, known by a number that the plugin chose. Equal numbers are equal frames.
    Own(u64),
    /// Frames that the plugin left out. They need no name.
    Elided,
}

/// Receives one stack, leaf first.
///
/// A sink is bounded: after [`FrameSink::CAPACITY`] frames it refuses every further push. So a walker on a cyclic or endless stack ends.
/// What does not fit should be missing at the root, since the leaf is where the time went.
///
/// A walker can do better if it knows the depth, or keeps the last frames that it reads. It leaves out the middle, marks that with
/// [`FrameSink::push_elided`], and goes on to the root.
///
/// ```
/// use wlprof_plugin::{FrameSink, Truncation};
///
/// fn walk(out: &mut FrameSink) -> Result<(), Truncation> {
///     out.push(1)?; // a function of the script
///     out.push_wasm(0) // the native function that runs it
/// }
/// let mut sink = FrameSink::new();
/// walk(&mut sink)?;
/// assert_eq!(sink.len(), 2);
/// # Ok::<(), Truncation>(())
/// ```
#[derive(Debug, Default)]
pub struct FrameSink {
    frames: Vec<SinkEntry>,
    labels: [u64; Self::LABEL_CAPACITY],
    label_count: usize,
    must_not_allocate: bool,
}

/// One entry of a [`FrameSink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkEntry {
    /// A frame of the plugin's own, by its key.
    Own(u64),
    /// The wasm frame at this index of the slice given to [`Walker::walk`](crate::Walker::walk). If the walker is wrong, the index may be
    /// past the end.
    Wasm(usize),
    /// A place where the walker left frames out.
    Elided,
}

impl SinkEntry {
    /// Returns the key of this frame of a stack that goes with the wasm stack `wasm`. `None` if the index is past its end.
    pub fn key(self, wasm: &[WasmFrame]) -> Option<FrameKey> {
        match self {
            Self::Own(key) => Some(FrameKey::Own(key)),
            Self::Wasm(index) => wasm.get(index).map(|frame| FrameKey::Wasm(*frame)),
            Self::Elided => Some(FrameKey::Elided),
        }
    }
}

impl FrameSink {
    /// The largest number of frames in one stack.
    pub const CAPACITY: usize = 2048;

    /// The largest number of label keys of one stack.
    pub const LABEL_CAPACITY: usize = 8;

    /// Makes an empty sink with room for [`FrameSink::CAPACITY`] frames, so that pushing never allocates.
    pub fn new() -> Self {
        Self { frames: Vec::with_capacity(Self::CAPACITY), ..Self::default() }
    }

    /// Appends a frame of the plugin's own.
    ///
    /// # Errors
    /// [`Truncation::TooDeep`] if the sink is full, as for all that is pushed. The walk ends with that.
    pub fn push(&mut self, key: u64) -> Result<(), Truncation> {
        self.push_frame(SinkEntry::Own(key))
    }

    /// Appends the wasm frame at `index` of the slice given to [`Walker::walk`](crate::Walker::walk).
    ///
    /// # Errors
    /// As for [`FrameSink::push`].
    pub fn push_wasm(&mut self, index: usize) -> Result<(), Truncation> {
        self.push_frame(SinkEntry::Wasm(index))
    }

    /// Marks that one or many frames are left out here. The mark takes the room of one frame, and is shown as `[elided]`.
    ///
    /// # Errors
    /// As for [`FrameSink::push`].
    pub fn push_elided(&mut self) -> Result<(), Truncation> {
        self.push_frame(SinkEntry::Elided)
    }

    fn push_frame(&mut self, frame: SinkEntry) -> Result<(), Truncation> {
        if self.frames.len() >= Self::CAPACITY {
            return Err(Truncation::TooDeep);
        }
        self.frames.push(frame);
        Ok(())
    }

    /// Returns the frame that was pushed as number `index`, counted from 0.
    pub fn get(&self, index: usize) -> Option<SinkEntry> {
        self.frames.get(index).copied()
    }

    /// Drops all frames after the first `length`.
    pub fn truncate(&mut self, length: usize) {
        self.frames.truncate(length);
    }

    /// Returns the number of frames so far.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether nothing has been pushed.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Sets what the stack belongs to besides its frames, such as a goroutine, by a key of the plugin's own.
    ///
    /// [`Program::labels`](crate::Program::labels) spells the key out later. Keys that were given before are dropped.
    pub fn set_labels(&mut self, key: u64) {
        self.label_count = 0;
        let _ = self.add_labels(key);
    }

    /// Adds one more such key. The stack has the labels of all its keys, so labels that vary on their own can have separate keys.
    ///
    /// Returns `false` if there are [`FrameSink::LABEL_CAPACITY`] keys already.
    #[must_use]
    pub fn add_labels(&mut self, key: u64) -> bool {
        let place = self.labels.get_mut(self.label_count);
        let room = place.is_some();
        if let Some(place) = place {
            *place = key;
            self.label_count += 1;
        }
        room
    }

    /// Returns the keys given to [`FrameSink::set_labels`] and [`FrameSink::add_labels`].
    pub fn labels(&self) -> &[u64] {
        &self.labels[..self.label_count]
    }

    /// Returns whether the walk may allocate memory: see [`Walker::walks_without_allocating`](crate::Walker::walks_without_allocating).
    pub fn may_allocate(&self) -> bool {
        !self.must_not_allocate
    }

    /// Sets whether the walk may allocate memory. In a new sink it may.
    pub fn set_may_allocate(&mut self, may_allocate: bool) {
        self.must_not_allocate = !may_allocate;
    }

    /// Removes all frames and labels, and keeps the room.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.label_count = 0;
    }

    /// Returns what was pushed, leaf first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = SinkEntry> + '_ {
        self.frames.iter().copied()
    }
}

/// The reason why a walk ended before the root of the stack. It is kept with the sample and counted in the summary.
///
/// ```
/// use wlprof_plugin::{OutOfBounds, Truncation};
///
/// fn first_frame() -> Result<u64, Truncation> {
///     Err(OutOfBounds)? // as a read of the guest's memory gives it
/// }
/// assert_eq!(first_frame(), Err(Truncation::BadPointer));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truncation {
    /// The stack has more than [`FrameSink::CAPACITY`] frames. The root end is missing.
    TooDeep,
    /// A pointer led outside the guest's memory.
    BadPointer,
    /// The stack leads back to a frame already seen.
    Cycle,
    /// The memory does not look as the runtime's layout promises.
    Inconsistent,
    /// The runtime has no stack at this moment: it starts up, shuts down or is between two threads.
    NoStack,
    /// The walk would have to allocate memory and must not: see [`FrameSink::may_allocate`]. What it pushed is dropped.
    WouldAllocate,
    /// The plugin failed in a way that it did not expect. What it pushed is dropped. After some such failures it is not asked for stacks
    /// any more.
    Failed,
    /// The walk would have to wait for another thread, which holds what walkers share: see [`Program::walker`](crate::Program::walker). What
    /// it pushed is dropped.
    Busy,
}

impl Truncation {
    /// Returns whether frames that were pushed before are kept. If not, the wasm stack is used instead.
    pub const fn keeps_frames(self) -> bool {
        !matches!(self, Self::WouldAllocate | Self::Failed | Self::Busy)
    }
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "there is no room for more frames",
            Self::BadPointer => "a pointer leads outside the guest's memory",
            Self::Cycle => "the stack leads back into itself",
            Self::Inconsistent => "what was read is not what the runtime's layout promises",
            Self::NoStack => "the runtime has no stack at this moment",
            Self::WouldAllocate => "the walk would have to allocate memory and must not",
            Self::Failed => "the plugin failed",
            Self::Busy => "another thread holds what walkers share",
        })
    }
}

impl Error for Truncation {}

impl From<OutOfBounds> for Truncation {
    fn from(_: OutOfBounds) -> Self {
        Self::BadPointer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_sink_refuses_more() {
        let mut sink = FrameSink::new();
        for key in 0..FrameSink::CAPACITY as u64 {
            assert_eq!(sink.push(key), Ok(()));
        }
        assert_eq!(sink.push(0), Err(Truncation::TooDeep));
        assert_eq!(sink.push_wasm(0), Err(Truncation::TooDeep));
        assert_eq!(sink.push_elided(), Err(Truncation::TooDeep));
        assert_eq!(sink.len(), FrameSink::CAPACITY);
        for key in 0..FrameSink::LABEL_CAPACITY as u64 {
            assert!(sink.add_labels(key));
        }
        assert!(!sink.add_labels(8));
        assert_eq!(sink.labels(), [0, 1, 2, 3, 4, 5, 6, 7]);
        sink.set_labels(9);
        assert_eq!(sink.labels(), [9]);
        sink.clear();
        assert!(sink.labels().is_empty());
    }
}
