//! What a plugin must survive: memory that says what cannot be, in the very places that the walk looks at, and modules that
//! were tampered with.

use super::moment::Moment;
use std::cell::RefCell;
use std::collections::BTreeMap;
use wlprof_module::ModuleImage;
use wlprof_plugin::{GuestMemory, ModuleView, OutOfBounds, WasmFrame};

/// Damaged memories of each moment, and damaged modules.
const MEMORIES: usize = 300;
const MODULES: usize = 40;
/// Memory behind the guest's own where texts do not end.
const MORE_MEMORY: u64 = 16 << 20;
/// Before this round texts do not end, from farther and farther on in the walk.
pub(super) const FIRST_RANDOM: usize = 60;
/// Addresses that a walk read which are remembered.
const MOST_READ: usize = 1 << 10;

/// A moment with some bytes of its memory replaced, or without any memory.
pub(super) struct DamagedMoment<'a> {
    moment: &'a Moment,
    size: u64,
    bytes: BTreeMap<u64, u8>,
    /// From here on all is `A`, so that texts do not end; nothing is, or everything.
    endless_text: u64,
    has_frames: bool,
}

impl DamagedMoment<'_> {
    pub(super) fn wasm(&self) -> &[WasmFrame] {
        if self.has_frames { &self.moment.wasm } else { &[] }
    }
}

impl GuestMemory for DamagedMoment<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let end = address.checked_add(buffer.len() as u64).filter(|end| *end <= self.size).ok_or(OutOfBounds)?;
        if end <= self.endless_text {
            self.moment.read(address, buffer)?;
        }
        let endless = self.endless_text.clamp(address, end);
        buffer[(endless - address) as usize..].fill(b'A');
        for (at, byte) in self.bytes.range(address..end) {
            buffer[(at - address) as usize] = *byte;
        }
        Ok(())
    }

    fn global(&self, index: u32) -> Option<u64> {
        self.moment.global(index).filter(|_| self.size > 0)
    }
}

/// Remembers what is read of a moment.
struct ReadLog<'a> {
    moment: &'a Moment,
    /// In the order of the first reads.
    read: RefCell<Vec<u64>>,
}

impl GuestMemory for ReadLog<'_> {
    fn size(&self) -> u64 {
        self.moment.size()
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let mut read = self.read.borrow_mut();
        if read.len() < MOST_READ && !read.contains(&address) {
            read.push(address);
        }
        self.moment.read(address, buffer)
    }

    fn global(&self, index: u32) -> Option<u64> {
        self.moment.global(index)
    }
}

/// Where `walk` reads, in the order of the first reads.
pub(super) fn addresses_read(moment: &Moment, walk: impl FnOnce(&dyn GuestMemory)) -> Vec<u64> {
    let watched = ReadLog { moment, read: RefCell::default() };
    walk(&watched);
    watched.read.into_inner()
}

/// Damaged memories with their numbers: changed at some of `addresses`.
pub(super) fn memories(moment: &Moment, addresses: Vec<u64>) -> impl Iterator<Item = (usize, DamagedMoment<'_>)> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..MEMORIES).map(move |round| {
        let mut damaged = DamagedMoment {
            moment,
            size: moment.size(),
            bytes: BTreeMap::new(),
            endless_text: u64::MAX,
            has_frames: round % 5 != 4,
        };
        match round {
            0 => damaged.size = 0,
            1 => damaged.size /= 2,
            // As much memory is left as it was as the walk needs to come to a text.
            2..FIRST_RANDOM if !addresses.is_empty() => {
                let whole = addresses.len() * (round - 1) / (FIRST_RANDOM - 2);
                let mut word = [0; 8];
                for &at in &addresses[..whole] {
                    // A text is read byte by byte, or in pieces that are longer than what leads to it.
                    let length = if addresses.contains(&(at + 1)) { 1 } else { word.len() };
                    if moment.read(at, &mut word[..length]).is_ok() {
                        damaged.bytes.extend((at..).zip(word).take(length));
                    }
                }
                // There may be little memory behind the guest's texts.
                damaged.size += MORE_MEMORY;
                damaged.endless_text = 0;
            }
            _ => {
                // From one word to all that is read.
                for _ in 0..1_usize << (round % 8) {
                    if addresses.is_empty() {
                        break;
                    }
                    let at = addresses[random.below(addresses.len())];
                    let other = addresses[random.below(addresses.len())];
                    // The last one leads the stack back into itself.
                    let value = match random.below(7) {
                        0 => 0,
                        1 => u64::MAX,
                        2 => random.next(),
                        3 => random.next() & 0xffff,
                        4 => moment.size() - 1,
                        5 => 0x7fff_ffff,
                        _ => other,
                    };
                    let width = [1, 2, 4, 8][random.below(4)];
                    damaged.bytes.extend((at..).zip(value.to_le_bytes()).take(width));
                }
            }
        }
        (round, damaged)
    })
}

/// Damaged modules with their numbers; those that are no modules any more are left out.
pub(super) fn modules(image: &ModuleImage) -> impl Iterator<Item = (usize, ModuleImage)> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    (0..MODULES).filter_map(move |round| {
        let mut bytes = image.bytes().to_vec();
        // Data, names and debug information come last.
        let first = bytes.len() / 100 * random.below(100);
        for _ in 0..1_usize << (round % 10) {
            let at = first + random.below(bytes.len() - first);
            bytes[at] = random.next() as u8;
        }
        if round % 7 == 6 {
            bytes.truncate(first);
        }
        ModuleImage::parse(bytes, image.name()).ok().map(|image| (round, image))
    })
}

/// Xorshift: the same damage each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
