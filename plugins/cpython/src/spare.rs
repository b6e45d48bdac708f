//! Room for code objects that are met for the first time where nothing may be allocated: they are copied there as they lie in
//! memory, and become what is kept of code objects when somebody asks for them.

use crate::{
    code::Code,
    text::{self, Text},
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use wlprof_plugin::{GuestMemory, Truncation};

/// Code objects that find room, of a module, over all its walkers.
const MOST: u32 = 512;
/// For how many there is room until the next walk that may allocate.
const READY: u32 = 16;
/// The longest texts that find room, in bytes, and the largest location table.
const LONGEST_TEXT: usize = 512;
const LARGEST_TABLE: usize = 8 << 10;

/// The copies, by number. Nothing waits for walkers: those that cannot have the next place at once go without.
pub(crate) struct SpareCodes {
    places: Box<[Place]>,
    /// How many are taken, and how many have been made ready.
    taken: AtomicU32,
    ready: AtomicU32,
}

#[derive(Default)]
struct Place {
    /// `None` before it is ready, and once it is a code object.
    copy: Mutex<Option<Box<CodeCopy>>>,
    code: OnceLock<Code>,
}

/// A code object as it lies in memory.
pub(crate) struct CodeCopy {
    first_line: u32,
    file: TextCopy,
    qualified_name: TextCopy,
    table: [u8; LARGEST_TABLE],
    table_length: usize,
}

struct TextCopy {
    text: Text,
    bytes: [u8; LONGEST_TEXT],
}

impl std::fmt::Debug for SpareCodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpareCodes").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl Default for SpareCodes {
    fn default() -> Self {
        let places = (0..MOST).map(|_| Place::default()).collect();
        Self { places, taken: AtomicU32::new(0), ready: AtomicU32::new(0) }
    }
}

impl SpareCodes {
    /// Makes room for the walks that come, which may not.
    pub(crate) fn make_ready(&self) {
        let wanted = MOST.min(self.taken.load(Ordering::Relaxed) + READY);
        for number in self.ready.load(Ordering::Relaxed)..wanted {
            let Ok(mut copy) = self.places[number as usize].copy.try_lock() else { return };
            // Another walker may have made it ready, and yet another may have taken it since.
            if self.ready.load(Ordering::Relaxed) != number {
                return;
            }
            *copy = Some(Box::new(CodeCopy::new()));
            self.ready.store(number + 1, Ordering::Relaxed);
        }
    }

    /// Has `read` fill the next place and gives the number of it. Allocates nothing.
    pub(crate) fn keep(&self, read: impl FnOnce(&mut CodeCopy) -> Result<(), Truncation>) -> Result<u32, Truncation> {
        let number = self.taken.load(Ordering::Relaxed);
        let place = self.places.get(number as usize).ok_or(Truncation::WouldAllocate)?;
        let mut copy = place.copy.try_lock().map_err(|_| Truncation::WouldAllocate)?;
        // Who takes a place holds it, so that nobody else takes it from here on.
        let is_next = self.taken.load(Ordering::Relaxed) == number;
        let copy = copy.as_deref_mut().filter(|_| is_next).ok_or(Truncation::WouldAllocate)?;
        read(copy)?;
        self.taken.store(number + 1, Ordering::Release);
        Ok(number)
    }

    /// The code object of that number.
    pub(crate) fn get(&self, number: u32) -> Option<&Code> {
        if number >= self.taken.load(Ordering::Acquire) {
            return None;
        }
        let place = self.places.get(number as usize)?;
        if place.code.get().is_none() {
            // Held until it is one, for whoever else asks meanwhile.
            let mut copy = place.copy.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(copy) = copy.take() {
                place.code.get_or_init(|| copy.code());
            }
        }
        place.code.get()
    }
}

impl CodeCopy {
    fn new() -> Self {
        let text = || TextCopy { text: Text { address: 0, length: 0, width: 1 }, bytes: [0; LONGEST_TEXT] };
        let (table, table_length) = ([0; LARGEST_TABLE], 0);
        Self { first_line: 0, file: text(), qualified_name: text(), table, table_length }
    }

    /// Reads the code object with these texts, that line and that location table, which begins at `table` and has `table_length` bytes.
    pub(crate) fn read(
        &mut self,
        guest: &dyn GuestMemory,
        (file, qualified_name): (Text, Text),
        first_line: u32,
        (table, table_length): (u64, u32),
    ) -> Result<(), Truncation> {
        self.file.read(guest, file)?;
        self.qualified_name.read(guest, qualified_name)?;
        let room = self.table.get_mut(..table_length as usize).ok_or(Truncation::WouldAllocate)?;
        guest.read(table, room)?;
        (self.first_line, self.table_length) = (first_line, table_length as usize);
        Ok(())
    }

    fn code(&self) -> Code {
        Code {
            file: self.file.decode().into(),
            qualified_name: self.qualified_name.decode(),
            first_line: self.first_line,
            location_table: self.table[..self.table_length].into(),
        }
    }
}

impl TextCopy {
    fn read(&mut self, guest: &dyn GuestMemory, text: Text) -> Result<(), Truncation> {
        self.text = text;
        Ok(guest.read(text.address, self.bytes.get_mut(..text.size()).ok_or(Truncation::WouldAllocate)?)?)
    }

    fn decode(&self) -> String {
        text::decode(&self.bytes[..self.text.size()], self.text.width)
    }
}
