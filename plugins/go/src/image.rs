//! The module's linear memory as it is before the program starts, put together from the data segments.
//!
//! Go's linker leaves out every run of eight or more zero bytes, so a small program has 20,000 segments and even the
//! header of its function table is in two of them. Nothing can be searched or read in the raw section: wzprof did, and
//! failed on one program in eight.

/// Data segments closer than this are one chunk, zeros between. Bounds what a module of many tiny segments costs.
const GAP: u64 = 64;

/// Memory contents, sparse. Whatever no segment sets is zero.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// Ascending, not overlapping; starts and lengths are multiples of eight, so no aligned word is in two of them.
    chunks: Vec<Chunk>,
}

#[derive(Debug)]
struct Chunk {
    start: u64,
    bytes: Vec<u8>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Image {
    /// Puts segments together. They come in any order: since Go 1.26 the function table is last and not at the end.
    pub(crate) fn new(mut segments: Vec<(u32, &[u8])>) -> Self {
        segments.retain(|(_, bytes)| !bytes.is_empty());
        segments.sort_by_key(|(address, _)| *address);
        let mut image = Self::default();
        for (address, bytes) in segments {
            image.add(u64::from(address), bytes);
        }
        image
    }

    /// Adds a segment that does not start before the last.
    fn add(&mut self, address: u64, bytes: &[u8]) {
        let end = (address + bytes.len() as u64).next_multiple_of(8);
        if self.chunks.last().is_none_or(|last| address >= last.end() + GAP) {
            self.chunks.push(Chunk { start: address & !7, bytes: Vec::new() });
        }
        if let Some(last) = self.chunks.last_mut() {
            last.bytes.resize((end.max(last.end()) - last.start) as usize, 0);
            let at = (address - last.start) as usize;
            last.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn end(&self) -> u64 {
        self.chunks.last().map_or(0, Chunk::end)
    }

    /// How many bytes are known.
    pub(crate) fn size(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes.len()).sum()
    }

    /// What is known from `address` on in one piece; empty if it is a long run of zeros.
    fn piece(&self, address: u64) -> &[u8] {
        let after = self.chunks.partition_point(|chunk| chunk.start <= address);
        let Some(chunk) = after.checked_sub(1).and_then(|at| self.chunks.get(at)) else { return &[] };
        usize::try_from(address - chunk.start).ok().and_then(|at| chunk.bytes.get(at..)).unwrap_or_default()
    }

    /// Bytes from `address` on, up to the end of the last segment.
    pub(crate) fn bytes(&self, address: u64) -> Bytes<'_> {
        Bytes { image: self, address, piece: self.piece(address) }
    }

    fn array<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        if let Some(&bytes) = self.piece(address).first_chunk() {
            return Some(bytes);
        }
        let mut bytes = self.bytes(address);
        let mut array = [0; N];
        for byte in &mut array {
            *byte = bytes.next()?;
        }
        Some(array)
    }

    pub(crate) fn u8(&self, address: u64) -> Option<u8> {
        self.array(address).map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&self, address: u64) -> Option<u32> {
        self.array(address).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_le_bytes)
    }

    /// Text that ends with a zero byte or after `longest` bytes.
    pub(crate) fn text(&self, address: u64, longest: usize) -> Option<String> {
        if address >= self.end() {
            return None;
        }
        let bytes: Vec<u8> = self.bytes(address).take(longest).take_while(|&byte| byte != 0).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Addresses, multiples of eight, of the words that equal `word`.
    pub(crate) fn find_word(&self, word: u64) -> impl Iterator<Item = u64> + '_ {
        self.chunks.iter().flat_map(move |chunk| {
            let (words, _) = chunk.bytes.as_chunks::<8>();
            let hits = words.iter().enumerate().filter(move |(_, found)| u64::from_le_bytes(**found) == word);
            hits.map(|(at, _)| chunk.start + 8 * at as u64)
        })
    }

    /// Addresses of a text that has no long run of zeros in it.
    pub(crate) fn find_text<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        self.chunks.iter().flat_map(move |chunk| {
            let windows = chunk.bytes.windows(text.len().max(1)).enumerate();
            windows.filter(move |(_, window)| *window == text).map(|(at, _)| chunk.start + at as u64)
        })
    }
}

/// Iterates over bytes of an [`Image`] from an address on.
#[derive(Clone, Debug)]
pub(crate) struct Bytes<'a> {
    image: &'a Image,
    address: u64,
    piece: &'a [u8],
}

impl Iterator for Bytes<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.piece.is_empty() {
            self.piece = self.image.piece(self.address);
        }
        let byte = match self.piece.split_first() {
            Some((&byte, rest)) => {
                self.piece = rest;
                byte
            }
            None if self.address < self.image.end() => 0,
            None => return None,
        };
        self.address += 1;
        Some(byte)
    }
}

impl Bytes<'_> {
    /// An unsigned LEB128 number as Go writes it, 32 bits at most.
    pub(crate) fn varint(&mut self) -> Option<u32> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.next()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(segments: &[(u32, &[u8])]) -> Image {
        Image::new(segments.to_vec())
    }

    #[test]
    fn gaps_read_as_zeros() {
        let image = image(&[(3, &[1, 2]), (9, &[3]), (500, &[4, 5, 6, 7])]);
        assert_eq!(image.u64(0), Some(0x0002_0100_0000));
        assert_eq!(image.u64(8), Some(0x0300));
        assert_eq!(image.u32(498), Some(0x0504_0000));
        assert_eq!(image.u64(300), Some(0));
        assert_eq!(image.u8(499), Some(0));
        assert_eq!(image.u32(500), Some(0x0706_0504));
        assert_eq!(image.u32(501), None, "nothing is known behind the last segment");
        assert_eq!(image.u32(504), None);
        assert_eq!(image.u64(u64::MAX), None);
    }

    #[test]
    fn a_word_whose_low_bytes_were_cut_is_found() {
        // 0x00020100 at 16: its lowest byte is zero and so not in the segment.
        let image = image(&[(17, &[1, 2]), (40, &[9])]);
        assert_eq!(image.find_word(0x0002_0100).collect::<Vec<_>>(), [16]);
    }

    #[test]
    fn segments_come_in_any_order_and_overlap() {
        let image = image(&[(u32::MAX, &[2; 8]), (100, &[1; 8]), (8, &[5]), (96, &[2; 8]), (50, &[])]);
        assert_eq!(image.u8(u64::from(u32::MAX)), Some(2));
        assert_eq!(image.u64(96), Some(0x0101_0101_0202_0202));
        assert_eq!(image.u64(104), Some(0x0101_0101));
        assert_eq!(image.u8(8), Some(5));
    }

    #[test]
    fn varints_end() {
        let image = image(&[(8, &[0x80, 1, 0xff, 0xff, 0xff, 0xff, 0xff])]);
        let mut bytes = image.bytes(8);
        assert_eq!(bytes.varint(), Some(128));
        assert_eq!(bytes.varint(), None);
    }
}
