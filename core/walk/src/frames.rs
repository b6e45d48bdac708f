//! The frames that a walk gives: words for a ring, leaf first.

use crate::code_map::NativePc;

/// Words that a walk gives at most. Of deeper stacks it gives both ends: [`MAX_ROOTS`] frames at the root, the others at the leaf, and
/// [`FrameWord::ELIDED`] between them.
pub const MAX_FRAMES: usize = 2048;

/// Frames of the root end that are given of a stack that is too deep.
pub const MAX_ROOTS: usize = 128;

/// A frame as it goes into the ring: the pc, and what is known of it in the bits that no address uses.
///
/// ```
/// use wlprof_walk::{FrameWord, NativePc};
///
/// let frame = FrameWord::calls_host(0x7f00_0000_1005);
/// assert!(frame.is_host_call());
/// assert_eq!(frame.native_pc(), NativePc::Return(0x7f00_0000_1005));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameWord(pub u64);

impl FrameWord {
    /// The interrupted instruction itself; without it, the pc is a return address.
    const EXACT: u64 = 1 << 63;
    /// Host code that this frame called was running.
    const CALLS_HOST: u64 = 1 << 62;
    /// The guest called back there, at a check.
    const AT_CHECK: u64 = 1 << 61;
    const PC: u64 = (1 << 48) - 1;
    /// No frame: those that stood here are left out.
    pub const ELIDED: Self = Self(1 << 60 | 1);

    /// Makes the frame of the interrupted instruction.
    pub fn exact(pc: usize) -> Self {
        Self(pc as u64 | Self::EXACT)
    }

    /// Makes a frame by the address that its callee returns to.
    pub fn return_address(pc: usize) -> Self {
        Self(pc as u64)
    }

    /// Makes a frame that calls the host, by its return address.
    pub fn calls_host(pc: usize) -> Self {
        Self(pc as u64 | Self::CALLS_HOST)
    }

    /// Returns its address.
    pub fn pc(self) -> usize {
        (self.0 & Self::PC) as usize
    }

    /// Returns its address, and which instruction it means.
    pub fn native_pc(self) -> NativePc {
        if self.is_exact() { NativePc::Exact(self.pc()) } else { NativePc::Return(self.pc()) }
    }

    /// Returns whether it is the interrupted instruction.
    pub fn is_exact(self) -> bool {
        self.0 & Self::EXACT != 0
    }

    /// Returns whether the guest called back there, at a check.
    pub fn is_at_check(self) -> bool {
        self.0 & Self::AT_CHECK != 0
    }

    /// Returns whether host code that it called was running.
    pub fn is_host_call(self) -> bool {
        self.0 & Self::CALLS_HOST != 0
    }
}

/// Why a walk did not come to the frame through which the host entered wasm first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkTruncation {
    /// There are more than [`MAX_FRAMES`] frames: some in the middle are left out.
    Elided,
    /// There are more entries than are kept, or more frames than are read of another thread: frames at the root are missing.
    TooManyEntries,
    /// A frame pointer led off the stack, or a return address out of the guest's code.
    BrokenChain,
}

/// Where frames go, leaf first.
///
/// ```
/// let mut words = [0; 64];
/// assert_eq!(wlprof_walk::Frames::new(&mut words).len(), 0);
/// ```
#[derive(Debug)]
pub struct Frames<'a> {
    words: &'a mut [u64],
    /// Frames at the leaf end.
    leaves: usize,
    /// Frames beyond those, of which the last [`MAX_ROOTS`] are kept, in a ring behind a place for [`FrameWord::ELIDED`].
    others: usize,
}

impl<'a> Frames<'a> {
    /// Collects up to [`MAX_FRAMES`] frames, or as many as there is room for.
    pub fn new(words: &'a mut [u64]) -> Self {
        let room = words.len().min(MAX_FRAMES);
        Self { words: &mut words[..room], leaves: 0, others: 0 }
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// [`WalkTruncation::Elided`] if there is no room and only the leaf end is wanted.
    pub(crate) fn push(&mut self, frame: FrameWord) -> Result<(), WalkTruncation> {
        if self.others == 0 {
            if let Some(place) = self.words.get_mut(self.leaves) {
                *place = frame.0;
                self.leaves += 1;
                return Ok(());
            }
            if self.words.len() < MAX_FRAMES {
                // The leaf end is all that is wanted.
                return Err(WalkTruncation::Elided);
            }
            // The last of them are the first of the root end, and one makes room.
            self.leaves -= MAX_ROOTS + 1;
            self.words[self.leaves] = FrameWord::ELIDED.0;
            self.others = MAX_ROOTS;
        }
        self.words[self.leaves + 1..][self.others % MAX_ROOTS] = frame.0;
        self.others += 1;
        Ok(())
    }

    /// Puts the root end in order when all frames are there.
    ///
    /// # Errors
    /// [`WalkTruncation::Elided`] if some are left out.
    pub fn finish(&mut self) -> Result<(), WalkTruncation> {
        if self.others == 0 {
            return Ok(());
        }
        self.words[self.leaves + 1..].rotate_left(self.others % MAX_ROOTS);
        Err(WalkTruncation::Elided)
    }

    /// Marks the leaf as at a check: what it has called there is no host code of anybody's.
    pub fn leaf_is_at_check(&mut self) {
        if let Some(leaf) = self.words[..self.leaves].first_mut() {
            *leaf = *leaf & !FrameWord::CALLS_HOST | FrameWord::AT_CHECK;
        }
    }

    /// Marks the leaf as about to call the host.
    pub fn leaf_calls_later(&mut self) {
        if let Some(leaf) = self.words[..self.leaves].first_mut() {
            *leaf &= !FrameWord::CALLS_HOST;
        }
    }

    /// Forgets all frames but the first `count`, which were all that there were before. None of them may have been left out since: see
    /// [`Frames::is_cut`].
    pub fn truncate(&mut self, count: usize) {
        (self.leaves, self.others) = (count, 0);
    }

    /// Returns whether there are too many frames for both ends to meet.
    pub fn is_cut(&self) -> bool {
        self.others > 0
    }

    /// Returns the number of words collected.
    #[expect(clippy::len_without_is_empty, reason = "it is the number of words to take")]
    pub fn len(&self) -> usize {
        match self.others {
            0 => self.leaves,
            _ => self.words.len(),
        }
    }

    /// Returns the number of frames from the leaf on of which none is left out.
    pub fn leaves(&self) -> usize {
        self.leaves
    }
}
