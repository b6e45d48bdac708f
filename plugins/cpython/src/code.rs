//! Code objects: known by their address as long as what lies there is what lay there before, and copied when first
//! seen, so that frames can be named when the guest has long freed them.

use crate::{
    layout::{Layout, OBJECT_SIZE, OBJECT_TYPE, TYPE_NAME},
    spare::{CodeCopy, SpareCodes},
    text::Text,
};
use foldhash::{SharedSeed, fast::SeedableRandomState};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, OnceLock},
};
use wlprof_plugin::{GuestMemory, KeyTable, NotKept, Truncation};

/// Longest texts that are kept, in characters.
const LONGEST_FILE: u32 = 2048;
const LONGEST_NAME: u32 = 1024;
/// Largest location table that is kept, in bytes: that of a function of a hundred thousand lines.
const LARGEST_TABLE: u32 = 1 << 20;
/// Code objects that are kept, and bytes of them all; frames of any others have no name.
const MOST_CODES: u32 = 1 << 20;
const MOST_BYTES: usize = 256 << 20;
/// Names of files that are kept, likewise.
const MOST_FILES: u32 = 1 << 16;
/// Bytes that one walk copies; code objects that it meets after that are left for later walks.
const MOST_A_WALK: usize = 4 << 20;
/// Addresses that are remembered.
const MOST_ADDRESSES: usize = 1 << 16;
/// How much of a code object is compared: more than any release has before its instructions.
const WINDOW: usize = 128;
/// Code objects that wait for a walk that may keep them.
const MOST_WANTED: usize = 64;
/// How much of the location table, and of the file's name and the function's.
const TABLE_SAMPLE: usize = 40;
const FILE_SAMPLE: usize = 16;

/// A code object's number. Equal ones have at most two: one by walks that may allocate, and one by those that may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeId(pub(crate) u32);

impl CodeId {
    /// What does not fit any more.
    const UNKEPT: Self = Self(u32::MAX >> 1);
    /// The first of those in [`SpareCodes`].
    const SPARE: u32 = MOST_CODES;

    /// Its number among the spare ones, if it is one.
    fn spare(self) -> Option<u32> {
        self.0.checked_sub(Self::SPARE).filter(|_| self != Self::UNKEPT)
    }
}

/// What is kept of a code object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Code {
    pub(crate) file: Arc<str>,
    pub(crate) qualified_name: String,
    pub(crate) first_line: u32,
    /// Empty if it was too large.
    pub(crate) location_table: Box<[u8]>,
}

/// A code object as a frame has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameCode {
    pub(crate) id: CodeId,
    /// Where its instructions begin, and how many code units of two bytes there are.
    pub(crate) instructions: u32,
    pub(crate) units: u32,
    /// Whether it is part of the import system.
    pub(crate) is_importer: bool,
    /// Whether it is the code that the runtime runs between a class and its `__init__`, which Python shows nowhere.
    pub(crate) is_trampoline: bool,
}

/// What is kept of code objects, by number, for all walkers of a module. Names of files are kept once.
#[derive(Debug)]
pub(crate) struct KeptCodes {
    codes: KeyTable<Code>,
    files: KeyTable<Arc<str>>,
    spare: SpareCodes,
    hasher: SeedableRandomState,
}

/// All code objects seen.
#[derive(Debug)]
pub(crate) struct Codes {
    kept: Arc<KeptCodes>,
    /// Looked up for each frame of each walk, and so not by the standard library's hasher, which takes a tenth of a walk's time.
    by_address: HashMap<u32, SeenCode, SeedableRandomState>,
    /// The address of `PyCode_Type`, once it is known.
    code_type: Option<u32>,
    may_allocate: bool,
    /// Code objects met in walks that may not allocate and had no room for them: a function that does nothing but copy memory is
    /// hardly ever met in any other walk.
    wanted: Vec<u32>,
    walk: u64,
    /// Bytes that this walk has copied.
    copied: usize,
    files_seen: FileSamples,
    /// What a walk that may not allocate reads a code object into.
    copy: Box<CodeCopy>,
}

/// Parts of names of files that this walk has read, by the addresses of the strings: most frames have the same few.
#[derive(Debug, Default)]
struct FileSamples([(u64, u32, [u8; FILE_SAMPLE]); 8]);

/// What lay at an address. Small, since a walk reads that of each frame, which the processor has mostly forgotten by then.
#[derive(Clone, Debug)]
struct SeenCode {
    found: FrameCode,
    /// The hash of its [`Identity`].
    identity: u64,
    /// The walk in which it was last compared.
    walk: u64,
}

/// What must be the same for a code object to be the same.
#[derive(Hash)]
struct Identity {
    /// Type, size, constants, names, exception table, first line, file name, name, qualified name, location table:
    /// addresses of other objects for the most part. Counters and caches, which change, are left out.
    words: [u32; 10],
    /// Those objects may have been freed and others put in their places, so some of their contents too.
    table: [u8; TABLE_SAMPLE],
    file: [u8; FILE_SAMPLE],
    /// The end of the qualified name and its size.
    name: ([u8; FILE_SAMPLE], u64),
}

impl Default for KeptCodes {
    fn default() -> Self {
        let (codes, files) = (KeyTable::new(MOST_CODES, MOST_BYTES), KeyTable::new(MOST_FILES, MOST_BYTES / 4));
        Self { codes, files, spare: SpareCodes::default(), hasher: keyed_hasher() }
    }
}

impl KeptCodes {
    /// Whether code objects were not kept for want of room.
    pub(crate) fn is_full(&self) -> bool {
        self.codes.is_full() || self.files.is_full()
    }

    /// Whether there was no room for code objects that were first met where nothing may be allocated.
    pub(crate) fn is_spare_full(&self) -> bool {
        self.spare.is_full()
    }

    /// The kept code object of that number.
    pub(crate) fn get(&self, id: CodeId) -> Option<&Code> {
        match id.spare() {
            Some(number) => self.spare.get(number),
            None => self.codes.get(id.0),
        }
    }
}

impl Codes {
    /// Keeps what it sees in `kept`.
    pub(crate) fn new(kept: Arc<KeptCodes>) -> Self {
        kept.spare.make_ready();
        Self {
            by_address: HashMap::with_capacity_and_hasher(MOST_WANTED, kept.hasher.clone()),
            kept,
            code_type: None,
            may_allocate: true,
            wanted: Vec::with_capacity(MOST_WANTED),
            walk: 0,
            copied: 0,
            files_seen: FileSamples::default(),
            copy: Box::new(CodeCopy::new()),
        }
    }

    /// Begins a walk, during which memory does not change. If it may not allocate, there is room for few code objects that are
    /// new.
    pub(crate) fn begin(&mut self, may_allocate: bool) {
        self.may_allocate = may_allocate;
        self.walk += 1;
        self.copied = 0;
        if may_allocate {
            self.kept.spare.make_ready();
            self.by_address.reserve(MOST_WANTED);
        }
    }

    /// Keeps the code objects that earlier walks could not keep, if they are still there.
    pub(crate) fn keep_wanted(&mut self, guest: &dyn GuestMemory, layout: &Layout) {
        while let Some(address) = self.wanted.pop() {
            // By now something else may be there.
            let _ = self.find(guest, layout, address);
        }
    }

    /// The code object at `address`.
    pub(crate) fn find(
        &mut self,
        guest: &dyn GuestMemory,
        layout: &Layout,
        address: u32,
    ) -> Result<FrameCode, Truncation> {
        if let Some(seen) = self.by_address.get_mut(&address) {
            if seen.walk == self.walk {
                return Ok(seen.found);
            }
            let words = words(guest, layout, address)?;
            let identity = Identity::of(words, guest, layout, &mut self.files_seen, self.walk)?;
            if self.kept.hasher.hash_one(identity) == seen.identity {
                seen.walk = self.walk;
                return Ok(seen.found);
            }
        }
        let met = self.meet(guest, layout, address);
        let is_for_later = met == Err(Truncation::WouldAllocate) && self.wanted.len() < MOST_WANTED;
        if is_for_later && !self.wanted.contains(&address) {
            self.wanted.push(address);
        }
        met
    }

    /// The code object at `address`, where this walker has seen none yet, or another.
    #[cold]
    fn meet(&mut self, guest: &dyn GuestMemory, layout: &Layout, address: u32) -> Result<FrameCode, Truncation> {
        if self.may_allocate && self.by_address.len() >= MOST_ADDRESSES {
            self.by_address.clear();
        }
        if !self.may_allocate && self.by_address.len() == self.by_address.capacity() {
            return Err(Truncation::WouldAllocate);
        }
        let words = words(guest, layout, address)?;
        let identity = Identity::of(words, guest, layout, &mut self.files_seen, self.walk)?;
        let identity = self.kept.hasher.hash_one(identity);
        let is_too_much = self.copied > MOST_A_WALK;
        let found = self.read(guest, layout, address, words)?;
        if !is_too_much {
            self.by_address.insert(address, SeenCode { found, identity, walk: self.walk });
        }
        Ok(found)
    }

    fn read(
        &mut self,
        guest: &dyn GuestMemory,
        layout: &Layout,
        address: u32,
        words: [u32; 10],
    ) -> Result<FrameCode, Truncation> {
        let [code_type, units, .., first_line, file_name, name, qualified_name, location_table] = words;
        self.check_type(guest, code_type)?;
        let instructions = address.checked_add(layout.code.instructions).ok_or(Truncation::Inconsistent)?;
        let length = u64::from(units) * 2;
        if units == 0 || u64::from(instructions) + length > guest.size() || !address.is_multiple_of(4) {
            return Err(Truncation::Inconsistent);
        }
        if self.copied > MOST_A_WALK {
            return Ok(FrameCode { id: CodeId::UNKEPT, instructions, units, is_importer: false, is_trampoline: false });
        }
        let file = Text::find(guest, &layout.text, file_name)?;
        let is_importer = file.begins(guest, b"<frozen importlib")? || file.begins(guest, b"<frozen zipimport>")?;
        let is_trampoline = first_line == 0 && file.length == 8 && file.begins(guest, b"__init__")?;
        // Unless something makes code objects on its own, both are there.
        let qualified_name =
            Text::find(guest, &layout.text, qualified_name).or_else(|_| Text::find(guest, &layout.text, name))?;
        let table_length = guest.read_u32(u64::from(location_table) + u64::from(OBJECT_SIZE))?;
        let table = u64::from(location_table) + u64::from(layout.code.bytes_data);
        let id = if self.may_allocate {
            let (file, qualified_name) = (file.read(guest, LONGEST_FILE)?, qualified_name.read(guest, LONGEST_NAME)?);
            let mut bytes = vec![0; if table_length > LARGEST_TABLE { 0 } else { table_length as usize }];
            guest.read(table, &mut bytes)?;
            self.copied += bytes.len() + qualified_name.len() + file.len();
            self.keep(file, qualified_name, first_line, bytes)?
        } else {
            let KeptCodes { spare, hasher, .. } = &*self.kept;
            self.copy.read(guest, (file, qualified_name), first_line, (table, table_length))?;
            CodeId(CodeId::SPARE + spare.keep(hasher, &mut self.copy)?)
        };
        Ok(FrameCode { id, instructions, units, is_importer, is_trampoline })
    }

    /// Whether `candidate` is the type `code`. It is the same object in all code objects.
    fn check_type(&mut self, guest: &dyn GuestMemory, candidate: u32) -> Result<(), Truncation> {
        if self.code_type == Some(candidate) {
            return Ok(());
        }
        let mut name = [0; 5];
        let address = guest.read_u32(u64::from(candidate) + u64::from(TYPE_NAME))?;
        guest.read(address.into(), &mut name)?;
        if self.code_type.is_some() || &name != b"code\0" {
            return Err(Truncation::Inconsistent);
        }
        self.code_type = Some(candidate);
        Ok(())
    }

    fn keep(
        &self,
        file: String,
        qualified_name: String,
        first_line: u32,
        table: Vec<u8>,
    ) -> Result<CodeId, Truncation> {
        let KeptCodes { codes, files, .. } = &*self.kept;
        let number = |number| match number {
            Ok(number) => Ok(Some(number)),
            Err(NotKept::Full) => Ok(None),
            Err(NotKept::Busy) => Err(Truncation::Busy),
        };
        let size = file.len();
        let file = number(files.keep(file.into(), size))?.and_then(|number| files.get(number));
        let Some(file) = file else { return Ok(CodeId::UNKEPT) };
        let size = table.len() + qualified_name.len() + size_of::<Code>();
        let code =
            Code { file: Arc::clone(file), qualified_name, first_line, location_table: table.into_boxed_slice() };
        Ok(number(codes.keep(code, size))?.map_or(CodeId::UNKEPT, CodeId))
    }
}

/// A hasher whose keys are all random: guests choose the addresses, and what lies there, and must not know what has the same
/// hash.
fn keyed_hasher() -> SeedableRandomState {
    static SHARED: OnceLock<SharedSeed> = OnceLock::new();
    let random = || RandomState::new().hash_one(0);
    SeedableRandomState::with_seed(random(), SHARED.get_or_init(|| SharedSeed::from_u64(random())))
}

/// The words of [`Identity`] of the code object at `address`.
fn words(guest: &dyn GuestMemory, layout: &Layout, address: u32) -> Result<[u32; 10], Truncation> {
    let code = &layout.code;
    // Constants, names and the exception table follow the size in every release.
    let offsets = [
        OBJECT_TYPE,
        OBJECT_SIZE,
        OBJECT_SIZE + 4,
        OBJECT_SIZE + 8,
        OBJECT_SIZE + 12,
        code.first_line,
        code.file_name,
        code.name,
        code.qualified_name,
        code.line_table,
    ];
    let mut window = [0; WINDOW];
    let wanted = (code.line_table as usize + 4).min(WINDOW);
    guest.read(address.into(), &mut window[..wanted])?;
    let mut words = [0; 10];
    for (word, offset) in words.iter_mut().zip(offsets) {
        let bytes = window.get(offset as usize..offset as usize + 4).ok_or(Truncation::Inconsistent)?;
        *word = u32::from_le_bytes(bytes.try_into().map_err(|_| Truncation::Inconsistent)?);
    }
    Ok(words)
}

impl Identity {
    /// That of the code object with these words.
    fn of(
        words: [u32; 10],
        guest: &dyn GuestMemory,
        layout: &Layout,
        files: &mut FileSamples,
        walk: u64,
    ) -> Result<Self, Truncation> {
        let [.., file_name, name, qualified_name, location_table] = words;
        Ok(Self {
            words,
            table: table_sample(guest, layout, location_table)?,
            file: files.get(guest, layout, file_name, walk)?,
            name: text_sample(guest, layout, if qualified_name == 0 { name } else { qualified_name })?,
        })
    }
}

/// The size and the first bytes of the location table.
fn table_sample(guest: &dyn GuestMemory, layout: &Layout, address: u32) -> Result<[u8; TABLE_SAMPLE], Truncation> {
    let mut table = [0; TABLE_SAMPLE];
    guest.read(u64::from(address) + u64::from(OBJECT_SIZE), &mut table)?;
    // After the size comes the hash, which is computed when first asked for.
    table[4..8].fill(0);
    // And after a table so short that this reads past it, something else.
    let length = u32::from_le_bytes([table[0], table[1], table[2], table[3]]);
    let header = layout.code.bytes_data.saturating_sub(OBJECT_SIZE);
    let used = u64::from(length).saturating_add(header.into());
    if used < TABLE_SAMPLE as u64 {
        table[used as usize..].fill(0);
    }
    Ok(table)
}

/// The last bytes of a string and its size.
fn text_sample(guest: &dyn GuestMemory, layout: &Layout, object: u32) -> Result<([u8; FILE_SAMPLE], u64), Truncation> {
    let text = Text::find(guest, &layout.text, object)?;
    let size = u64::from(text.length) * u64::from(text.width);
    let length = size.min(FILE_SAMPLE as u64);
    let mut read = [0; FILE_SAMPLE];
    guest.read(text.address + size - length, &mut read[..length as usize])?;
    Ok((read, size))
}

impl FileSamples {
    /// The last bytes of the name, at which names of files differ.
    fn get(
        &mut self,
        guest: &dyn GuestMemory,
        layout: &Layout,
        address: u32,
        walk: u64,
    ) -> Result<[u8; FILE_SAMPLE], Truncation> {
        let (sampled, of, sample) = &mut self.0[(address >> 4) as usize % 8];
        if (*sampled, *of) == (walk, address) {
            return Ok(*sample);
        }
        let (read, _) = text_sample(guest, layout, address)?;
        (*sampled, *of, *sample) = (walk, address, read);
        Ok(read)
    }
}
