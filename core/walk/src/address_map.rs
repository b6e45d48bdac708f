//! Wasmtime's address map, read where it lies in the compiled image: which place of the file each stretch of machine code is for.
//!
//! Wasmtime's API gives all of it from the beginning, which takes a quarter of a second for a guest of 40 MB of code, of which a
//! profile asks for a few hundred functions. From Wasmtime 47 on the section has blocks and an index of them to find one function's rows by.
//! Before, it has all offsets and then all places, as numbers. Both are described at `AddressMapSection` in wasmtime-environ, and a test
//! compares what is read with what the API says.

use gimli::{EndianSlice, LittleEndian, Reader};
use std::ops::Range;

/// Rows in a block.
const BLOCK_ROWS: usize = 128;

/// A block in the index: the first row's offset in the text, and where the block's body begins.
const INDEX_ENTRY: usize = 8;

/// Bytes of a number.
const NUMBER: usize = 4;

/// From where in the text on code is for which place in the file, if for any.
pub type Row = (u32, Option<u32>);

/// The section, read.
///
/// ```
/// use wlprof_walk::AddressMap;
///
/// // Two rows in one block: code from 16 on is for byte 7 of the file, code from 20 on for none.
/// let section = [2, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 7, 4 << 1 | 1];
/// let map = AddressMap::parse(&section).unwrap();
/// assert_eq!(map.rows(&(0..100)).collect::<Vec<_>>(), [(16, Some(7)), (20, None)]);
/// ```
#[derive(Debug)]
pub struct AddressMap<'m> {
    /// The rows as they were before Wasmtime 47, and none from it on: offsets, and as many places.
    offsets: &'m [[u8; NUMBER]],
    places: &'m [[u8; NUMBER]],
    rows: usize,
    index: &'m [[u8; INDEX_ENTRY]],
    bodies: &'m [u8],
}

impl<'m> AddressMap<'m> {
    /// Parses the section. `None` if it is cut short.
    pub fn parse(section: &'m [u8]) -> Option<Self> {
        let (rows, rest) = section.split_first_chunk()?;
        let row_count = u32::from_le_bytes(*rows) as usize;
        // Rows in blocks take less than half of that.
        if row_count.checked_mul(2 * NUMBER) == Some(rest.len()) {
            let (offsets, places) = rest.as_chunks().0.split_at(row_count);
            return Some(Self { offsets, places, rows: 0, index: &[], bodies: &[] });
        }
        let (blocks, rest) = rest.split_first_chunk()?;
        let blocks = u32::from_le_bytes(*blocks) as usize;
        let (index, bodies) = rest.split_at_checked(blocks.checked_mul(INDEX_ENTRY)?)?;
        Some(Self { offsets: &[], places: &[], rows: row_count, index: index.as_chunks().0, bodies })
    }

    /// Returns whether its blocks are in order, or all its rows: else finding some of them would mean to read all.
    pub fn is_in_order(&self) -> bool {
        self.index.is_sorted_by_key(|block| split(block).0)
            && self.offsets.is_sorted_by_key(|at| u32::from_le_bytes(*at))
    }

    /// Returns the rows that begin in this range of the text, in order.
    pub fn rows(&self, range: &Range<usize>) -> impl Iterator<Item = Row> {
        // The block before may reach into the range.
        let first = self.index.partition_point(|block| split(block).0 < range.start).saturating_sub(1);
        let blocks = (first..self.index.len()).take_while(|&block| split(&self.index[block]).0 < range.end);
        let (range, start) = (range.clone(), range.start);
        let in_blocks = blocks.flat_map(|block| self.block(block));
        let first = self.offsets.partition_point(|at| (u32::from_le_bytes(*at) as usize) < range.start);
        let flat = self.offsets[first..].iter().zip(&self.places[first..]);
        let flat = flat.map(|(at, place)| (u32::from_le_bytes(*at), place_or_none(u32::from_le_bytes(*place))));
        let is_before_end = move |(at, _): &Row| (*at as usize) < range.end;
        in_blocks.filter(move |(at, _)| *at as usize >= start).chain(flat).take_while(is_before_end)
    }

    fn block(&self, number: usize) -> Block<'m> {
        let (at, body) = split(&self.index[number]);
        let rows_left = self.rows.saturating_sub(number * BLOCK_ROWS).min(BLOCK_ROWS);
        let body = EndianSlice::new(self.bodies.get(body..).unwrap_or_default(), LittleEndian);
        Block { body, rows_left, at: at as u32, place: None }
    }
}

/// A place in the file as Wasmtime wrote it before 47.
fn place_or_none(place: u32) -> Option<u32> {
    (place != u32::MAX).then_some(place)
}

fn split(entry: &[u8; INDEX_ENTRY]) -> (usize, usize) {
    let [a, b, c, d, e, f, g, h] = *entry;
    (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]) as usize)
}

/// The rows of a block. Each is told by how far it is from the one before.
struct Block<'m> {
    body: EndianSlice<'m, LittleEndian>,
    rows_left: usize,
    at: u32,
    /// The last place in the file that there was.
    place: Option<u32>,
}

impl Iterator for Block<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        self.rows_left = self.rows_left.checked_sub(1)?;
        let token = self.body.read_uleb128().ok()?;
        self.at = self.at.checked_add(u32::try_from(token >> 1).ok()?)?;
        if token & 1 != 0 {
            return Some((self.at, None));
        }
        self.place = Some(match self.place {
            None => u32::try_from(self.body.read_uleb128().ok()?).ok()?,
            Some(before) => before.checked_add_signed(i32::try_from(self.body.read_sleb128().ok()?).ok()?)?,
        });
        Some((self.at, self.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_older_releases_are_numbers() {
        let numbers = [3, 16, 20, 24, 7, u32::MAX, 9];
        let section: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        let map = AddressMap::parse(&section).unwrap();
        let rows = |range| map.rows(&range).collect::<Vec<_>>();
        assert_eq!(rows(0..100), [(16, Some(7)), (20, None), (24, Some(9))]);
        assert_eq!(rows(17..24), [(20, None)]);
        assert_eq!(rows(25..100), []);
        assert!(AddressMap::parse(&section[..3]).is_none());
        assert!(map.is_in_order());
        let disordered: Vec<u8> = [2, 20, 16, 7, 9].into_iter().flat_map(u32::to_le_bytes).collect();
        assert!(!AddressMap::parse(&disordered).unwrap().is_in_order());
    }
}
