//! What a walk takes in and gives out: wasm frames, frame keys, and why a walk ended.

/// One frame of the guest's wasm stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WasmFrame {
    /// Index of the function in the module's function index space (imports first).
    pub function: u32,
    /// Where the frame stands, as an offset from the start of the code section's payload: the address space of wasm
    /// DWARF. For the leaf it is the interrupted instruction, for every other frame the call instruction itself (not
    /// the return address), so a line lookup needs no adjustment.
    pub code_offset: u32,
}

/// What identifies a frame until it is symbolized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKey {
    /// A wasm frame, as the sampler found it.
    Wasm(WasmFrame),
    /// A frame of the plugin's own, named by a number that the plugin chose. Equal numbers are equal frames.
    Own(u64),
}

/// Receives one stack, leaf first.
///
/// It is bounded: after [`FrameSink::CAPACITY`] frames every further push is refused, so a walker on a cyclic or
/// endless stack ends.
#[derive(Debug, Default)]
pub struct FrameSink {
    frames: Vec<SinkFrame>,
    labels: Option<u64>,
}

/// One entry of a [`FrameSink`], leaf first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkFrame {
    Own(u64),
    Wasm(usize),
}

impl FrameSink {
    /// The most frames that one stack may have.
    pub const CAPACITY: usize = 2048;

    /// An empty sink with room for [`FrameSink::CAPACITY`] frames, so that pushing never allocates.
    pub fn new() -> Self {
        Self { frames: Vec::with_capacity(Self::CAPACITY), labels: None }
    }

    /// Appends a frame of the plugin's own. `false`: the sink is full and the walk should end with
    /// [`WalkEnd::TooDeep`].
    #[must_use]
    pub fn push(&mut self, key: u64) -> bool {
        self.push_frame(SinkFrame::Own(key))
    }

    /// Says that wasm frame `index` (of the slice given to [`Walker::walk`](crate::Walker::walk)) stands here.
    /// `false`: the sink is full.
    #[must_use]
    pub fn push_wasm(&mut self, index: usize) -> bool {
        self.push_frame(SinkFrame::Wasm(index))
    }

    fn push_frame(&mut self, frame: SinkFrame) -> bool {
        let room = self.frames.len() < Self::CAPACITY;
        if room {
            self.frames.push(frame);
        }
        room
    }

    /// Number of frames so far.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether nothing has been pushed.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Says what the stack belongs to besides its frames (a goroutine, a thread state) by a key of the plugin's own,
    /// which [`Walker::labels`](crate::Walker::labels) spells out later.
    pub fn set_labels(&mut self, key: u64) {
        self.labels = Some(key);
    }

    /// The key given to [`FrameSink::set_labels`].
    pub fn labels(&self) -> Option<u64> {
        self.labels
    }

    /// Forgets all frames and labels and keeps the room.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.labels = None;
    }

    /// The stack, leaf first, with the walker's references to `wasm` replaced by the frames themselves. References
    /// past the end of `wasm` are dropped.
    pub fn keys<'a>(&'a self, wasm: &'a [WasmFrame]) -> impl DoubleEndedIterator<Item = FrameKey> + 'a {
        self.frames.iter().filter_map(move |frame| match *frame {
            SinkFrame::Own(key) => Some(FrameKey::Own(key)),
            SinkFrame::Wasm(index) => wasm.get(index).copied().map(FrameKey::Wasm),
        })
    }
}

/// Why a walk stopped. Anything but [`WalkEnd::Complete`] is kept with the sample and counted in the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WalkEnd {
    /// The root of the stack was reached.
    Complete,
    /// More frames than [`FrameSink::CAPACITY`]; the root end is missing.
    TooDeep,
    /// A pointer led outside the guest's memory.
    BadPointer,
    /// The stack leads back to a frame already seen.
    Cycle,
    /// What was read is not what the runtime's layout promises there.
    Inconsistent,
    /// The runtime has no stack at this moment (starting up, shutting down, between two threads).
    NoStack,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_sink_refuses_more() {
        let mut sink = FrameSink::new();
        for key in 0..FrameSink::CAPACITY as u64 {
            assert!(sink.push(key));
        }
        assert!(!sink.push(0));
        assert!(!sink.push_wasm(0));
        assert_eq!(sink.len(), FrameSink::CAPACITY);
    }

    #[test]
    fn references_past_the_wasm_stack_are_dropped() {
        let mut sink = FrameSink::new();
        let frame = WasmFrame { function: 1, code_offset: 2 };
        assert!(sink.push(7) && sink.push_wasm(0) && sink.push_wasm(1));
        assert_eq!(sink.keys(&[frame]).collect::<Vec<_>>(), [FrameKey::Own(7), FrameKey::Wasm(frame)]);
    }
}
