//! Room for code objects that are met for the first time where nothing may be allocated: they are copied there as they lie in
//! memory, and become what is kept of code objects when somebody asks for them.

use crate::{
    code::Code,
    text::{self, Text},
};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use wlprof_plugin::{GuestMemory, Truncation};

/// Code objects that find room, of a module, over all its walkers: equal ones have the same place, and so a server's instances need no
/// more than one does.
const MOST: u32 = 512;
/// For how many there is room until the next walk that may allocate.
const READY: u32 = 16;
/// The longest texts that find room, in bytes, and the largest location table.
const LONGEST_TEXT: usize = 512;
const LARGEST_TABLE: usize = 8 << 10;

/// The copies, by number. A walker that cannot have the next place at once goes without.
#[derive(Debug)]
pub(crate) struct SpareCodes {
    places: Box<[Place]>,
    /// How many are taken, and how many have been made ready.
    taken: AtomicU32,
    ready: AtomicU32,
    /// Whether one was met when all were taken.
    is_full: AtomicBool,
}

#[derive(Debug, Default)]
struct Place {
    /// `None` before it is ready, and once it is a code object.
    copy: Mutex<Option<Box<CodeCopy>>>,
    code: OnceLock<Code>,
    /// The hash of the copy, once the place is taken.
    hash: AtomicU64,
}

/// A code object as it lies in memory. Large: boxed wherever it is kept.
#[derive(Debug)]
pub(crate) struct CodeCopy {
    first_line: u32,
    file: TextCopy,
    qualified_name: TextCopy,
    table: [u8; LARGEST_TABLE],
    table_length: usize,
}

#[derive(Debug)]
struct TextCopy {
    text: Text,
    bytes: [u8; LONGEST_TEXT],
}

impl Default for SpareCodes {
    fn default() -> Self {
        let places = (0..MOST).map(|_| Place::default()).collect();
        Self { places, taken: AtomicU32::new(0), ready: AtomicU32::new(0), is_full: AtomicBool::new(false) }
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

    /// Gives the number of what has all that `copy` has: it takes the next place, if there is none yet, and `copy` is another one then. `hasher`
    /// must be the same at each call, and guests not know its keys. Allocates nothing.
    pub(crate) fn keep(&self, hasher: &impl BuildHasher, copy: &mut Box<CodeCopy>) -> Result<u32, Truncation> {
        let hash = hasher.hash_one(&**copy);
        loop {
            let number = self.taken.load(Ordering::Acquire);
            let taken = &self.places[..number as usize];
            if let Some(equal) = taken.iter().position(|place| place.hash.load(Ordering::Relaxed) == hash) {
                return Ok(equal as u32);
            }
            let Some(place) = self.places.get(number as usize) else {
                self.is_full.store(true, Ordering::Relaxed);
                return Err(Truncation::WouldAllocate);
            };
            let mut room = place.copy.try_lock().map_err(|_| Truncation::WouldAllocate)?;
            // Who takes a place holds it, so that nobody else takes it from here on.
            if self.taken.load(Ordering::Acquire) != number {
                continue;
            }
            std::mem::swap(room.as_mut().ok_or(Truncation::WouldAllocate)?, copy);
            place.hash.store(hash, Ordering::Relaxed);
            self.taken.store(number + 1, Ordering::Release);
            return Ok(number);
        }
    }

    /// Whether there was no place left for a code object: it is kept once a walk meets it that may allocate.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
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
    /// Room for one.
    pub(crate) fn new() -> Self {
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

/// Of what was read, and not of what was there before.
impl Hash for CodeCopy {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { first_line, file, qualified_name, table, table_length } = self;
        (first_line, file, qualified_name, &table[..*table_length]).hash(hasher);
    }
}

impl Hash for TextCopy {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.text.width, &self.bytes[..self.text.size()]).hash(hasher);
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
