//! Where functions were seen. The guest frees functions and puts others in their places, so one is only known again if
//! everything that names it is still what it was.

use crate::{
    functions::{FrameFunction, LONGEST_FILE, LONGEST_NAME, Reading},
    values::{self, Atom, KeptText},
};
use std::collections::HashMap;
use wlprof_plugin::Truncation;

/// Places that are remembered, and bytes of their functions' names.
const MOST_PLACES: usize = 1 << 16;
const MOST_NAMES: usize = 16 << 20;
/// Names of files that are remembered: at most 4 KB each.
const MOST_FILES: usize = 1 << 12;

/// What lay at a place.
#[derive(Debug)]
struct SeenPlace {
    found: FrameFunction,
    /// Members of the bytecode.
    words: [u32; 7],
    /// The bytecode's file, as [`Places::file`] numbers them.
    file: u32,
    name: KeptText,
}

/// What an atom stood for when it was the name of a file.
#[derive(Debug)]
struct File {
    name: KeptText,
    number: u32,
}

/// The places at which functions were seen, by the addresses of bytecode (0 for native functions) and name.
#[derive(Debug, Default)]
pub(crate) struct Places {
    seen: HashMap<(u32, u32), SeenPlace>,
    /// Bytes of their names.
    names: usize,
    /// By runtime and atom.
    files: HashMap<(u32, u32), File>,
    /// The latest number of a file. A name that is read again has another one, and then so have its functions.
    numbered: u32,
    walk: u64,
    /// Files of this walk, by their runtimes and atoms: most functions have the same few.
    met: [(u64, (u32, u32), Option<u32>); 8],
}

impl Places {
    /// Begins a walk, during which memory does not change.
    pub(crate) fn begin(&mut self) {
        self.walk += 1;
    }

    /// The function that was seen at `place`, if what is there now has the same members, file and name.
    pub(crate) fn find(
        &mut self,
        reading: Reading<'_>,
        place: (u32, u32),
        words: [u32; 7],
    ) -> Result<Option<FrameFunction>, Truncation> {
        let Some(seen) = self.seen.get(&place).filter(|seen| seen.words == words) else { return Ok(None) };
        if !seen.name.is_at(reading.guest, &reading.layout.string, place.1)? {
            return Ok(None);
        }
        let (found, file) = (seen.found, seen.file);
        Ok((self.file(reading, words)? == Some(file)).then_some(found))
    }

    /// Remembers that `found` is at `place`.
    #[cold]
    pub(crate) fn insert(
        &mut self,
        reading: Reading<'_>,
        place: (u32, u32),
        words: [u32; 7],
        found: FrameFunction,
    ) -> Result<(), Truncation> {
        let Reading { guest, layout, .. } = reading;
        let file = match self.file(reading, words)? {
            Some(number) => number,
            None => self.insert_file(reading, words)?,
        };
        let name = KeptText::read(guest, &layout.string, place.1, LONGEST_NAME)?;
        if self.seen.len() >= MOST_PLACES || self.names + name.size() > MOST_NAMES {
            self.seen.clear();
            self.names = 0;
        }
        self.names += name.size();
        if let Some(before) = self.seen.insert(place, SeenPlace { found, words, file, name }) {
            self.names -= before.name.size();
        }
        Ok(())
    }

    /// The number of the file that bytecode with those members is of: 0 if its atom says it all, `None` if it is new.
    fn file(&mut self, reading: Reading<'_>, words: [u32; 7]) -> Result<Option<u32>, Truncation> {
        let Reading { guest, layout, runtime } = reading;
        let [_, _, atom, ..] = words;
        let group = atom as usize % self.met.len();
        if let Some(&(walk, met, number)) = self.met.get(group)
            && (walk, met) == (self.walk, (runtime, atom))
        {
            return Ok(number);
        }
        let number = match (values::atom(guest, layout, runtime, atom)?, self.files.get(&(runtime, atom))) {
            (Atom::None | Atom::Number(_), _) => Some(0),
            (Atom::Text(text), Some(file)) if file.name.is_at(guest, &layout.string, text)? => Some(file.number),
            (Atom::Text(_), _) => None,
        };
        if let Some(entry) = self.met.get_mut(group) {
            *entry = (self.walk, (runtime, atom), number);
        }
        Ok(number)
    }

    fn insert_file(&mut self, reading: Reading<'_>, words: [u32; 7]) -> Result<u32, Truncation> {
        let Reading { guest, layout, runtime } = reading;
        let [_, _, atom, ..] = words;
        let Atom::Text(text) = values::atom(guest, layout, runtime, atom)? else { return Ok(0) };
        let name = KeptText::read(guest, &layout.string, text, LONGEST_FILE)?;
        if self.files.len() >= MOST_FILES {
            self.files.clear();
        }
        self.numbered = self.numbered.wrapping_add(1).max(1);
        self.files.insert((runtime, atom), File { name, number: self.numbered });
        let group = atom as usize % self.met.len();
        if let Some(entry) = self.met.get_mut(group) {
            *entry = (self.walk, (runtime, atom), Some(self.numbered));
        }
        Ok(self.numbered)
    }
}
