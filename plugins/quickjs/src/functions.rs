//! Functions: known by the addresses of their bytecode and of their name as long as what lies there is what lay there
//! before (`places.rs`), and copied when first seen, so that frames can be named when the guest has long freed them.

use crate::{
    layout::Layout,
    memory::{Window, holds},
    places::Places,
    properties,
    values::{self, Atom, Text},
};
use std::sync::Arc;
use wlprof_plugin::{GuestMemory, KeyTable, NotKept, Truncation};

/// Longest texts that are kept, in characters.
pub(crate) const LONGEST_FILE: u32 = 2048;
pub(crate) const LONGEST_NAME: u32 = 1024;
/// Largest table of lines that is kept, in bytes.
const LARGEST_TABLE: u32 = 1 << 20;
/// Functions that are kept, and bytes of them all; frames of any others have no name.
const MOST_FUNCTIONS: u32 = 1 << 20;
const MOST_BYTES: usize = 256 << 20;
/// Bytes that one walk copies; functions that it meets after that are left for later walks.
const MOST_A_WALK: usize = 4 << 20;
/// Function objects that wait for a walk that may keep them.
const MOST_WANTED: usize = 64;
/// Tables of lines that are compared as a whole, in bytes. Comparing larger ones in each walk would make walks long.
const WHOLE_TABLE: usize = 256;
/// What is compared of larger ones: so many pieces, evenly spread from the first byte to the last.
const PIECES: usize = 4;
const PIECE: usize = WHOLE_TABLE / PIECES;

/// A function's number, the same for equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionId(pub(crate) u32);

impl FunctionId {
    /// What does not fit any more.
    const UNKEPT: Self = Self(u32::MAX >> 1);
}

/// What is kept of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    /// Empty if it has none.
    pub(crate) name: String,
    pub(crate) is_native: bool,
    pub(crate) file: Option<String>,
    /// Where it begins, from 1.
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Its `pc2line` table. Empty if it was too large.
    pub(crate) lines: Box<[u8]>,
}

/// A function as a frame has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameFunction {
    pub(crate) id: FunctionId,
    pub(crate) is_native: bool,
    /// Where its bytecode is, and how many bytes.
    pub(crate) code: u32,
    pub(crate) code_length: u32,
}

/// All functions seen.
#[derive(Debug)]
pub(crate) struct Functions {
    places: Places,
    /// What is kept of them, by number, for all walkers of a module.
    kept: Arc<KeyTable<Function>>,
    name_atom: u32,
    may_allocate: bool,
    /// Function objects met in walks that could not keep their functions, each with its runtime.
    wanted: Vec<(u32, u32)>,
    walk: u64,
    /// Bytes that this walk has copied.
    copied: usize,
    /// Function objects of this walk, the latest of each group of addresses: recursion meets the same over and over.
    met: [(u64, u32, Option<FrameFunction>); 16],
}

/// What is read of guests that do not move meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) guest: &'a dyn GuestMemory,
    pub(crate) layout: &'a Layout,
    pub(crate) runtime: u32,
}

/// Room for what is kept of functions.
pub(crate) fn kept() -> KeyTable<Function> {
    KeyTable::new(MOST_FUNCTIONS, MOST_BYTES)
}

impl Functions {
    /// Keeps what it sees in `kept`.
    pub(crate) fn new(kept: Arc<KeyTable<Function>>, name_atom: u32) -> Self {
        Self {
            places: Places::default(),
            kept,
            name_atom,
            may_allocate: true,
            wanted: Vec::with_capacity(MOST_WANTED),
            walk: 0,
            copied: 0,
            met: [(0, 0, None); 16],
        }
    }

    /// Begins a walk, during which memory does not change. If it may not allocate, functions that are new cannot be kept.
    pub(crate) fn begin(&mut self, may_allocate: bool) {
        self.may_allocate = may_allocate;
        self.walk += 1;
        self.places.begin();
        self.copied = 0;
    }

    /// Keeps the functions that earlier walks could not keep, if they are still there.
    pub(crate) fn keep_wanted(&mut self, guest: &dyn GuestMemory, layout: &Layout) {
        while let Some((runtime, object)) = self.wanted.pop() {
            // By now something else may be there.
            let _ = self.find(Reading { guest, layout, runtime }, object);
        }
    }

    /// The function that the object at `object` is.
    pub(crate) fn find(&mut self, reading: Reading<'_>, object: u32) -> Result<FrameFunction, Truncation> {
        let group = (object >> 3) as usize % self.met.len();
        if let Some(&(walk, met, Some(found))) = self.met.get(group)
            && (walk, met) == (self.walk, object)
        {
            return Ok(found);
        }
        let found = self.find_unmet(reading, object)?;
        if let Some(met) = self.met.get_mut(group) {
            *met = (self.walk, object, Some(found));
        }
        Ok(found)
    }

    fn find_unmet(&mut self, reading: Reading<'_>, object: u32) -> Result<FrameFunction, Truncation> {
        let Reading { guest, layout, runtime } = reading;
        let members = &layout.object;
        let last = members.class_id.max(members.shape).max(members.prop).max(members.function_bytecode);
        let window = Window::read(guest, object, last.checked_add(4).ok_or(Truncation::Inconsistent)?)?;
        let class = window.half(members.class_id)?;
        let bytecode = if layout.classes.bytecode.contains(&class) {
            window.word(members.function_bytecode)?
        } else if class == layout.classes.c_function || layout.classes.native.contains(&class) {
            0
        } else {
            return Err(Truncation::Inconsistent);
        };
        let (shape, values) = (window.word(members.shape)?, window.word(members.prop)?);
        let name = properties::name(reading, self.name_atom, shape, values)?;
        let words = if bytecode == 0 { [0; 7] } else { words(guest, layout, bytecode)? };
        if let Some(found) = self.places.find(reading, (bytecode, name), words)?
            && self.has_lines(guest, found, words)?
        {
            return Ok(found);
        }
        if !self.may_allocate {
            if self.wanted.len() < MOST_WANTED && !self.wanted.contains(&(runtime, object)) {
                self.wanted.push((runtime, object));
            }
            return Err(Truncation::WouldAllocate);
        }
        let [code, code_length, ..] = words;
        let is_native = bytecode == 0;
        if !is_native && (code_length == 0 || u64::from(code) + u64::from(code_length) > guest.size()) {
            return Err(Truncation::Inconsistent);
        }
        let mut found = FrameFunction { id: FunctionId::UNKEPT, is_native, code, code_length };
        if self.copied <= MOST_A_WALK {
            let function = read(reading, is_native, words, name)?;
            self.copied += function.size();
            found.id = self.keep(function)?;
            self.places.insert(reading, (bytecode, name), words, found)?;
        }
        Ok(found)
    }

    /// Whether the table of lines of bytecode with those members is the function's: all of it, if it is not large.
    fn has_lines(&self, guest: &dyn GuestMemory, found: FrameFunction, words: [u32; 7]) -> Result<bool, Truncation> {
        // Of functions that were not kept nothing is shown, and no lines of those whose tables were not.
        let Some(function) = self.kept.get(found.id.0).filter(|function| !function.lines.is_empty()) else {
            return Ok(true);
        };
        let ([.., address], lines) = (words.map(u64::from), &function.lines);
        if lines.len() <= WHOLE_TABLE {
            return holds(guest, address, lines);
        }
        for piece in 0..PIECES {
            let start = (lines.len() - PIECE) * piece / (PIECES - 1);
            let bytes = lines.get(start..start + PIECE).unwrap_or_default();
            if !holds(guest, address + start as u64, bytes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[cold]
    fn keep(&self, function: Function) -> Result<FunctionId, Truncation> {
        let size = function.size();
        match self.kept.keep(function, size) {
            Ok(number) => Ok(FunctionId(number)),
            Err(NotKept::Full) => Ok(FunctionId::UNKEPT),
            Err(NotKept::Busy) => Err(Truncation::Busy),
        }
    }
}

impl Function {
    fn size(&self) -> usize {
        self.lines.len() + self.name.len() + self.file.as_ref().map_or(0, String::len) + size_of::<Self>()
    }
}

/// Of the bytecode at `address`: where the code is, its length, the file's atom, line, column, length of the table of lines
/// and where that is.
fn words(guest: &dyn GuestMemory, layout: &Layout, address: u32) -> Result<[u32; 7], Truncation> {
    let members = &layout.bytecode;
    let offsets = [
        members.byte_code_buf,
        members.byte_code_len,
        members.filename,
        members.line_num,
        members.col_num,
        members.pc2line_len,
        members.pc2line_buf,
    ];
    let last = offsets.into_iter().max().unwrap_or(0);
    let window = Window::read(guest, address, last.checked_add(4).ok_or(Truncation::Inconsistent)?)?;
    let mut words = [0; 7];
    for (word, offset) in words.iter_mut().zip(offsets) {
        *word = window.word(offset)?;
    }
    Ok(words)
}

#[cold]
fn read(reading: Reading<'_>, is_native: bool, words: [u32; 7], name: u32) -> Result<Function, Truncation> {
    let Reading { guest, layout, runtime } = reading;
    let text = |text: u32, most: u32| Text::find(guest, &layout.string, text)?.read(guest, most);
    let [_, _, file, line, column, length, table] = words;
    let file = match values::atom(guest, layout, runtime, file)? {
        Atom::None => None,
        Atom::Number(number) => Some(number.to_string()),
        Atom::Text(file) => Some(text(file, LONGEST_FILE)?),
    };
    let mut lines = vec![0; if length > LARGEST_TABLE { 0 } else { length as usize }];
    guest.read(table.into(), &mut lines)?;
    let name = if name == 0 { String::new() } else { text(name, LONGEST_NAME)? };
    Ok(Function { name, is_native, file, line, column, lines: lines.into_boxed_slice() })
}
