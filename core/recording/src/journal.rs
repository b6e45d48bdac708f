//! A recording on disk as it grows: a file of blocks, each with its checksum, appended to while the guest runs.
//!
//! Layout: the eight bytes [`MAGIC`], a little-endian u32 [`VERSION`], then blocks. A block is a little-endian u32 with the
//! size of its contents, a u32 with their CRC-32, and the contents: a [`Block`] in postcard's wire format (varints, no
//! field names). Any change to what is written raises the version; others are refused with the numbers rather than misread.
//!
//! Whatever ends the process, what has been written stays a recording: a reader takes the whole blocks at its beginning.

use super::recent::Recent;
use super::requests::RequestTotal;
use super::{
    Function, Heap, HostCallSpan, Line, MemorySize, Meta, Module, ModuleId, NamedFrame, Origin, Stack, StoreId,
    TickCounts, Truncation,
};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom, Write};

/// First bytes of every recording.
pub const MAGIC: [u8; 8] = *b"wlprof\r\n";

/// Version of the format.
pub const VERSION: u32 = 1;

/// What comes before the contents of a block: size and checksum.
const BLOCK_HEADER: usize = 8;

/// A part of a recording. Tables grow block by block: what one says of an index holds from there on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Block {
    /// Comes first: what is known before the guest begins.
    Start(Meta, Vec<Module>),
    /// The next module, loaded later.
    Module(Module),
    /// The next store; its number is how many came before.
    Store { name: String },
    /// The next thread; its number is how many came before.
    Thread { name: String, tid: u64, store: StoreId },
    /// The next frames.
    Frames(Vec<Origin>),
    /// The next stacks.
    Stacks(Vec<Stack>),
    /// The next sets of labels, by the module whose plugin knows them and its keys.
    LabelKeys(Vec<(ModuleId, Vec<u64>)>),
    /// More samples of a thread, packed: see [`Samples`](super::Samples).
    Samples(u32, Box<[u8]>),
    /// More host calls of a thread.
    HostCalls(u32, Vec<HostCallSpan>),
    /// How far the run has come; a later one takes the place of an earlier.
    Progress(Progress),
    /// What frames are called, by whoever walked the language's stacks: names that no module tells. By their ids.
    LanguageNames(Vec<(u32, Vec<NamedFrame>)>),
    /// Names and values of the next sets of labels, in the order of their keys.
    LabelSets(Vec<Vec<(String, String)>>),
    /// All samples have been written.
    End(End),
    /// What every frame is called, and what was found to be said of that.
    Symbols { functions: Vec<Function>, lines: Vec<Vec<Line>>, notes: Vec<String> },
    /// Sizes of a store's memory, later than those before.
    Memory(StoreId, Vec<MemorySize>),
    /// What the embedder says of a store.
    StoreLabels(StoreId, Vec<(String, String)>),
    /// A module that was loaded later, with the number of one that nothing refers to.
    ModuleInPlaceOf(ModuleId, Module),
    /// What the guest of a store has allocated so far; a later one takes the place of an earlier.
    Heap(StoreId, Heap),
    /// The requests that the guest answered.
    Requests(Vec<RequestTotal>),
    /// [`Meta::architecture`].
    Architecture(String),
    /// [`Heap::number`] of a store, in windows alone.
    HeapNumber(StoreId, u64),
}

/// How a run came out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) meta: Meta,
    pub(super) ticks: TickCounts,
    pub(super) truncated: Vec<(Truncation, u64)>,
}

/// What stands in for the end of a recording that was cut short.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Nanoseconds since sampling began.
    pub(super) duration_ns: u64,
    /// CPU time of the guest's thread, in nanoseconds.
    pub(super) cpu_ns: u64,
    pub(super) truncated: Vec<(Truncation, u64)>,
}

/// A block as it stands in the file.
pub(super) fn block_bytes(block: &Block) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(block, vec![0; BLOCK_HEADER]).map_err(io::Error::other)?;
    let contents = &bytes[BLOCK_HEADER..];
    let size = u32::try_from(contents.len()).map_err(|_| io::Error::other("a part of the recording is too large"))?;
    let checksum = crc32fast::hash(contents);
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes[4..BLOCK_HEADER].copy_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// Writes a whole recording: these blocks.
///
/// # Errors
/// Whatever `out` fails with.
pub(super) fn write_all(blocks: impl IntoIterator<Item = Block>, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    append_all(blocks, out)
}

/// Writes blocks of a recording that is begun.
///
/// # Errors
/// Whatever `out` fails with.
pub(super) fn append_all(blocks: impl IntoIterator<Item = Block>, out: &mut dyn Write) -> io::Result<()> {
    blocks.into_iter().try_for_each(|block| out.write_all(&block_bytes(&block)?))
}

/// Why there is no next block.
#[derive(Debug)]
pub(super) enum NoBlock {
    /// The file ends here.
    End,
    /// The file ends within a block.
    Cut,
    /// What stands there is no block.
    Damaged,
    /// The file cannot be read.
    Read(io::Error),
}

/// Reads the next block.
pub(super) fn read_block(input: &mut dyn Read) -> Result<Block, NoBlock> {
    let mut header = Vec::with_capacity(BLOCK_HEADER);
    input.take(BLOCK_HEADER as u64).read_to_end(&mut header).map_err(NoBlock::Read)?;
    let number =
        |at: usize| header.get(at..at + 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let (Some(size), Some(checksum)) = (number(0), number(4)) else {
        return Err(if header.is_empty() { NoBlock::End } else { NoBlock::Cut });
    };
    // Grows with what is there, not with what the header says.
    let mut contents = Vec::new();
    input.take(size.into()).read_to_end(&mut contents).map_err(NoBlock::Read)?;
    if contents.len() < size as usize {
        return Err(NoBlock::Cut);
    }
    if crc32fast::hash(&contents) != checksum {
        return Err(NoBlock::Damaged);
    }
    match postcard::take_from_bytes(&contents) {
        Ok((block, [])) => Ok(block),
        _ => Err(NoBlock::Damaged),
    }
}

/// Where a recording is written while it grows.
#[derive(Debug)]
pub struct Journal {
    sink: Sink,
    /// Bytes of whole blocks.
    length: u64,
    /// A second file that has the same.
    copy: Option<File>,
    /// What is kept for who looks at the recording while it grows.
    recent: Option<Recent>,
    failure: Option<io::Error>,
    /// What is written could not be read: it has no beginning.
    is_over: bool,
}

#[derive(Debug)]
enum Sink {
    /// Only what is kept of it.
    Nowhere,
    Memory(Vec<u8>),
    File(File),
}

impl Default for Journal {
    /// In memory.
    fn default() -> Self {
        Self::begin(Sink::Memory(Vec::new()), None, None)
    }
}

impl Journal {
    /// In a file, which should be new and empty. What is written goes into `copy` as well, as long as that can be written:
    /// a file under the name that the user gave, which the guest may be able to change.
    pub fn in_file(file: File, copy: Option<File>) -> Self {
        Self::begin(Sink::File(file), copy, None)
    }

    /// Only in memory, and of samples no more than somebody wants to see. Nothing is there of it when all is over.
    pub fn of_windows() -> Self {
        Self::begin(Sink::Nowhere, None, Some(Recent::default()))
    }

    /// Keeps in memory as well what somebody may want to see while it grows.
    #[must_use]
    pub fn with_windows(mut self) -> Self {
        let mut recent = Recent::default();
        recent.take_head(&Self::header());
        self.recent.get_or_insert(recent);
        self
    }

    pub(super) fn header() -> Vec<u8> {
        MAGIC.into_iter().chain(VERSION.to_le_bytes()).collect()
    }

    fn begin(sink: Sink, copy: Option<File>, recent: Option<Recent>) -> Self {
        let mut journal = Self { sink, length: 0, copy, recent, failure: None, is_over: false };
        journal.is_over = !journal.append(&Self::header());
        journal.recent.iter_mut().for_each(|recent| recent.take_head(&Self::header()));
        journal
    }

    /// Appends a block that all others build upon. If that fails nothing is written any more.
    pub(super) fn write_basis(&mut self, block: &Block) {
        self.is_over |= !self.write(block);
    }

    /// Appends a block. `false` if that fails; the journal is as it was before then.
    pub(super) fn write(&mut self, block: &Block) -> bool {
        match block_bytes(block) {
            _ if self.is_over => false,
            Ok(bytes) => {
                let written = self.append(&bytes);
                // Tables that are not on the disk are written once more.
                if written && let Some(recent) = &mut self.recent {
                    recent.take(block, &bytes);
                }
                written
            }
            Err(error) => {
                self.failure.get_or_insert(error);
                false
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> bool {
        // In one piece, so that whoever reads meanwhile finds whole blocks.
        let written = match &mut self.sink {
            Sink::Nowhere => Ok(()),
            Sink::Memory(all) => all.write_all(bytes),
            Sink::File(file) => file.write_all(bytes).inspect_err(|_| {
                // What follows a part of a block could not be read.
                let _ = file.set_len(self.length).and_then(|()| file.seek(SeekFrom::Start(self.length)));
            }),
        };
        match written {
            Ok(()) => {
                self.length += bytes.len() as u64;
                self.copy = self.copy.take().filter(|mut copy| copy.write_all(bytes).is_ok());
                true
            }
            Err(error) => {
                self.failure.get_or_insert(error);
                false
            }
        }
    }

    /// What is kept for who looks at the recording while it grows.
    pub(super) fn recent(&mut self) -> Option<&mut Recent> {
        self.recent.as_mut()
    }

    /// What is kept, if that is all there is of it.
    pub(super) fn only_recent(&mut self) -> Option<&mut Recent> {
        self.recent.as_mut().filter(|_| matches!(self.sink, Sink::Nowhere))
    }

    /// Why something could not be written.
    pub fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// What has been written, from its beginning. Nothing can be written any more.
    ///
    /// # Errors
    /// Whatever the file fails with.
    pub fn into_reader(self) -> io::Result<Box<dyn Read>> {
        Ok(match self.sink {
            Sink::Nowhere => Box::new(io::empty()),
            Sink::Memory(bytes) => Box::new(Cursor::new(bytes)),
            Sink::File(mut file) => {
                file.rewind()?;
                Box::new(BufReader::with_capacity(1 << 16, file))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(duration_ns: u64) -> Block {
        Block::Progress(Progress { duration_ns, ..Progress::default() })
    }

    fn durations(mut input: &[u8]) -> (Vec<u64>, NoBlock) {
        let mut found = Vec::new();
        loop {
            match read_block(&mut input) {
                Ok(Block::Progress(progress)) => found.push(progress.duration_ns),
                Ok(other) => panic!("{other:?}"),
                Err(none) => return (found, none),
            }
        }
    }

    #[test]
    fn blocks_are_read_up_to_where_they_are_whole() {
        let blocks = [progress(1), progress(2), progress(3)].map(|block| block_bytes(&block).unwrap());
        let whole = blocks.concat();
        assert!(matches!(durations(&whole), (found, NoBlock::End) if found == [1, 2, 3]));
        for end in whole.len() - blocks[2].len() + 1..whole.len() {
            assert!(matches!(durations(&whole[..end]), (found, NoBlock::Cut) if found == [1, 2]), "cut at {end}");
        }
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(matches!(durations(&damaged), (found, NoBlock::Damaged) if found == [1, 2]));
    }

    #[test]
    fn a_size_beyond_the_end_takes_no_memory() {
        let mut huge = block_bytes(&progress(1)).unwrap();
        huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(durations(&huge), (found, NoBlock::Cut) if found.is_empty()));
    }

    #[test]
    fn a_full_disk_leaves_whole_blocks() {
        // Every write to it fails with `ENOSPC`.
        let full = File::options().write(true).open("/dev/full").unwrap();
        let journal = Journal::in_file(full, None);
        assert_eq!(journal.failure().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
    }
}
