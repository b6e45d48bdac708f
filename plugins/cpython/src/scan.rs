//! Looks for `_PyRuntime` in the memory of guests that do not say where it is: a part of it in each walk, as walks must
//! be short, and ever more rarely if nothing is found.

use crate::{debug_offsets, layout::Layout, threads};
use memchr::memmem;
use std::ops::Range;
use wlprof_plugin::GuestMemory;

/// How much one walk looks through: some tens of microseconds.
const STEP: u64 = 128 << 10;
/// Walks without a scan after the first full one; doubled after each.
const FIRST_REST: u32 = 64;
const LONGEST_REST: u32 = 1 << 16;

/// A scan under way.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// Where variables are; `None` if that is not known.
    statics: Option<Range<u64>>,
    next: u64,
    /// Walks to let pass, and how many it will be the next time.
    rest: u32,
    next_rest: u32,
    buffer: Vec<u8>,
}

impl Scan {
    /// A scan of `statics`, or of all memory.
    pub(crate) fn new(statics: Option<Range<u64>>) -> Self {
        Self { statics, next: 0, rest: 0, next_rest: FIRST_REST, buffer: Vec::new() }
    }

    /// Looks at the next part of memory.
    pub(crate) fn step(&mut self, guest: &dyn GuestMemory, layout: Option<&Layout>) -> Option<u32> {
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let whole = 0..guest.size().min(u64::from(u32::MAX));
        let statics = self.statics.clone().unwrap_or_else(|| whole.clone());
        let range = statics.start.min(whole.end)..statics.end.min(whole.end);
        let start = self.next.max(range.start);
        if start >= range.end {
            self.next = 0;
            self.rest = self.next_rest;
            self.next_rest = self.next_rest.saturating_mul(2).min(LONGEST_REST);
            return None;
        }
        // Words are where they belong; a range may end between two.
        let start = start & !7;
        let end = range.end.min(start.saturating_add(STEP));
        self.next = end;
        // What lies across the border.
        let overlap = layout.map_or(8, |layout| u64::from(layout.runtime.interpreters_head) + 8);
        self.buffer.resize((end.saturating_add(overlap).min(whole.end) - start) as usize, 0);
        guest.read(start, &mut self.buffer).ok()?;
        let at = match layout {
            Some(layout) => find_live(guest, layout, start as u32, &self.buffer)?,
            None => start as u32 + memmem::find(&self.buffer, debug_offsets::COOKIE)? as u32,
        };
        Some(at)
    }
}

/// A place in `bytes`, which lie at `start`, that looks like the runtime of an interpreter that has started.
fn find_live(guest: &dyn GuestMemory, layout: &Layout, start: u32, bytes: &[u8]) -> Option<u32> {
    let head = layout.runtime.interpreters_head;
    let words = bytes.get(head as usize..)?.as_chunks::<4>().0;
    // With one interpreter, the newest is the main one.
    words.windows(2).enumerate().find_map(|(index, pair)| {
        let (head_value, main) = (u32::from_le_bytes(pair[0]), u32::from_le_bytes(pair[1]));
        let candidate = start + 4 * index as u32;
        // The main interpreter is a part of the runtime: what is not costs no read.
        let distance = main.wrapping_sub(candidate);
        if head_value != main || main % 4 != 0 || u64::from(distance) >= u64::from(layout.runtime.size) {
            return None;
        }
        threads::is_runtime(guest, layout, candidate).then_some(candidate)
    })
}
