//! Memory of another process that does not change for a moment: what has been read of it is not read again.

use crate::process::Process;
use std::cell::RefCell;
use std::ops::Range;

/// Bytes that are read at once.
const PAGE: usize = 4096;

const WORD: usize = size_of::<usize>();

/// The memory of a process while a thread of it stands still.
pub(crate) struct Pages<'a> {
    process: &'a Process,
    /// In the order in which they were needed. The stack of some 30 frames is one or two.
    pages: RefCell<Vec<(usize, Box<[u8; PAGE]>)>>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(process: &'a Process) -> Self {
        Self { process, pages: RefCell::default() }
    }

    pub(crate) fn process(&self) -> &'a Process {
        self.process
    }

    /// Fills `buffer` with the memory from `address` on. `false` if not all of it is there.
    pub(crate) fn read(&self, address: usize, buffer: &mut [u8]) -> bool {
        if buffer.len() > PAGE {
            return self.process.read(address, buffer);
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
        let mut at = range.start.next_multiple_of(WORD);
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
        let mut pages = self.pages.borrow_mut();
        // What was needed last is needed next.
        let index = match pages.iter().rposition(|(known, _)| *known == page) {
            Some(index) => index,
            None => {
                let mut bytes = Box::new([0; PAGE]);
                if !self.process.read(page, &mut bytes[..]) {
                    return false;
                }
                pages.push((page, bytes));
                pages.len() - 1
            }
        };
        read(&pages[index].1);
        true
    }
}
