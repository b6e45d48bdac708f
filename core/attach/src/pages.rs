//! Memory of another process that does not change for a moment: what has been read of it is not read again.

use crate::process::Process;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// Bytes that are read at once.
const PAGE: usize = 4096;

const WORD: usize = size_of::<usize>();

/// What reading a page takes, as compared with a read of what is known.
const PAGE_WORK: usize = 256;

/// The work that one sample may take: tens of milliseconds, 4,000 pages or a million words.
pub(crate) const WORK_OF_SAMPLE: usize = 1 << 20;

/// The work that one sample of this process may take, whose threads stand still for 10 ms at most.
pub(crate) const WORK_OF_OWN_SAMPLE: usize = WORK_OF_SAMPLE / 8;

/// The work that a dump of one thread may take, with the stacks of all goroutines.
pub(crate) const WORK_OF_DUMP: usize = 1 << 25;

/// The memory of a process while a thread of it stands still.
pub(crate) struct Pages<'a> {
    process: &'a Process,
    pages: RefCell<HashMap<usize, Box<[u8; PAGE]>>>,
    /// The work that may still be done. A process chooses how long a stack is, and what leads where.
    work: Cell<usize>,
}

impl<'a> Pages<'a> {
    /// Prepares to read memory of `process`, with that much work at most.
    pub(crate) fn new(process: &'a Process, work: usize) -> Self {
        Self { process, pages: RefCell::default(), work: Cell::new(work) }
    }

    /// Returns whether nothing more is read, since it took too much work.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.work.get() == 0
    }

    /// Counts work that is done for what was read. `false` if there may be no more.
    pub(crate) fn work(&self, work: usize) -> bool {
        let left = self.work.get().saturating_sub(work);
        self.work.set(left);
        left > 0
    }

    pub(crate) fn process(&self) -> &'a Process {
        self.process
    }

    /// Fills `buffer` with the memory from `address` on. `false` if not all of it is there.
    pub(crate) fn read(&self, address: usize, buffer: &mut [u8]) -> bool {
        if buffer.len() > PAGE {
            return self.work(buffer.len() / PAGE * PAGE_WORK) && self.process.read(address, buffer);
        }
        let (mut at, mut rest) = (address, buffer);
        while !rest.is_empty() {
            let (page, offset) = (at & !(PAGE - 1), at & (PAGE - 1));
            let length = rest.len().min(PAGE - offset);
            let (now, later) = rest.split_at_mut(length);
            let is_read = self.page(page, |bytes| now.copy_from_slice(&bytes[offset..offset + length]));
            let Some(next) = at.checked_add(length).filter(|_| is_read) else { return false };
            (at, rest) = (next, later);
        }
        true
    }

    /// Returns the word at `address`; `None` if it is not there.
    pub(crate) fn word(&self, address: usize) -> Option<usize> {
        let mut bytes = [0; WORD];
        self.read(address, &mut bytes).then(|| usize::from_le_bytes(bytes))
    }

    /// Returns the first address in `range`, of those that are multiples of a word's size, whose word is `wanted`. What is behind memory that is
    /// not there is not looked at.
    pub(crate) fn find_word(&self, range: Range<usize>, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = range.start.checked_next_multiple_of(WORD)?;
        while at < range.end {
            let (page, offset) = (at & !(PAGE - 1), at & (PAGE - 1));
            let end = (range.end - page).min(PAGE);
            let mut found = None;
            let is_read = self.page(page, |bytes| {
                let (words, _) = bytes[offset..end].as_chunks::<WORD>();
                found = words.iter().position(|word| wanted(usize::from_le_bytes(*word)));
            });
            if !is_read || found.is_some() {
                return found.map(|index| at + index * WORD);
            }
            at = page.checked_add(PAGE)?;
        }
        None
    }

    fn page(&self, page: usize, read: impl FnOnce(&[u8; PAGE])) -> bool {
        if !self.work(1) {
            return false;
        }
        let mut pages = self.pages.borrow_mut();
        let bytes = match pages.entry(page) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let mut bytes = Box::new([0; PAGE]);
                if !self.work(PAGE_WORK) || !self.process.read(page, &mut bytes[..]) {
                    return false;
                }
                place.insert(bytes)
            }
        };
        read(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_bounded() {
        let own = Process::open(std::process::id() as i32).unwrap();
        let memory = vec![7_usize; 10 * PAGE];
        let start = memory.as_ptr().addr();
        let pages = Pages::new(&own, 3 * PAGE_WORK);
        assert_eq!(pages.find_word(start..start + 8 * PAGE, |word| word != 7), None);
        assert!(pages.is_exhausted() && pages.word(start).is_none());
        let pages = Pages::new(&own, WORK_OF_SAMPLE);
        assert!((0..1 << 20).take_while(|_| pages.word(start) == Some(7)).count() > 1 << 19);
        assert!(pages.is_exhausted() && !pages.read(start, &mut [0; 2 * PAGE]));
        assert_eq!(Pages::new(&own, WORK_OF_SAMPLE).find_word(usize::MAX - 3..usize::MAX, |_| true), None);
    }
}
