//! The chain of Python frames of one thread, from the innermost function outwards.
//!
//! A sample may fall between any two instructions of the interpreter: a function may be on its way in or out. So no
//! frame is believed whose code is not a code object or whose instruction is not one of that code.

use crate::{
    code::{Codes, FrameCode},
    layout::{Entry, Layout, Top},
    threads::Thread,
};
use wlprof_plugin::{FrameSink, GuestMemory, Truncation};

/// `FRAME_OWNED_BY_GENERATOR`.
pub(crate) const GENERATOR: u8 = 1;
/// `FRAME_OWNED_BY_FRAME_OBJECT`: the last of the owners of frames that belong to Python functions.
const LAST_PYTHON_OWNER: u8 = 2;
/// The last owner of any release: 3.14's `FRAME_OWNED_BY_CSTACK`.
const MOST_OWNER: u8 = 4;
/// The first bytes of a frame: more than what is read of any release's.
const WINDOW: usize = 64;

/// A key of a frame: the code object's number, and one more than the code unit; 0 before the first.
pub(crate) fn key(id: u32, unit: u32) -> u64 {
    u64::from(id) << 32 | u64::from(unit)
}

/// What a walk read of the chain.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Keys of frames, innermost first.
    pub(crate) frames: Vec<u64>,
    /// For each activation of the interpreter's loop, innermost first, where its frames end in `frames`.
    pub(crate) activations: Vec<usize>,
    /// Whether a frame of the import system is among them.
    pub(crate) is_importing: bool,
    /// Whether the innermost frame stands before its first instruction.
    pub(crate) begins: bool,
    /// Whether that is an `__init__` which the runtime has called for a class, through a frame that is not shown.
    pub(crate) begins_init: bool,
}

/// A frame as it lies in memory.
pub(crate) struct RawFrame {
    code: u32,
    pub(crate) previous: u32,
    instruction: u32,
    pub(crate) owner: u8,
    is_entry: u8,
}

/// What reading the chain works with.
pub(crate) struct Reader<'a> {
    pub(crate) guest: &'a dyn GuestMemory,
    pub(crate) layout: &'a Layout,
    pub(crate) codes: &'a mut Codes,
    pub(crate) chain: &'a mut Chain,
}

impl Default for Chain {
    /// With room for the longest chain, so that reading one allocates nothing.
    fn default() -> Self {
        Self {
            frames: Vec::with_capacity(FrameSink::CAPACITY),
            activations: Vec::with_capacity(2 * FrameSink::CAPACITY + 3),
            is_importing: false,
            begins: false,
            begins_init: false,
        }
    }
}

impl Chain {
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.activations.clear();
        self.is_importing = false;
        self.begins = false;
        self.begins_init = false;
    }

    /// Forgets all but the innermost frame.
    pub(crate) fn keep_innermost(&mut self) {
        self.frames.truncate(1);
        self.activations.clear();
    }

    /// The frames of each activation, innermost first, and those after the last whose activation is not known.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &[u64]> {
        let starts = std::iter::once(0).chain(self.activations.iter().copied());
        let ends = self.activations.iter().copied().chain([self.frames.len()]);
        starts.zip(ends).map(|(start, end)| self.frames.get(start..end).unwrap_or_default())
    }
}

impl Reader<'_> {
    pub(crate) fn word(&self, base: u32, offset: u32) -> Result<u32, Truncation> {
        Ok(self.guest.read_u32(u64::from(base) + u64::from(offset))?)
    }

    /// Reads the chain of `thread`.
    pub(crate) fn read(&mut self, thread: Thread) -> Result<(), Truncation> {
        self.chain.clear();
        match self.layout.thread.top {
            Top::Frame { at } => {
                let frame = self.word(thread.address, at)?;
                self.follow(frame, None)
            }
            Top::CFrame { at, current, previous } => {
                let cframe = self.word(thread.address, at)?;
                let frame = self.word(cframe, current)?;
                let outcome = self.follow(frame, Some(cframe));
                let outer = self.word(cframe, previous)?;
                let is_junk = match outcome {
                    // Only the first one, which is no activation's, has no frame.
                    Ok(()) => frame == 0 && outer != 0,
                    Err(stop) => {
                        let may_be = matches!(stop, Truncation::Inconsistent | Truncation::BadPointer);
                        may_be && self.chain.activations.is_empty()
                    }
                };
                if !is_junk {
                    return outcome;
                }
                self.read_outer(thread)
            }
        }
    }

    /// Reads the chain of `thread`, whose innermost loop has made its `_PyCFrame` the top one but has not yet put a frame
    /// into it.
    pub(crate) fn read_outer(&mut self, thread: Thread) -> Result<(), Truncation> {
        let Top::CFrame { at, current, previous } = self.layout.thread.top else {
            return Err(Truncation::Inconsistent);
        };
        self.chain.clear();
        let cframe = self.word(thread.address, at)?;
        let outer = self.word(cframe, previous)?;
        let frame = self.word(outer, current)?;
        self.follow(frame, Some(outer))
    }

    /// Reads the frames from that at `address` on, outwards, after those that have been read.
    pub(crate) fn follow(&mut self, mut address: u32, mut cframe: Option<u32>) -> Result<(), Truncation> {
        let mut anchor = 0;
        let mut is_closed = true;
        let mut may_skip = self.chain.frames.is_empty();
        for step in 0_usize.. {
            if address == 0 {
                return if is_closed { Ok(()) } else { Err(Truncation::Inconsistent) };
            }
            // Brent's way to find cycles: the frame at each power of two must not come again.
            if address == anchor {
                return Err(Truncation::Cycle);
            }
            if step.is_power_of_two() {
                anchor = address;
            }
            if step > 2 * FrameSink::CAPACITY || self.chain.frames.len() >= FrameSink::CAPACITY {
                return Err(Truncation::TooDeep);
            }
            let frame = self.frame(address)?;
            let mut ends = match self.layout.frame.entry {
                Entry::Shim { owner } if frame.owner > owner.max(MOST_OWNER) => return Err(Truncation::Inconsistent),
                Entry::Shim { owner } if frame.owner >= owner => frame.owner == owner,
                Entry::Marked { .. } if frame.is_entry > 1 => return Err(Truncation::Inconsistent),
                entry => {
                    match self.push_frame(&frame) {
                        Ok(()) => {}
                        Err(stop @ (Truncation::WouldAllocate | Truncation::Busy)) => return Err(stop),
                        // The innermost function has returned and is being torn down, its code perhaps gone.
                        Err(_) if may_skip && frame.owner <= LAST_PYTHON_OWNER => {}
                        Err(stop) => return Err(stop),
                    }
                    may_skip = false;
                    matches!(entry, Entry::Marked { .. }) && frame.is_entry == 1
                }
            };
            if let (true, Some(at), Top::CFrame { current, previous, .. }) = (ends, cframe, self.layout.thread.top) {
                // The next activation must agree on where its frames begin.
                let outer = self.word(at, previous)?;
                if self.word(outer, current)? == frame.previous {
                    cframe = Some(outer);
                } else if frame.owner == GENERATOR {
                    // An exception is thrown through it: it is linked into the activation that throws, and marked since it was
                    // resumed last.
                    ends = false;
                } else {
                    return Err(Truncation::Inconsistent);
                }
            }
            is_closed = ends;
            if ends {
                self.chain.activations.push(self.chain.frames.len());
            }
            address = frame.previous;
        }
        Ok(())
    }

    /// Adds that frame, one of Python's.
    pub(crate) fn push_frame(&mut self, frame: &RawFrame) -> Result<(), Truncation> {
        let (found, unit) = self.python_frame(frame)?;
        self.chain.is_importing |= found.is_importer;
        if found.is_trampoline {
            self.chain.begins_init |= self.chain.begins && self.chain.frames.len() == 1;
            return Ok(());
        }
        if self.chain.frames.is_empty() {
            self.chain.begins = unit <= self.first_unit();
        }
        self.chain.frames.push(key(found.id.0, unit));
        Ok(())
    }

    pub(crate) fn frame(&self, address: u32) -> Result<RawFrame, Truncation> {
        let layout = &self.layout.frame;
        let entry = if let Entry::Marked { at } = layout.entry { at } else { layout.owner };
        let mut window = [0; WINDOW];
        let last = layout.code.max(layout.previous).max(layout.instruction).max(layout.owner).max(entry);
        let wanted = (last as usize + 4).min(WINDOW);
        self.guest.read(address.into(), &mut window[..wanted])?;
        let word = |at: u32| -> Result<u32, Truncation> {
            let bytes = window.get(at as usize..at as usize + 4).ok_or(Truncation::Inconsistent)?;
            Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| Truncation::Inconsistent)?))
        };
        let byte = |at: u32| window.get(at as usize).copied().ok_or(Truncation::Inconsistent);
        Ok(RawFrame {
            code: word(layout.code)? & !layout.code_tags,
            previous: word(layout.previous)?,
            instruction: word(layout.instruction)?,
            owner: byte(layout.owner)?,
            is_entry: byte(entry)?,
        })
    }

    /// Where a frame is before its first instruction.
    fn first_unit(&self) -> u32 {
        if self.layout.frame.instruction_is_previous { 0 } else { 1 }
    }

    /// The code of a frame, and one more than the code unit that it is at.
    pub(crate) fn python_frame(&mut self, frame: &RawFrame) -> Result<(FrameCode, u32), Truncation> {
        if frame.owner > LAST_PYTHON_OWNER {
            return Err(Truncation::Inconsistent);
        }
        let found = self.codes.find(self.guest, self.layout, frame.code)?;
        // Before its first instruction, a frame's previous one is that before the first.
        let base = found.instructions.wrapping_sub(2);
        let distance = frame.instruction.wrapping_sub(base);
        let unit = distance / 2;
        if distance % 2 != 0 || unit < self.first_unit() || unit > found.units {
            return Err(Truncation::Inconsistent);
        }
        Ok((found, unit))
    }
}
