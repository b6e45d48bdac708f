//! The lists of JavaScript frames of runtimes, from the innermost function outwards.

use crate::{
    functions::{Functions, Reading},
    memory::Window,
    values,
};
use wlprof_plugin::{FrameSink, Truncation};

/// A frame of a JavaScript function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The function's number, and one more than the byte of its code; 0 before the first and for native functions.
    pub(crate) key: u64,
    pub(crate) is_native: bool,
}

/// What a walk read of the list.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Innermost first.
    pub(crate) frames: Vec<Frame>,
}

impl Default for Chain {
    /// With room for the longest list, so that reading one allocates nothing.
    fn default() -> Self {
        Self { frames: Vec::with_capacity(FrameSink::CAPACITY) }
    }
}

impl Chain {
    /// Forgets what was read.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
    }

    /// Reads the list that begins with the frame at `address`, as the callers of what was read before.
    pub(crate) fn read(
        &mut self,
        reading: Reading<'_>,
        functions: &mut Functions,
        mut address: u32,
    ) -> Result<(), Truncation> {
        let members = &reading.layout.frame;
        let size = members.prev_frame.max(members.cur_pc).saturating_add(4).max(members.cur_func.saturating_add(8));
        let mut anchor = 0;
        for step in 0_usize.. {
            if address == 0 {
                break;
            }
            // Brent's way to find cycles: the frame at each power of two must not come again.
            if address == anchor {
                return Err(Truncation::Cycle);
            }
            if step.is_power_of_two() {
                anchor = address;
            }
            if self.frames.len() >= FrameSink::CAPACITY {
                return Err(Truncation::TooDeep);
            }
            let window = Window::read(reading.guest, address, size)?;
            match frame(reading, functions, &window) {
                Ok(frame) => self.frames.push(frame),
                Err(stop @ (Truncation::WouldAllocate | Truncation::Busy)) => return Err(stop),
                // Compilers may link a frame before they say whose it is.
                Err(_) if step == 0 => {}
                Err(stop) => return Err(stop),
            }
            address = window.word(members.prev_frame)?;
        }
        Ok(())
    }
}

fn frame(reading: Reading<'_>, functions: &mut Functions, window: &Window) -> Result<Frame, Truncation> {
    let members = &reading.layout.frame;
    let object = values::object(window.long(members.cur_func)?).ok_or(Truncation::Inconsistent)?;
    let found = functions.find(reading, object)?;
    let pc = window.word(members.cur_pc)?;
    let offset = match pc {
        _ if found.is_native => 0,
        // Nothing has been called yet.
        0 => 0,
        _ => {
            pc.checked_sub(found.code).filter(|&offset| offset <= found.code_length).ok_or(Truncation::Inconsistent)?
        }
    };
    Ok(Frame { key: u64::from(found.id.0) << 32 | u64::from(offset), is_native: found.is_native })
}
