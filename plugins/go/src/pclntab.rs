//! Go's function table, `pclntab`: from a Go pc to function, file, line and frame size.
//!
//! A Go pc on wasm is `(0x1000 + number of the function among the module's own) << 16 | block`, where `block` counts
//! the points at which a function can be resumed, and a few more. The table's entries are in the order of the module's
//! functions, so a lookup is an index. That this holds is checked for every entry when the table is found.

use crate::{
    decoded::DecodedTables,
    image::{Bytes, Image},
};

/// What the table starts with since Go 1.20: magic, two zeros, instructions of one byte, pointers of eight.
const HEADER: [u8; 8] = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
/// Number of the first function in pcs.
const FIRST_FUNCTION: u64 = 0x1000;
const LONGEST_NAME: usize = 4096;
/// Functions have at most 2^16 blocks.
const MOST_STEPS: usize = 1 << 16;
/// Frame sizes of one function. In all releases the compiler's have two: before and after the prologue. Walks decode them
/// while the guest stands still, thousands if it lies.
const MOST_SIZES: usize = 64;
/// Headers with the right number of functions that are looked at; more are there to waste time.
const MOST_HEADERS: usize = 16;

/// In what stands for the pc of a function that is between two of its blocks.
const BETWEEN_BLOCKS: u64 = 1 << 63;

/// Stands for the pc of function `index` on its way from one block to another, which has none.
pub(crate) fn between_blocks(index: u32) -> u64 {
    pc(index, 0) | BETWEEN_BLOCKS
}

/// `pc` without that mark, and whether it had it.
pub(crate) fn unmarked(pc: u64) -> (u64, bool) {
    (pc & !BETWEEN_BLOCKS, pc & BETWEEN_BLOCKS != 0)
}

/// A pc of function `index` (among the module's own functions).
pub(crate) fn pc(index: u32, block: u32) -> u64 {
    (FIRST_FUNCTION + u64::from(index)) << 16 | u64::from(block & 0xffff)
}

/// The block of a pc.
pub(crate) fn block(pc: u64) -> u32 {
    (pc & 0xffff) as u32
}

/// The table, found in the memory image.
#[derive(Debug)]
pub(crate) struct Pclntab {
    pub(crate) image: Image,
    /// Where the table lies.
    pub(crate) address: u64,
    functions: u32,
    names: u64,
    units: u64,
    files: u64,
    pctab: u64,
    functab: u64,
}

/// One function's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    /// Which of the module's own functions it is.
    pub(crate) index: u32,
    address: u64,
    name: u32,
    pcsp: u32,
    pcfile: u32,
    pcln: u32,
    pcdata: u32,
    unit: u32,
    start_line: u32,
    /// What the runtime knows it by. The numbers change between releases.
    pub(crate) id: u8,
    flags: u8,
    funcdata: u8,
}

impl Function {
    /// Whether a stack ends here, as at `runtime.goexit`.
    pub(crate) fn is_top_frame(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// One of the parts of a function's record that follow it, and what it was in Go 1.21 to 1.27.
const PCDATA_INLINE_INDEX: u32 = 2;
const FUNCDATA_INLINE_TREE: u8 = 3;
const FUNCTION_SIZE: u64 = 44;

impl Pclntab {
    /// Finds the table in `image`, for a module with `functions` functions of its own.
    pub(crate) fn find(image: Image, functions: u32) -> Result<Self, Image> {
        let is_right_size = |address: &u64| image.u64(address + 8) == Some(u64::from(functions));
        let headers = image.find_word(u64::from_le_bytes(HEADER)).filter(is_right_size);
        let found = headers.take(MOST_HEADERS).find_map(|address| {
            let word = |index: u64| image.u64(address + 8 * index);
            // Tables hold 32-bit offsets from here and memory ends at 4 GiB, so sums of such do not overflow.
            let part = |index: u64| Some(address + u64::from(u32::try_from(word(index)?).ok()?));
            let (names, units, files, pctab, functab) = (part(4)?, part(5)?, part(6)?, part(7)?, part(8)?);
            let in_order = (0..functions).all(|index| {
                let entry = image.u32(functab + 8 * u64::from(index)).map(u64::from);
                let index = FIRST_FUNCTION + u64::from(index);
                // A pc up to Go 1.24, a function's number since.
                entry == Some(index) || entry == Some(index << 16)
            });
            in_order.then_some((address, names, units, files, pctab, functab))
        });
        match found {
            Some((address, names, units, files, pctab, functab)) => {
                Ok(Self { image, address, functions, names, units, files, pctab, functab })
            }
            None => Err(image),
        }
    }

    /// Where the names begin, the second field of `moduledata`.
    pub(crate) fn names_address(&self) -> u64 {
        self.names
    }

    /// How many functions there are.
    pub(crate) fn len(&self) -> u32 {
        self.functions
    }

    /// Which function a pc is in.
    pub(crate) fn index(&self, pc: u64) -> Option<u32> {
        let index = u32::try_from((pc >> 16).checked_sub(FIRST_FUNCTION)?).ok()?;
        (index < self.functions).then_some(index)
    }

    pub(crate) fn function(&self, index: u32) -> Option<Function> {
        if index >= self.functions {
            return None;
        }
        let record = self.image.u32(self.functab + 8 * u64::from(index) + 4)?;
        let address = self.functab + u64::from(record);
        let field = |offset: u64| self.image.u32(address + offset);
        Some(Function {
            index,
            address,
            name: field(4)?,
            pcsp: field(16)?,
            pcfile: field(20)?,
            pcln: field(24)?,
            pcdata: field(28)?,
            unit: field(32)?,
            start_line: field(36)?,
            id: self.image.u8(address + 40)?,
            flags: self.image.u8(address + 41)?,
            funcdata: self.image.u8(address + 43)?,
        })
    }

    fn name_at(&self, offset: u32) -> Option<String> {
        self.image.text(self.names + u64::from(offset), LONGEST_NAME)
    }

    /// The first `longest` bytes of a function's name.
    pub(crate) fn name_up_to(&self, function: &Function, longest: usize) -> Option<String> {
        self.image.text(self.names + u64::from(function.name), longest)
    }

    pub(crate) fn name(&self, function: &Function) -> Option<String> {
        self.name_at(function.name)
    }

    /// What the table at an offset says: values, and the blocks at which they end.
    pub(crate) fn steps(&self, table: u32) -> impl Iterator<Item = (i32, u32)> + '_ {
        let bytes = self.image.bytes(self.pctab + u64::from(table));
        Steps { bytes, value: -1, block: 0, is_first: true, left: MOST_STEPS }
    }

    fn sizes(&self, function: &Function) -> impl Iterator<Item = (i32, u32)> + '_ {
        let most = if function.pcsp == 0 { 0 } else { MOST_SIZES };
        self.steps(function.pcsp).take(most)
    }

    /// How far the stack pointer is below the return address at a block.
    pub(crate) fn frame_size(&self, function: &Function, block: u32) -> Option<u32> {
        let size = self.sizes(function).find(|step| block < step.1)?.0;
        u32::try_from(size).ok()
    }

    /// Frame sizes of the whole function, for whoever asks more than once: a lookup decodes up to the block.
    pub(crate) fn frame_sizes(&self, function: &Function) -> FrameSizes {
        FrameSizes { steps: self.sizes(function).collect() }
    }

    /// One more than the function's last block.
    pub(crate) fn blocks(&self, function: &Function) -> u32 {
        self.sizes(function).last().map_or(1, |step| step.1)
    }

    pub(crate) fn line(&self, tables: &mut DecodedTables, function: &Function, block: u32) -> Option<u32> {
        tables.value(self, function.pcln, block).and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0)
    }

    pub(crate) fn start_line(&self, function: &Function) -> Option<u32> {
        line_number(function.start_line)
    }

    pub(crate) fn file(&self, tables: &mut DecodedTables, function: &Function, block: u32) -> Option<String> {
        let file = u32::try_from(tables.value(self, function.pcfile, block)?).ok()?;
        let index = function.unit.checked_add(file)?;
        let offset = self.image.u32(self.units + 4 * u64::from(index)).filter(|&offset| offset != u32::MAX)?;
        self.image.text(self.files + u64::from(offset), LONGEST_NAME)
    }

    /// Where the function's tree of inlined calls lies in memory.
    pub(crate) fn inline_tree(&self, function: &Function, gofunc: u64) -> Option<u64> {
        if function.funcdata <= FUNCDATA_INLINE_TREE {
            return None;
        }
        let fields = u64::from(function.pcdata) + u64::from(FUNCDATA_INLINE_TREE);
        let offset = self.image.u32(function.address + FUNCTION_SIZE + 4 * fields)?;
        (offset != u32::MAX).then(|| gofunc.checked_add(u64::from(offset)))?
    }

    /// The inlined call of `tree` that a block belongs to, if it does.
    pub(crate) fn inlined(
        &self,
        tables: &mut DecodedTables,
        function: &Function,
        tree: u64,
        block: u32,
    ) -> Option<InlinedFunction> {
        if function.pcdata <= PCDATA_INLINE_INDEX {
            return None;
        }
        let table = self.image.u32(function.address + FUNCTION_SIZE + 4 * u64::from(PCDATA_INLINE_INDEX))?;
        let index = u32::try_from(tables.value(self, table, block)?).ok()?;
        let call = tree.checked_add(16 * u64::from(index))?;
        Some(InlinedFunction {
            id: self.image.u8(call)?,
            name: self.name_at(self.image.u32(call + 4)?)?,
            parent_block: self.image.u32(call + 8)?,
            start_line: line_number(self.image.u32(call + 12)?),
        })
    }
}

fn line_number(line: u32) -> Option<u32> {
    (line > 0 && line <= i32::MAX as u32).then_some(line)
}

/// A function that was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InlinedFunction {
    pub(crate) id: u8,
    pub(crate) name: String,
    /// The block of the call that was inlined.
    pub(crate) parent_block: u32,
    pub(crate) start_line: Option<u32>,
}

/// What [`Pclntab::frame_size`] says, decoded.
#[derive(Clone, Debug)]
pub(crate) struct FrameSizes {
    /// Values, and the blocks at which they end, ascending.
    steps: Vec<(i32, u32)>,
}

impl FrameSizes {
    /// How far the stack pointer is below the return address at a block.
    pub(crate) fn at(&self, block: u32) -> Option<u32> {
        let at = self.steps.partition_point(|(_, end)| *end <= block);
        u32::try_from(self.steps.get(at)?.0).ok()
    }

    /// One more than the last block.
    pub(crate) fn blocks(&self) -> u32 {
        self.steps.last().map_or(1, |step| step.1)
    }
}

/// Decodes a table from blocks to values: pairs of a value and the block at which it ends.
struct Steps<'a> {
    bytes: Bytes<'a>,
    value: i32,
    block: u32,
    is_first: bool,
    left: usize,
}

impl Iterator for Steps<'_> {
    type Item = (i32, u32);

    fn next(&mut self) -> Option<(i32, u32)> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        self.left = self.left.checked_sub(1)?;
        let delta = self.bytes.varint()?;
        if delta == 0 && !is_first {
            self.left = 0;
            return None;
        }
        let delta = (delta >> 1).cast_signed() ^ -(delta & 1).cast_signed();
        self.value = self.value.wrapping_add(delta);
        self.block = self.block.checked_add(self.bytes.varint()?)?;
        Some((self.value, self.block))
    }
}
